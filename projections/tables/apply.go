package tables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/schema"
)

// DefaultRetention is how long processed expiry tasks are kept, in lane time.
const DefaultRetention = 30 * 24 * time.Hour

// Batch has the lines of whole messages of one lane that are applied in one transaction.
type Batch struct {
	Lane  int
	Lines []Line
	// From and To are the lane time before the first and after the last message.
	From, To wire.Instant
	// Retention is how long processed expiry tasks are kept. Defaults to DefaultRetention.
	Retention time.Duration
	// Segment is where new rows of coupons go, see projections/segments: 0, which has all indexes, or a young one, of which
	// the caller has a lease.
	Segment int32
	// Unlisted are segments that the transaction may not find by the table of all: coupons are looked for in each of them.
	Unlisted []int32
	// Schema is where the tables are.
	Schema string
}

// partAfterCut is how many lines are folded at once after a cut; the number doubles with each part that needs none.
const partAfterCut = 16

// Apply folds a batch into the tables, in the caller's transaction (see Begin), and returns the lines that became dead
// letters. After an error the transaction must be rolled back; Refused reports whether the same batch would fail again.
// Rows do not depend on how a log is divided into batches.
func Apply(ctx context.Context, tx pgx.Tx, b *Batch) ([]Parked, error) {
	var parked []Parked
	clock := b.From
	part := len(b.Lines) // of them folded at once
	for rest := b.Lines; len(rest) > 0; {
		if err := cleanUp(ctx, tx, b, &clock, rest[0].At); err != nil {
			return nil, err
		}
		today := 1
		for today < len(rest) && dayOf(rest[today].At) <= dayOf(clock) {
			today++
		}
		lines := rest[:min(part, today)]
		f := newFold(b.Lane)
		f.schema, f.segment, f.unlisted = b.Schema, b.Segment, b.Unlisted
		t := touches(lines)
		f.acts = t.acts
		if err := f.load(ctx, tx, t); err != nil {
			return nil, err
		}
		done, campaign := f.run(lines)
		if err := f.write(ctx, tx, &lines[0]); err != nil {
			return nil, err
		}
		if campaign != "" {
			if err := recount(ctx, tx, b.Schema, campaign); err != nil {
				return nil, err
			}
		}
		parked = append(parked, f.parked...)
		rest = rest[done:]
		// What was loaded for lines after a cut was unnecessary. A cut for one campaign makes others likely.
		if campaign != "" {
			part = partAfterCut
		} else {
			part *= 2
		}
	}
	return parked, cleanUp(ctx, tx, b, &clock, b.To)
}

// ApplyOneByOne applies line by line a batch that PostgreSQL rejected in Apply, and makes dead letters of the rejected
// lines. It takes some round trips per line.
func ApplyOneByOne(ctx context.Context, tx pgx.Tx, b *Batch) ([]Parked, error) {
	var parked []Parked
	clock := b.From
	for i := range b.Lines {
		one := &Batch{Lane: b.Lane, Lines: b.Lines[i : i+1], From: clock, To: b.Lines[i].At, Schema: b.Schema, Segment: b.Segment, Unlisted: b.Unlisted, Retention: b.Retention}
		list, err := applySaved(ctx, tx, one)
		if reason, refused := Refused(err); refused {
			one.Lines[0].Problem = reason
			list, err = applySaved(ctx, tx, one)
		}
		if err != nil {
			return nil, err
		}
		parked = append(parked, list...)
		clock = max(clock, one.To)
	}
	return parked, cleanUp(ctx, tx, b, &clock, b.To)
}

// applySaved applies a batch in a savepoint: after an error the transaction is as before.
func applySaved(ctx context.Context, tx pgx.Tx, b *Batch) ([]Parked, error) {
	saved, err := tx.Begin(ctx) // a savepoint
	if err != nil {
		return nil, err
	}
	list, err := Apply(ctx, saved, b)
	if err != nil {
		return nil, errors.Join(err, saved.Rollback(ctx))
	}
	return list, saved.Commit(ctx)
}

// Refused reports whether PostgreSQL rejected the data, so that a retry would fail again, and why: data it cannot
// store, a violated constraint, a row over a limit.
func Refused(err error) (reason error, refused bool) {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) != 5 {
		return nil, false
	}
	switch {
	case pg.Code == "23505":
		return duplicateRow(pg.ConstraintName), true
	case pg.Code[:2] == "22" || pg.Code[:2] == "23" || pg.Code[:2] == "54":
		// Without PostgreSQL's message: it depends on version and language, and the rows of a rebuild must be the same.
		return fmt.Errorf("PostgreSQL refuses it (SQLSTATE %s)", pg.Code), true
	}
	return nil, false
}

// Damaged reports whether PostgreSQL found damage in its own files (SQLSTATE class XX): a page, an index, its catalog.
// A retry does not help.
func Damaged(err error) bool {
	return strings.HasPrefix(schema.State(err), "XX")
}

// Missing reports whether a table does not exist: schema scrip was dropped.
func Missing(err error) bool {
	return slices.Contains([]string{"42P01", "3F000", "42883"}, schema.State(err))
}

// beginSQL opens a transaction for Apply. Its settings hold for this transaction alone.
//
// Commits do not wait for the disk: what PostgreSQL loses in a crash, rows and checkpoint alike, is applied again from
// the log.
//
// Every statement of this package selects its rows by key, at most some thousand, so that the cost of a batch does not
// depend on the size of the tables. The planner must choose plans accordingly. Plans are therefore not cached: one made
// for a small table would read all of it after it has grown; with a million campaigns each batch would read a million
// rows. Joins other than nested loops over an index are disabled as far as possible. In addition, no other condition of
// a statement may look selective, or the planner starts with it (hence coalesce in them).
//
// Time limits of a role or a database are off: a batch that exceeds them would exceed them in every retry. A process that is stopped
// keeps its locks for schema.MostIdle.
const beginSQL = `BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = '` + schema.MostIdle + `'; ` +
	`SET LOCAL synchronous_commit = off; SET LOCAL plan_cache_mode = force_custom_plan; ` +
	`SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off`

// Beginner is a pool or a connection.
type Beginner interface {
	BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
}

// Begin opens a transaction for Apply. In any other transaction the rows are the same, but the cost may grow with the
// tables.
func Begin(ctx context.Context, db Beginner) (pgx.Tx, error) {
	return db.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginSQL})
}

// In returns a statement for the tables of a schema. Statements name the schema of the views, so that they can be read, and
// most of them run, unchanged in psql. Results are not kept: a statement about one segment has its number and is not used again.
func In(name, sql string) string { return strings.ReplaceAll(sql, schema.Name+".", name+".") }
