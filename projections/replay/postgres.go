package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/confine"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Definition is a projection of events into PostgreSQL: which tables, and how a batch is folded into them.
type Definition struct {
	// Name is the schema the projection lives in, alone: 1 to 60 of a-z 0-9 _, beginning with a letter.
	Name string
	// Version names what Create makes. Tables made by another version are refused; Reset makes them anew.
	Version string
	// FoldVersion names what Fold does. Another one than before goes on with the tables as they are, and is logged.
	FoldVersion string
	// Create makes the tables, once, in a transaction whose search_path is the schema.
	Create func(ctx context.Context, tx pgx.Tx) error
	// Fold adds a batch of at least one event, in the transaction that moves the checkpoint; its search_path is the
	// schema. The result must not depend on where batches are cut. Lanes come one after another, never two at once.
	Fold func(ctx context.Context, tx pgx.Tx, b *Batch) error

	// check, if given, looks for mistakes before anything is made.
	check func(ctx context.Context, conn *pgx.Conn) error
}

// BatchError says at which place folding failed. The batch was rolled back, what came before it is kept, and the next
// run goes on with it.
type BatchError struct {
	Name        string // of the projection
	Lane        int
	First, Last uint64 // message sequences
	Err         error
}

func (e *BatchError) Error() string {
	return fmt.Sprintf("folding messages %d to %d of lane %d into %s: %s; that batch was rolled back, what came before it is kept: mend the cause and run it again, it goes on there",
		e.First, e.Last, e.Lane, e.Name, e.Err)
}

func (e *BatchError) Unwrap() error { return e.Err }

// errFenced: somebody else moved a checkpoint.
var errFenced = errors.New("its checkpoint is not where this replay left it: another replay of this name is at work; stop one of them")

// Postgres is a sink that keeps a projection in the database at url, checkpoint and rows in one transaction. It goes on
// where it was; reset empties the schema first, once. The projection logs in as a role of its own, which owns the schema
// and may read schema scrip, and nothing else; see package confine. url's role makes that role and is a member of it.
//
// Two at once are no danger: the checkpoint moves only from where its mover left it.
func Postgres(url string, d Definition, reset bool) Sink {
	return &projection{Definition: d, url: url, reset: reset}
}

type projection struct {
	Definition
	url   string
	reset bool

	conn     *pgx.Conn
	role     string                    // who works on the schema
	confined bool                      // the role is one of its own
	at       map[int]eventlog.Position // as the schema holds them

	// failures to come, for tests: a non-nil error stands for an answer that never came.
	beforeCommit func(b *Batch)
	afterCommit  func(b *Batch) error
}

// schema is the quoted name.
func (p *projection) schema() string { return pgx.Identifier{p.Name}.Sanitize() }

func (p *projection) Begin(ctx context.Context, log topology.Log, f *Filter) (map[int]eventlog.Position, error) {
	if err := checkName(p.Name); err != nil {
		return nil, err
	}
	if p.Name == "scrip" || strings.HasPrefix(p.Name, "scrip_") || strings.HasPrefix(p.Name, "pg_") || p.Name == "public" || p.Name == "information_schema" {
		return nil, invalid("name", "schema %s is not for projections; give another name", p.Name)
	}
	if err := p.open(ctx); err != nil {
		return nil, fmt.Errorf("projection %s: %w", p.Name, away(err))
	}
	if err := p.begin(ctx, log, f); err != nil {
		p.close(ctx)
		return nil, err
	}
	p.reset = false
	places := make(map[int]eventlog.Position, len(p.at))
	for lane, at := range p.at {
		if at.Sequence != 0 {
			places[lane] = at
		}
	}
	return places, nil
}

// open connects as the projection's own role, or, where the role of the URL may make none, as that one.
func (p *projection) open(ctx context.Context) error {
	p.conn = nil
	config, err := pgx.ParseConfig(p.url)
	if err != nil {
		return fmt.Errorf("the URL of PostgreSQL: %w", err)
	}
	schema.Pin(config) // what a projection's own statements look up is set with each transaction
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connecting to the database: %w", err)
	}
	if p.check != nil {
		err = p.check(ctx, conn)
	}
	if err == nil {
		// Its own role has a session of its own, so that no statement of the projection can leave it.
		p.conn, err = confine.Open(ctx, conn, config, p.Name)
	}
	if p.confined = p.conn != nil; err == nil && !p.confined {
		p.conn, conn = conn, nil
	}
	if conn != nil {
		goodbye(ctx, conn)
	}
	return err
}

func (p *projection) begin(ctx context.Context, log topology.Log, f *Filter) error {
	if err := p.conn.QueryRow(ctx, "SELECT current_user").Scan(&p.role); err != nil {
		return away(err)
	}
	if err := p.ensure(ctx, log, f); err != nil {
		if p.confined {
			// Made just now if it is empty; otherwise this is refused.
			_, _ = p.conn.Exec(context.WithoutCancel(ctx), "DROP SCHEMA IF EXISTS "+p.schema()+" RESTRICT")
		}
		return fmt.Errorf("making ready schema %s: %w", p.Name, p.grants(err))
	}
	return nil
}

// Write folds a batch.
func (p *projection) Write(ctx context.Context, b *Batch) error {
	if err := p.commit(ctx, b); err != nil {
		return &BatchError{Name: p.Name, Lane: b.Lane, First: b.First, Last: b.Last, Err: p.grants(err)}
	}
	return nil
}

func (p *projection) commit(ctx context.Context, b *Batch) error {
	tx, err := p.conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: p.beginSQL()})
	if err != nil {
		return away(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing to do after a commit
	// First, so that whoever is fenced folds nothing.
	if err := p.advance(ctx, tx, b); err != nil {
		return err
	}
	if len(b.Events) > 0 {
		if err := p.Fold(ctx, tx, b); err != nil {
			return away(err)
		}
	}
	if p.beforeCommit != nil {
		p.beforeCommit(b)
	}
	// If the answer does not come, the checkpoint says whether it happened: the next Begin reads it.
	if err := tx.Commit(ctx); err != nil {
		return away(err)
	}
	if p.afterCommit != nil {
		if err := p.afterCommit(b); err != nil {
			return err
		}
	}
	p.at[b.Lane] = b.To
	return nil
}

// beginSQL: the log is the truth, so a commit that PostgreSQL loses in a crash is folded again.
func (p *projection) beginSQL() string {
	return "BEGIN; SET LOCAL synchronous_commit = off; SET LOCAL search_path = " + p.schema()
}

func (p *projection) Flush(context.Context) error { return nil }

func (p *projection) End(ctx context.Context, _ error) error {
	p.close(ctx)
	return nil
}

// close says goodbye; what was not committed is gone, and was meant to.
func (p *projection) close(ctx context.Context) { goodbye(ctx, p.conn) }

func goodbye(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	_ = conn.Close(ctx)
}
