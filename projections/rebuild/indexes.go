package rebuild

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/tables"
)

// The big tables are filled without indexes: a row then costs less than half, and sorting once at the end is cheaper
// than inserting each into an index. An index that tables.Apply uses is created as soon as an event needs it (a
// redemption finds its coupon by key); one that only readers use is created last.
//
//	coupon_row   key: events that change coupons or depend on their expiry      code, customer: last
//	redemption_row  key: roll back                                              order: last
//	reminder     all but customer: cancel, fire, move                           customer: last
//
// Which events those are is in the table of events (column Finds).
//
// The other tables have few rows, each written repeatedly; they keep their indexes.
var filledBare = []string{couponRow, redemption, reminder}

const (
	couponRow  = "coupon_row"
	redemption = "redemption_row"
	reminder   = "reminder"
)

// Memory to sort for one index. PostgreSQL sorts for a hash index only if it estimates it to be larger than that, and
// without sorting each row goes to a random page: many times slower as soon as the index does not fit into its buffers.
// So the limit is low, and tables are analyzed before.
const (
	btreeMemory = "128MB"
	hashMemory  = "32MB"
)

// index is one that takeIndexes dropped.
type index struct {
	Table, Name string
	Definition  string // the statement that makes it
	Primary     bool
	Btree       bool
}

// $1 = schema   $2 = tables
const indexesSQL = `
SELECT t.relname::text, i.relname::text, pg_get_indexdef(i.oid), x.indisprimary, m.amname = 'btree'
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
JOIN pg_namespace s ON s.oid = t.relnamespace JOIN pg_am m ON m.oid = i.relam
WHERE s.nspname = $1 AND t.relname = ANY($2) ORDER BY NOT x.indisprimary, i.relname COLLATE "C"`

// takeIndexes drops the indexes of the big tables and returns their definitions.
func takeIndexes(ctx context.Context, tx pgx.Tx, name string) ([]index, error) {
	taken, err := schema.Collect(ctx, tx, pgx.RowToStructByPos[index], indexesSQL, name, filledBare)
	if err != nil {
		return nil, err
	}
	for _, x := range taken {
		drop := "DROP INDEX " + name + "." + x.Name
		if x.Primary {
			drop = "ALTER TABLE " + name + "." + x.Table + " DROP CONSTRAINT " + x.Name
		}
		if _, err := tx.Exec(ctx, drop); err != nil {
			return nil, err
		}
	}
	return taken, nil
}

// needs reports for each of filledBare whether the lines of a batch find rows by its key.
func needs(lines []tables.Line) (list [3]bool) {
	rows := wire.NoRows
	for i := range lines {
		rows |= lines[i].Event.Finds()
	}
	return [3]bool{rows&wire.CouponRows != 0, rows&wire.RedemptionRows != 0, rows&wire.ReminderRows != 0}
}

// ensure creates the indexes that a batch needs. The caller has no transaction open: creating an index waits for those
// of other lanes, and they for it.
func (sh *shadow) ensure(ctx context.Context, lines []tables.Line) error {
	for i, needed := range needs(lines) {
		if !needed {
			continue
		}
		table := filledBare[i]
		if err := sh.build(ctx, func(x index) bool { return x.Table == table && x.Btree }); err != nil {
			return err
		}
	}
	return nil
}

// finish creates the missing indexes: the primary keys, which prove that no row is duplicated, or with complete all of
// them. It analyzes the tables first, for the choice of how to sort and for good plans from the first query on.
func (sh *shadow) finish(ctx context.Context, complete bool) error {
	sh.s.report.enter(Indexing, 0)
	if err := sh.s.opts.Hook(Indexing); err != nil {
		return err
	}
	if err := sh.analyze(ctx); err != nil {
		return err
	}
	return sh.build(ctx, func(x index) bool { return complete || x.Primary })
}

func (sh *shadow) analyze(ctx context.Context) error {
	list, err := tablesOf(ctx, sh.s.pool, sh.name)
	if err != nil {
		return err
	}
	for _, table := range list {
		if _, err := sh.s.pool.Exec(ctx, "ANALYZE "+sh.name+"."+table); err != nil {
			return fmt.Errorf("analyzing %s: %w", table, err)
		}
	}
	return nil
}

// build creates the missing indexes that are wanted, several at a time.
func (sh *shadow) build(ctx context.Context, wanted func(index) bool) error {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var now []index
	for _, x := range sh.pending {
		if wanted(x) {
			now = append(now, x)
		}
	}
	if len(now) == 0 {
		return nil
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(sh.s.opts.Parallel)
	for _, x := range now {
		g.Go(func() error {
			if err := makeIndex(gctx, sh.s.pool, x); err != nil {
				return fmt.Errorf("creating index %s: %w", x.Name, err)
			}
			sh.s.report.update(func(p *Progress) { p.Indexes++ })
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// Keys last: adding one locks its table, which conflicts with creating other indexes.
	for _, x := range now {
		if !x.Primary {
			continue
		}
		if _, err := sh.s.pool.Exec(ctx, "ALTER TABLE "+sh.name+"."+x.Table+" ADD CONSTRAINT "+x.Name+" PRIMARY KEY USING INDEX "+x.Name); err != nil {
			return fmt.Errorf("creating key %s: %w", x.Name, err)
		}
	}
	sh.pending = slices.DeleteFunc(sh.pending, wanted)
	return nil
}

func makeIndex(ctx context.Context, db *pgxpool.Pool, x index) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		memory := hashMemory
		if x.Btree {
			memory = btreeMemory
		}
		// Several indexes are created at once; parallel workers for each would only compete for the CPUs.
		_, err := tx.Exec(ctx, "SET LOCAL maintenance_work_mem = '"+memory+"'; SET LOCAL max_parallel_maintenance_workers = 0; "+x.Definition)
		return err
	})
	if schema.State(err) == "23505" {
		return fmt.Errorf("%w: %w", errDoubled, err)
	}
	return err
}

// addIndexes creates the indexes that others created on the live tables on the tables of another schema, unless they
// exist.
func addIndexes(ctx context.Context, db *pgxpool.Pool, name string, list []extraIndex) error {
	for _, x := range list {
		definition := strings.Replace(x.Definition, " ON "+schema.Name+".", " ON "+name+".", 1)
		definition = strings.Replace(definition, "INDEX", "INDEX IF NOT EXISTS", 1)
		if err := makeIndex(ctx, db, index{Definition: definition, Btree: strings.Contains(definition, " USING btree ")}); err != nil {
			return fmt.Errorf("creating index %s, which others created on table %s: %w", x.Name, x.Table, err)
		}
	}
	return nil
}

// checkIndexes returns an error if an index was created since addIndexes: creating it under the lock would take too
// long.
func checkIndexes(ctx context.Context, tx pgx.Tx, name string, list []extraIndex) error {
	for _, x := range list {
		var there bool
		err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_indexes WHERE schemaname = $1 AND tablename = $2 AND indexname = $3)", name, x.Table, x.Name).Scan(&there)
		if err != nil {
			return err
		}
		if !there {
			return refuse("index %s was created on table %s in between; run it again, so that the new table has it too", x.Name, x.Table)
		}
	}
	return nil
}
