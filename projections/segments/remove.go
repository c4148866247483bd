package segments

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/tables"
)

// locked is lock_not_available, by lock_timeout as well.
const locked = "55P03"

// finishWait bounds how long a step waits for readers while writers that begin a segment may wait behind it. Shorter in tests.
var finishWait = 200 * time.Millisecond

// mostFinishing is how often the wait for a table that is being detached doubles, at most.
const mostFinishing = 5

// due is a merged segment that no snapshot needs.
type due struct {
	Segment  int32
	Attached bool // it is in the plans of statements
	Detached bool // it is in none of new statements, and a process waited for the others
}

// Segments that were merged before each snapshot that is left: one whose xmin is later sees that they are. Sessions of
// this database are all that can read them, and standbys that say so. Which snapshot a session has is visible to every role;
// autovacuum has no user. A segment that is being detached was due before.
const dueSQL = `
SELECT g.segment, i.inhrelid IS NOT NULL AND NOT i.inhdetachpending, coalesce(i.inhdetachpending, false)
FROM scrip.segment g LEFT JOIN pg_inherits i ON i.inhrelid = to_regclass('scrip.coupon_claim_' || -g.segment)
WHERE g.merged_by IS NOT NULL AND (coalesce(i.inhdetachpending, false) OR NOT EXISTS (
    SELECT 1 FROM pg_stat_activity a WHERE age(a.backend_xmin) >= age(g.merged_by::xid) AND a.pid <> pg_backend_pid() AND a.usesysid IS NOT NULL
        AND (a.datid IS NULL OR a.datid = (SELECT oid FROM pg_database WHERE datname = current_database()))
    UNION ALL SELECT 1 FROM pg_replication_slots r WHERE age(r.xmin) >= age(g.merged_by::xid)))
ORDER BY 3 DESC, g.merged_at, g.segment`

// remove drops merged segments that nobody needs. A table leaves the plans of statements first, without a lock that readers would
// wait for: DETACH waits until the transactions have ended that may have planned with it, however long that takes. PostgreSQL
// does so for one table at a time.
func (s *Set) remove(ctx context.Context) error {
	list, err := schema.Collect(ctx, s.db, pgx.RowToStructByPos[due], s.in(dueSQL))
	if err != nil {
		return s.explain("looking for merged segments", err)
	}
	var conn *pgxpool.Conn
	if slices.ContainsFunc(list, func(d due) bool { return d.Attached }) {
		if conn, err = s.db.Acquire(ctx); err != nil {
			return s.explain("looking for merged segments", err)
		}
		defer conn.Release()
		defer func() { _ = conn.Conn().Close(context.WithoutCancel(ctx)) }() // with its settings, and a late cancellation
		defer s.yielding(ctx, conn.Conn().PgConn().PID())()
	}
	for _, d := range list {
		err := s.removeOne(ctx, conn, d)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !inTheWay(err):
			return err
		case err != nil && (d.Detached || schema.State(err) != locked): // of one at a time, and it may have begun
			return nil
		}
	}
	return nil
}

func (s *Set) removeOne(ctx context.Context, conn *pgxpool.Conn, d due) (err error) {
	switch {
	case d.Detached:
		err = s.finishDetaching(ctx, d.Segment)
	case d.Attached:
		err = s.detach(ctx, conn, d.Segment)
	}
	if err != nil {
		return err
	}
	return s.drop(ctx, d.Segment)
}

// inTheWay reports whether another session is why a step failed: a later look goes on.
func inTheWay(err error) bool {
	return tables.Missing(err) || // another owner removed it
		slices.Contains([]string{
			locked,
			"55000", // object_not_in_prerequisite_state: another owner detaches one
			"40P01", // deadlock_detected
			"57014", // query_canceled, by an administrator
		}, schema.State(err))
}

// detach takes a table out of the plans of statements. That needs no fence: whoever detaches a merged segment, it is merged.
func (s *Set) detach(ctx context.Context, conn *pgxpool.Conn, number int32) error {
	table := tables.SegmentTable(number)
	// DETACH would hold up writers that begin a segment while it waits for a former owner that copies or makes indexes.
	err := s.do(ctx, "looking who uses a merged segment", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.in("LOCK TABLE scrip."+table+" IN SHARE UPDATE EXCLUSIVE MODE NOWAIT"))
		return err
	})
	if err != nil {
		return err
	}
	for _, sql := range []string{ // apart, because DETACH does not run in a transaction
		"SET statement_timeout = 0; SET lock_timeout = 0; SET synchronous_commit = off",
		"ALTER TABLE scrip.coupon_claim DETACH PARTITION scrip." + table + " CONCURRENTLY",
	} {
		if _, err := conn.Exec(ctx, s.in(sql)); err != nil {
			return s.explain("detaching "+table, err)
		}
	}
	return nil
}

// Waiting for a transaction a session has no lock of a table.
//
// $1 = process
const yieldSQL = `SELECT pg_cancel_backend(pid) FROM pg_locks WHERE pid = $1 AND locktype = 'relation' AND NOT granted`

// yielding cancels what a session does if it waits for the lock of a table, until the function that it returns is called. An old
// snapshot may have locked the table in the meantime; DETACH waits for that with a lock that holds up writers.
func (s *Set) yielding(ctx context.Context, pid uint32) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		_ = s.each(ctx, func(ctx context.Context) error {
			_, _ = s.db.Exec(ctx, yieldSQL, int32(pid)) // the next time, if it fails
			return nil
		})
	}()
	return func() { cancel(); <-watched }
}

// finishDetaching goes on where a process ended while it waited. PostgreSQL waits again for the snapshots of all readers, and holds
// up steps that begin a segment or renew the list of tables. It waits for those, too, so this gives up before PostgreSQL looks for a
// deadlock, and waits twice as long the next time, since readers may overlap.
func (s *Set) finishDetaching(ctx context.Context, number int32) error {
	table := tables.SegmentTable(number)
	most, err := schema.Unnoticed(ctx, s.db)
	if err != nil {
		return s.explain("finishing to detach "+table, err)
	}
	wait := min(finishWait<<min(s.unfinished, mostFinishing), most)
	err = s.long(ctx, "finishing to detach "+table, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.in(fmt.Sprintf("SET LOCAL lock_timeout = %d; ALTER TABLE scrip.coupon_claim DETACH PARTITION scrip.%s FINALIZE", wait.Milliseconds(), table)))
		return err
	})
	if s.unfinished++; err == nil {
		s.unfinished = 0
	}
	return err
}

// drop drops a table that is in no plan.
func (s *Set) drop(ctx context.Context, number int32) error {
	return s.do(ctx, "removing a merged segment", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.in(fmt.Sprintf("SET LOCAL lock_timeout = %d; DROP TABLE IF EXISTS scrip.%s", finishWait.Milliseconds(), tables.SegmentTable(number)))); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, s.in("DELETE FROM scrip.segment WHERE segment = $1"), number)
		return err
	})
}
