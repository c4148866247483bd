package segments

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/tables"
)

// The row of segment 0 names the owner. It is a time, so that PostgreSQL's machine may lose a commit of it; the order of owners
// does not depend on clocks.
const ownSQL = `
UPDATE scrip.segment SET owner = greatest(owner + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
WHERE segment = 0 RETURNING owner`

// The fence: there is no row if another process is the owner. Open, and other short steps, wait for the transaction that has it.
//
// $1 = owner
const fenceSQL = `SELECT FROM scrip.segment WHERE segment = 0 AND owner = $1 FOR NO KEY UPDATE`

// beginSQL opens the transaction of a step, without the time limits of a role or a database; a process that is stopped in it has
// a limit. A commit that is lost with PostgreSQL's machine is made again. PostgreSQL sorts for a hash index that it expects
// to exceed the memory; unsorted, each row of a large one goes to a random page. Statistics of some hundred rows tell the planner
// that texts differ; without them it expects hundreds of rows of a code in each segment, and reads all of coupon_state for
// those.
const beginSQL = `BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = '` + schema.MostIdle + `'; ` +
	`SET LOCAL synchronous_commit = off; SET LOCAL maintenance_work_mem = '32MB'; SET LOCAL max_parallel_maintenance_workers = 0; ` +
	`SET LOCAL default_statistics_target = 1`

// do runs a short step in a transaction of its own, under the fence.
func (s *Set) do(ctx context.Context, doing string, step func(pgx.Tx) error) error {
	return s.long(ctx, doing, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, s.in(fenceSQL), s.owner)
		switch {
		case err != nil:
			return err
		case tag.RowsAffected() != 1:
			return ErrFenced
		}
		return step(tx)
	})
}

// long runs a step in a transaction of its own, which Open of another process does not wait for. What it changes is nothing to the
// set of that process.
func (s *Set) long(ctx context.Context, doing string, step func(pgx.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginSQL})
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

// replaced reports whether another process is the owner.
func (s *Set) replaced(ctx context.Context) bool {
	var owner int64
	err := s.db.QueryRow(ctx, s.in("SELECT owner FROM scrip.segment WHERE segment = 0")).Scan(&owner)
	return err == nil && owner != s.owner
}

// begin makes a young segment. Attaching locks out no reader and no writer.
func (s *Set) begin(ctx context.Context) (number int32, err error) {
	err = s.do(ctx, "beginning a segment", func(tx pgx.Tx) (err error) {
		number, err = s.create(ctx, tx, "NULL")
		return err
	})
	return number, err
}

const (
	numberSQL = `UPDATE scrip.segment SET lowest = lowest - 1 WHERE segment = 0 RETURNING lowest`

	// In autovacuum a young segment would be read for nothing, and its lock would delay sealing.
	createSQL = `
CREATE TABLE scrip.%[1]s (LIKE scrip.coupon_claim INCLUDING CONSTRAINTS, CONSTRAINT %[1]s_key PRIMARY KEY (campaign, n)) WITH (autovacuum_enabled = off);
ALTER TABLE scrip.coupon_claim ATTACH PARTITION scrip.%[1]s FOR VALUES IN (%[2]d);
INSERT INTO scrip.segment (segment, merged_at) VALUES (%[2]d, %[3]s)`
)

// create makes the table of a segment under the fence, with the next number.
func (s *Set) create(ctx context.Context, tx pgx.Tx, mergedAt string) (number int32, err error) {
	if err := tx.QueryRow(ctx, s.in(numberSQL)).Scan(&number); err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, s.in(fmt.Sprintf(createSQL, tables.SegmentTable(number), number, mergedAt)))
	return number, err
}

const (
	// The lock waits for transactions that write to it, and lets one process at a time make indexes; the next one finds them.
	lockSQL = `LOCK TABLE scrip.%[1]s IN SHARE ROW EXCLUSIVE MODE; `

	indexSQL = `
CREATE INDEX IF NOT EXISTS %[1]s_code ON scrip.%[1]s USING hash (code);
CREATE INDEX IF NOT EXISTS %[1]s_customer ON scrip.%[1]s USING hash (customer_id);
ANALYZE scrip.%[1]s`

	// What is sealed or merged already stays so.
	//
	// $1 = segment   $2 = its rows
	sealSQL = `
UPDATE scrip.segment SET rows = $2::bigint, merged_at = CASE $2::bigint WHEN 0 THEN clock_timestamp() END,
    merged_by = CASE $2::bigint WHEN 0 THEN pg_current_xact_id() END
WHERE segment = $1 AND rows IS NULL AND merged_at IS NULL`
)

// seal makes the indexes of a segment, and has it removed if it is empty.
func (s *Set) seal(ctx context.Context, number int32) error {
	table := tables.SegmentTable(number)
	sql := lockSQL + indexSQL
	if s.opts.KeysOnly {
		sql = lockSQL
	}
	var rows int64
	err := s.long(ctx, "indexing "+table, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.in(fmt.Sprintf(sql, table))); err != nil {
			return err
		}
		return tx.QueryRow(ctx, s.in("SELECT count(*) FROM scrip."+table)).Scan(&rows)
	})
	if err != nil {
		return err
	}
	return s.do(ctx, "sealing "+table, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.in(sealSQL), number, rows)
		return err
	})
}
