package segments

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/tables"
)

const (
	// mergeOf segments of a size are merged while claims do not fill one in quietFor, or when there are crowd of all sizes:
	// lookups ask each, and planning one for 50 takes 1 to 3 ms.
	mergeOf = 8
	crowd   = 200
	// removeWait bounds how long removing waits for readers, because later ones wait as long.
	removeWait = 5 * time.Millisecond
)

// removeAfter is how long merged sources remain for readers whose snapshot is older. A longer reader keeps them by its
// lock, if it has read the coupons before. Shorter in tests.
var removeAfter = time.Minute

// sweepEvery is how often a sweep looks for coupons that left the tables. Shorter in tests.
var sweepEvery = time.Minute

// settings of the transactions below. A commit that is lost with PostgreSQL's machine is made again. PostgreSQL sorts for a hash
// index that it expects to exceed the memory; unsorted, each row of a large one goes to a random page. Statistics of some hundred
// rows tell the planner that texts differ; without them it expects hundreds of rows of a code in each segment, and reads all of
// coupon_state for those.
const settings = `SET LOCAL synchronous_commit = off; SET LOCAL maintenance_work_mem = '32MB'; SET LOCAL max_parallel_maintenance_workers = 0; SET LOCAL default_statistics_target = 1; `

// In autovacuum a young segment would be read for nothing, and its lock would delay sealing.
const createSQL = settings + `
CREATE TABLE scrip.%[1]s (LIKE scrip.coupon_claim INCLUDING CONSTRAINTS, CONSTRAINT %[1]s_key PRIMARY KEY (campaign, n)) WITH (autovacuum_enabled = off);
ALTER TABLE scrip.coupon_claim ATTACH PARTITION scrip.%[1]s FOR VALUES IN (%[2]d)`

// begin makes a young segment. Attaching locks out no reader and no writer.
func (s *Set) begin(ctx context.Context, number int32) error {
	return s.do(ctx, "beginning a segment", func(tx pgx.Tx) error { return s.create(ctx, tx, number, "NULL") })
}

func (s *Set) create(ctx context.Context, tx pgx.Tx, number int32, mergedAt string) error {
	// First, so that of two processes with the same number one fails here.
	if _, err := tx.Exec(ctx, s.in("INSERT INTO scrip.segment (segment, merged_at) VALUES ($1, "+mergedAt+")"), number); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, s.in(fmt.Sprintf(createSQL, tables.SegmentTable(number), number)))
	return err
}

const indexSQL = settings + `
CREATE INDEX IF NOT EXISTS %[1]s_code ON scrip.%[1]s USING hash (code);
CREATE INDEX IF NOT EXISTS %[1]s_customer ON scrip.%[1]s USING hash (customer_id);
ANALYZE scrip.%[1]s`

// seal makes the indexes of a segment, or has it removed if it is empty. It waits for transactions that write to it.
func (s *Set) seal(ctx context.Context, number int32) error {
	table := tables.SegmentTable(number)
	return s.do(ctx, "sealing "+table, func(tx pgx.Tx) error {
		if !s.opts.KeysOnly {
			if _, err := tx.Exec(ctx, s.in(fmt.Sprintf(indexSQL, table))); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, s.in("UPDATE scrip.segment SET rows = n, merged_at = CASE n WHEN 0 THEN clock_timestamp() END FROM (SELECT count(*) AS n FROM scrip."+table+") x WHERE segment = $1"), number)
		return err
	})
}

// The smallest of a size of which there are enough: below 100,000 rows, or below a million. Larger ones remain.
//
// $1 = mergeOf   $2 = whether there must be crowd of all sizes   $3 = crowd
const pickSQL = `
SELECT (array_agg(segment ORDER BY rows, segment DESC))[:$1] FROM scrip.segment
WHERE rows < 1000000 AND merged_at IS NULL AND segment < 0
    AND (NOT $2 OR (SELECT count(*) FROM scrip.segment WHERE merged_at IS NULL) >= $3) GROUP BY rows < 100000 HAVING count(*) >= $1 ORDER BY min(rows) LIMIT 1`

// Locked, so that of two processes one merges them, and that a repair waits.
const sourcesSQL = `SELECT segment FROM scrip.segment WHERE segment = ANY($1) AND merged_at IS NULL FOR UPDATE`

const copySQL = `
INSERT INTO scrip.%s (` + tables.ClaimColumns + `)
SELECT %s FROM scrip.coupon_claim r WHERE segment = ANY($1) AND NOT ` + leftSQL

// Whether a coupon has left the tables.
const leftSQL = `EXISTS (SELECT FROM scrip.removal m WHERE m.campaign = r.campaign AND m.through >= r.n)`

