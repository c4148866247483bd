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

// Definition is a projection of events into PostgreSQL: its tables, and how a batch is folded into them.
type Definition struct {
	// Name is the projection's own schema: 1 to 60 of a-z 0-9 _, beginning with a letter.
	Name string
	// Version identifies what Create makes. A replay does not continue with tables of another version; with reset it
	// creates them again.
	Version string
	// FoldVersion identifies what Fold does. A replay with another one continues with the same tables and stores it.
	FoldVersion string
	// Create creates the tables, once, in a transaction whose search_path is the schema.
	Create func(ctx context.Context, tx pgx.Tx) error
	// Fold adds a batch of at least one event, in the transaction that moves the checkpoint; its search_path is the
	// schema. The result must not depend on where batches are cut. Fold is never called concurrently.
	Fold func(ctx context.Context, tx pgx.Tx, b *Batch) error

	// check, if not nil, validates the definition before anything is created.
	check func(ctx context.Context, conn *pgx.Conn) error
}

// BatchError reports at which messages folding failed. The batch was rolled back, earlier batches are committed, and
// the next run continues with this batch.
type BatchError struct {
	Name        string // of the projection
	Lane        int
	First, Last uint64 // message sequences
	Err         error
}

func (e *BatchError) Error() string {
	return fmt.Sprintf("folding messages %d to %d of lane %d into %s: %s; the batch was rolled back, earlier ones are committed: correct the cause and run it again, it continues there",
		e.First, e.Last, e.Lane, e.Name, e.Err)
}

func (e *BatchError) Unwrap() error { return e.Err }

// errFenced: another process moved a checkpoint.
var errFenced = errors.New("its checkpoint was moved by another replay of this name; stop one of them")

// Postgres is a sink that keeps a projection in the database at url, checkpoint and rows in one transaction. It
// continues at its checkpoint; reset empties the schema first, once. The projection logs in as a role of its own, which
// owns the schema and may read schema scrip, and nothing else; see package confine. url's role makes that role and is a
// member of it.
//
// Two that run at once cannot apply an event twice: a checkpoint advances only from the position that its writer last
// committed.
func Postgres(url string, d Definition, reset bool) Sink {
	return &projection{Definition: d, url: url, reset: reset}
}

type projection struct {
	Definition
	url   string
	reset bool

	conn     *pgx.Conn
	role     string                    // owner of the connection that writes the schema
	confined bool                      // the role belongs to this projection alone
	at       map[int]eventlog.Position // as committed in the schema

	// failures injected by tests: a non-nil error replaces the reply to a commit.
	beforeCommit func(b *Batch)
	afterCommit  func(b *Batch) error
}

// schema returns the quoted name.
func (p *projection) schema() string { return pgx.Identifier{p.Name}.Sanitize() }

func (p *projection) Begin(ctx context.Context, log topology.Log, f *Filter) (map[int]eventlog.Position, error) {
	if err := checkName(p.Name); err != nil {
		return nil, err
	}
	if p.Name == "scrip" || strings.HasPrefix(p.Name, "scrip_") || strings.HasPrefix(p.Name, "pg_") || p.Name == "public" || p.Name == "information_schema" {
		return nil, invalid("name", "schema %s is reserved; give another name", p.Name)
	}
	if err := p.open(ctx); err != nil {
		return nil, fmt.Errorf("projection %s: %w", p.Name, unavailable(err))
	}
	if err := p.begin(ctx, log, f); err != nil {
		p.close(ctx)
		return nil, err
	}
	p.reset = false
	positions := make(map[int]eventlog.Position, len(p.at))
	for lane, at := range p.at {
		if at.Sequence != 0 {
			positions[lane] = at
		}
	}
	return positions, nil
}

// open connects as the projection's own role, or, if the role of the URL cannot create roles, as that role.
func (p *projection) open(ctx context.Context) error {
	p.conn = nil
	config, err := pgx.ParseConfig(p.url)
	if err != nil {
		return fmt.Errorf("the URL of PostgreSQL: %w", err)
	}
	schema.Pin(config) // each transaction sets search_path for the projection's own statements
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connecting to the database: %w", err)
	}
	if p.check != nil {
		err = p.check(ctx, conn)
	}
	if err == nil {
		// The role has a session of its own: no statement of the projection can return to another role.
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
		return unavailable(err)
	}
	if err := p.ensure(ctx, log, f); err != nil {
		if p.confined {
			// confine.Open has just created it if it is empty; otherwise dropping it is rejected.
			_, _ = p.conn.Exec(context.WithoutCancel(ctx), "DROP SCHEMA IF EXISTS "+p.schema()+" RESTRICT")
		}
		return fmt.Errorf("preparing schema %s: %w", p.Name, p.grants(err))
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
		return unavailable(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing to do after a commit
	// First, so that a replay that is fenced off folds nothing.
	if err := p.advance(ctx, tx, b); err != nil {
		return err
	}
	if len(b.Events) > 0 {
		if err := p.Fold(ctx, tx, b); err != nil {
			return unavailable(err)
		}
	}
	if p.beforeCommit != nil {
		p.beforeCommit(b)
	}
	// If no reply arrives, the next Begin reads from the checkpoint whether it was committed.
	if err := tx.Commit(ctx); err != nil {
		return unavailable(err)
	}
	if p.afterCommit != nil {
		if err := p.afterCommit(b); err != nil {
			return err
		}
	}
	p.at[b.Lane] = b.To
	return nil
}

// beginSQL: a commit that PostgreSQL loses in a crash is folded again from the log.
func (p *projection) beginSQL() string {
	return "BEGIN; SET LOCAL synchronous_commit = off; SET LOCAL search_path = " + p.schema()
}

func (p *projection) Flush(context.Context) error { return nil }

func (p *projection) End(ctx context.Context, _ error) error {
	p.close(ctx)
	return nil
}

// close closes the connection, which rolls back what was not committed.
func (p *projection) close(ctx context.Context) { goodbye(ctx, p.conn) }

func goodbye(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	_ = conn.Close(ctx)
}
