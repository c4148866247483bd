package tables

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// DefaultRetention is how long processed expiry tasks are kept, by the log's clock.
const DefaultRetention = 30 * 24 * time.Hour

// Batch is what is applied at once: the lines of whole messages of one lane.
type Batch struct {
	Lane  int
	Lines []Line
	// From and To are the lane's clock before the first and after the last message.
	From, To wire.Instant
	// Retention is how long processed expiry tasks are kept. Defaults to DefaultRetention.
	Retention time.Duration
	// Schema is where the tables are. Defaults to DefaultSchema; a rebuild fills others.
	Schema string
}

// partAfterCut is how many lines are folded at once behind a cut; twice as many with each part that needs none.
const partAfterCut = 16

// Apply folds a batch into the tables, in the caller's transaction (see Begin), and says which lines were parked. After an error
// the transaction must be rolled back; Refused tells whether the same batch would fail again. Rows are the same however
// a log is cut into batches.
func Apply(ctx context.Context, tx pgx.Tx, b *Batch) ([]Parked, error) {
	var parked []Parked
	part := len(b.Lines) // of them folded at once
	for rest := b.Lines; len(rest) > 0; {
		lines := rest[:min(part, len(rest))]
		f := newFold(b.Lane)
		f.schema = b.Schema
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
		// What was loaded for lines behind a cut was loaded in vain. Where one campaign is cut off its neighbours may be.
		if campaign != "" {
			part = partAfterCut
		} else {
			part *= 2
		}
	}
	return parked, cleanUp(ctx, tx, b)
}

// cleanUp removes what is old whenever the log's clock crosses midnight UTC.
func cleanUp(ctx context.Context, tx pgx.Tx, b *Batch) error {
	today := dayOf(b.To)
	if b.From != 0 && today <= dayOf(b.From) {
		return nil
	}
	retention := b.Retention
	if retention == 0 {
		retention = DefaultRetention
	}
	if _, err := tx.Exec(ctx, in(b.Schema, cleanUpSQL), int64(b.Lane), timestamp(today.Add(-retention))); err != nil {
		return fmt.Errorf("removing old expiry tasks: %w", err)
	}
	return nil
}

// ApplyOneByOne applies a batch of which Apply said that PostgreSQL refuses it, line by line, and parks those that are
// refused. It costs some round trips per line.
func ApplyOneByOne(ctx context.Context, tx pgx.Tx, b *Batch) ([]Parked, error) {
	var parked []Parked
	for i := range b.Lines {
		one := &Batch{Lane: b.Lane, Lines: b.Lines[i : i+1], From: b.To, To: b.To, Schema: b.Schema}
		list, err := applySaved(ctx, tx, one)
		if reason, refused := Refused(err); refused {
			one.Lines[0].Problem = reason
			list, err = applySaved(ctx, tx, one)
		}
		if err != nil {
			return nil, err
		}
		parked = append(parked, list...)
	}
	return parked, cleanUp(ctx, tx, b)
}

// applySaved applies a batch so that a failure leaves the transaction as it was before.
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

// Refused tells whether PostgreSQL refused what was written, so that writing it again would fail again, and says why:
// data it cannot store, a violated constraint, a row over a limit.
func Refused(err error) (reason error, refused bool) {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) != 5 {
		return nil, false
	}
	switch {
	case pg.Code == "23505":
		return alreadyThere(pg.ConstraintName), true
	case pg.Code[:2] == "22" || pg.Code[:2] == "23" || pg.Code[:2] == "54":
		// Without PostgreSQL's own words: they depend on its version and language, and the rows of a rebuild must be the same.
		return fmt.Errorf("PostgreSQL refuses it (SQLSTATE %s)", pg.Code), true
	}
	return nil, false
}

// Damaged says whether PostgreSQL met damage in its own files (SQLSTATE class XX): a page, an index, its catalog. Waiting does
// not mend that.
func Damaged(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && strings.HasPrefix(pg.Code, "XX")
}

// Missing tells whether a table was not there: schema scrip was dropped while we worked.
func Missing(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000" || pg.Code == "42883")
}
