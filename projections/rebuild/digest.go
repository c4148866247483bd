package rebuild

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// Table compares one table before and after a rebuild, at the same positions.
type Table struct {
	Table string `json:"table"`
	// Before and After are rows; Before is -1 where the table was missing.
	Before int64 `json:"rows_before"`
	After  int64 `json:"rows"`
	Equal  bool  `json:"equal"`
}

// Digest of rows, not of their text: PostgreSQL hashes the values, at a fifth of the cost of scrip.digest(); both sides
// are in one database. A sum does not depend on order, and differs if a row is duplicated.
//
// The parameters of Sprintf are schema and table.
const digestSQL = `SELECT count(*), coalesce(sum(hash_record_extended(x, 0)), 0)::text FROM %s.%s x`

type digest struct {
	rows int64
	sum  string
}

func digestOf(ctx context.Context, db interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, schema, table string) (d digest, err error) {
	err = db.QueryRow(ctx, fmt.Sprintf(digestSQL, schema, table)).Scan(&d.rows, &d.sum)
	return d, err
}

// Live returns the checkpoints of the live tables, a position per lane; sequence 0 for a lane without one.
func Live(ctx context.Context, db interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}, lanes int, log string) ([]eventlog.Position, error) {
	return positions(ctx, db, schema.Name, lanes, log)
}

// positions is Live for the tables of a schema.
func positions(ctx context.Context, db interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
}, name string, lanes int, log string) ([]eventlog.Position, error) {
	list := make([]eventlog.Position, lanes)
	for n := range list {
		list[n] = eventlog.Position{Log: log, Lane: n}
	}
	rows, err := db.Query(ctx, "SELECT lane, sequence, log, digest FROM "+name+".checkpoint WHERE projection = $1", projector.Projection)
	if err == nil {
		var at eventlog.Position
		_, err = pgx.ForEachRow(rows, []any{&at.Lane, &at.Sequence, &at.Log, &at.Digest}, func() error {
			if at.Lane >= 0 && at.Lane < lanes {
				list[at.Lane] = at
			}
			return nil
		})
	}
	if tables.Missing(err) {
		return list, nil
	}
	return list, err
}

// compare fills the shadow to exactly the checkpoints in a snapshot of the live tables, and digests both. If that is
// impossible it returns nil and the reason.
func (sh *Shadow) compare(ctx context.Context) (list []Table, why string, err error) {
	s := sh.s
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	there, err := Tables(ctx, tx, "scrip")
	if err != nil {
		return nil, "", err
	}
	if !slices.Contains(there, checkpointTable) {
		return nil, "the tables in use are incomplete", nil
	}
	if version, err := schema.Applied(ctx, tx); err != nil {
		return nil, "", err
	} else if version != schema.Version() {
		return nil, fmt.Sprintf("the tables in use had migration %d, the new ones have migration %d", version, schema.Version()), nil
	}
	at, err := Live(ctx, tx, s.log.Lanes, s.log.UUID)
	if err != nil {
		return nil, "", err
	}
	to := make([]uint64, len(at))
	for n, p := range at {
		if to[n] = p.Sequence; p.Sequence < sh.lanes[n].at.Sequence {
			return nil, fmt.Sprintf("the tables in use are behind: lane %d at message %d of %d", n, p.Sequence, sh.lanes[n].at.Sequence), nil
		}
		if err := eventlog.Events(s.js, n).Verify(ctx, s.log.UUID, p); err != nil {
			return nil, fmt.Sprintf("the tables in use were not filled from this log: %v", err), nil
		}
	}
	if err := sh.Fill(ctx, CatchingUp, to); err != nil {
		return nil, "", err
	}
	s.report.enter(Comparing, 0)
	if err := s.opts.Hook(Comparing); err != nil {
		return nil, "", err
	}
	mine, err := Tables(ctx, s.pool, sh.name)
	if err != nil {
		return nil, "", err
	}
	before, after := make([]digest, len(mine)), make([]digest, len(mine))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { // one goroutine: the snapshot belongs to one connection
		for i, table := range mine {
			if before[i].rows = -1; !slices.Contains(there, table) || table == checkpointTable {
				continue
			}
			var err error
			if before[i], err = digestOf(ctx, tx, "scrip", table); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() error {
		for i, table := range mine {
			if table == checkpointTable {
				continue
			}
			var err error
			if after[i], err = digestOf(ctx, s.pool, sh.name, table); err != nil {
				return err
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return nil, "", fmt.Errorf("comparing digests: %w", err)
	}
	for i, table := range mine {
		if table != checkpointTable {
			list = append(list, Table{Table: table, Before: before[i].rows, After: after[i].rows, Equal: before[i] == after[i]})
		}
	}
	return list, "", nil
}

const checkpointTable = "checkpoint"