const halfSQL = `SELECT 2 * count(*) FILTER (WHERE ` + leftSQL + `) >= count(*) FROM scrip.%s r`

// sweep rewrites segments of which half has left the tables, when something has since the last sweep.
func (s *Set) sweep(ctx context.Context, busy bool) error {
	if busy || time.Since(s.swept) < sweepEvery {
		return nil
	}
	var removed int64
	if err := s.db.QueryRow(ctx, s.in("SELECT coalesce(sum(through), 0)::bigint FROM scrip.removal")).Scan(&removed); err != nil {
		return s.explain("looking for coupons that left", err)
	}
	if removed != s.removed {
		sealed, err := schema.Collect(ctx, s.db, pgx.RowTo[int32], s.in("SELECT segment FROM scrip.segment WHERE rows > 0 AND merged_at IS NULL AND segment < 0"))
		for i := 0; err == nil && i < len(sealed); i++ {
			var half bool
			err = s.db.QueryRow(ctx, s.in(fmt.Sprintf(halfSQL, tables.SegmentTable(sealed[i])))).Scan(&half)
			if err == nil && half {
				err = s.merge(ctx, sealed[i:i+1])
			}
		}
		if err != nil {
			return s.explain("looking for coupons that left", err)
		}
	}
	s.swept, s.removed = time.Now(), removed
	return nil
}

// mergeSome merges segments of a size, if there are enough.
func (s *Set) mergeSome(ctx context.Context, busy bool) error {
	found, err := schema.Collect(ctx, s.db, pgx.RowTo[[]int32], s.in(pickSQL), mergeOf, busy, crowd)
	if err != nil {
		return s.explain("looking for segments to merge", err)
	}
	if len(found) == 0 {
		return nil
	}
	return s.merge(ctx, found[0])
}

// merge writes the rows of segments to a new one.
func (s *Set) merge(ctx context.Context, sources []int32) error {
	if err := s.lock(ctx); err != nil {
		return nil
	}
	s.lowest--
	number := s.lowest
	s.unlock()
	table := tables.SegmentTable(number)
	// Apart, because a reader would wait for the lock of a table that was attached but is not committed.
	if err := s.do(ctx, "beginning a merged segment", func(tx pgx.Tx) error { return s.create(ctx, tx, number, "clock_timestamp()") }); err != nil {
		return err
	}
	return s.do(ctx, "merging into "+table, func(tx pgx.Tx) error {
		locked, err := schema.Collect(ctx, tx, pgx.RowTo[int32], s.in(sourcesSQL), sources)
		if err != nil || len(locked) < len(sources) {
			return err // another process merged them
		}
		copied, err := tx.Exec(ctx, s.in(fmt.Sprintf(copySQL, table, strings.Replace(tables.ClaimColumns, "segment", fmt.Sprint(number), 1))), sources)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.in(fmt.Sprintf(indexSQL+"; ALTER TABLE scrip.%[1]s RESET (autovacuum_enabled)", table))); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.in("UPDATE scrip.segment SET merged_at = clock_timestamp() WHERE segment = ANY($1)"), sources); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, s.in("UPDATE scrip.segment SET merged_at = CASE WHEN $2 = 0 THEN clock_timestamp() END, rows = $2 WHERE segment = $1"), number, copied.RowsAffected())
		return err
	})
}

// remove drops the tables of merged segments. What is being read remains for a later call.
func (s *Set) remove(ctx context.Context) error {
	gone, err := schema.Collect(ctx, s.db, pgx.RowTo[int32], s.in("SELECT segment FROM scrip.segment WHERE merged_at < clock_timestamp() - $1::interval"), removeAfter)
	if err != nil {
		return s.explain("looking for merged segments", err)
	}
	for _, number := range gone {
		err := s.do(ctx, "removing a merged segment", func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, s.in(fmt.Sprintf("SET LOCAL lock_timeout = %d; DROP TABLE IF EXISTS scrip.%s", removeWait.Milliseconds(), tables.SegmentTable(number)))); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, s.in("DELETE FROM scrip.segment WHERE segment = $1"), number)
			return err
		})
		if schema.State(err) == "55P03" { // lock_timeout: it is being read
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// do runs a step in a transaction of its own, without the time limits of a role or a database.
func (s *Set) do(ctx context.Context, doing string, step func(pgx.Tx) error) error {
	const begin = "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"
	tx, err := s.db.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
	if err != nil {
		return s.explain(doing, err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // no effect after a commit
	if err := step(tx); err != nil {
		return s.explain(doing, err)
	}
	if s.crash != nil {
		if err := s.crash(doing, tx, false); err != nil {
			return err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return s.explain(doing, err)
	}
	if s.crash != nil {
		return s.crash(doing, tx, true)
	}
	return nil
}
