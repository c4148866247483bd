package segments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/tables"
)

// mergeOf segments of a size are merged while claims do not fill one in quietFor, or when there are twice as many tables as a crowd.
const mergeOf = 8

// sweepEvery is how often a sweep looks for coupons that left the tables. Shorter in tests.
var sweepEvery = time.Minute

// copied is a segment with the rows of others that readers do not see yet.
type copied struct {
	number  int32
	sources []int32
	rows    int64
	readers []string // transactions whose statements may be planned without it
	renewed bool     // see renewSQL
}

// The smallest of a size of which there are enough: below 100,000 rows, or below a million. Larger ones remain.
//
// $1 = mergeOf
const pickSQL = `
SELECT (array_agg(segment ORDER BY rows, segment DESC))[:$1] FROM scrip.segment
WHERE rows < 1000000 AND merged_at IS NULL AND segment < 0 GROUP BY rows < 100000 HAVING count(*) >= $1 ORDER BY min(rows) LIMIT 1`

// mergeSome merges segments of a size, if there are enough.
func (s *Set) mergeSome(ctx context.Context) error {
	found, err := schema.Collect(ctx, s.db, pgx.RowTo[[]int32], s.in(pickSQL), mergeOf)
	if err != nil {
		return s.explain("looking for segments to merge", err)
	}
	if len(found) == 0 {
		return nil
	}
	return s.merge(ctx, found[0])
}

// Transactions that have locked the coupons. A statement locks them before it is planned, and until its transaction ends. Locks
// are visible to every role.
const readersSQL = `
SELECT DISTINCT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND relation = 'scrip.coupon_claim'::regclass
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid IS DISTINCT FROM pg_backend_pid()`

// Locked, so that a repair does not change what is being copied, see Replace. The lock does not conflict with marks.
//
// $1 = sources
const sourcesSQL = `SELECT segment FROM scrip.segment WHERE segment = ANY($1) AND merged_at IS NULL FOR KEY SHARE`

const copySQL = `
INSERT INTO scrip.%s (` + tables.ClaimColumns + `)
SELECT %s FROM scrip.coupon_claim r WHERE segment = ANY($1) AND NOT ` + leftSQL

// Whether a coupon has left the tables.
const leftSQL = `EXISTS (SELECT FROM scrip.removal m WHERE m.campaign = r.campaign AND m.through >= r.n)`

// merge copies the rows of segments to another one, which takes their place now or at a later look.
func (s *Set) merge(ctx context.Context, sources []int32) error {
	c := &copied{sources: sources}
	s.sweeps = slices.DeleteFunc(s.sweeps, func(number int32) bool { return slices.Contains(sources, number) })
	// Apart, because a reader would wait for the lock of a table that was attached but is not committed.
	err := s.do(ctx, "beginning a merged segment", func(tx pgx.Tx) (err error) {
		if c.number, err = s.create(ctx, tx, "clock_timestamp()"); err == nil {
			_, err = tx.Exec(ctx, s.in("UPDATE scrip.segment SET sources = $2 WHERE segment = $1"), c.number, sources)
		}
		return err
	})
	if err != nil {
		return err
	}
	if c.readers, err = s.readers(ctx); err != nil {
		return err
	}
	table := tables.SegmentTable(c.number)
	err = s.long(ctx, "copying into "+table, func(tx pgx.Tx) error {
		locked, err := schema.Collect(ctx, tx, pgx.RowTo[int32], s.in(sourcesSQL), sources)
		switch {
		case err != nil:
			return err
		case len(locked) < len(sources):
			return ErrFenced // only another owner can have merged them
		}
		if _, err := tx.Exec(ctx, s.in(fmt.Sprintf(lockSQL, table))); err != nil { // see detach of another owner
			return err
		}
		tag, err := tx.Exec(ctx, s.in(fmt.Sprintf(copySQL, table, strings.Replace(tables.ClaimColumns, "segment", fmt.Sprint(c.number), 1))), sources)
		if err != nil {
			return err
		}
		c.rows = tag.RowsAffected()
		_, err = tx.Exec(ctx, s.in(fmt.Sprintf(indexSQL+"; ALTER TABLE scrip.%[1]s RESET (autovacuum_enabled)", table)))
		return err
	})
	if tables.Missing(err) && s.givenUp(ctx, c.number) {
		return nil
	}
	if err != nil {
		return err
	}
	s.copied = c
	return s.swap(ctx)
}

const (
	// $1 = sources
	hideSQL = `
UPDATE scrip.segment SET merged_at = clock_timestamp(), merged_by = pg_current_xact_id() WHERE segment = ANY($1) AND merged_at IS NULL`

	// A copy without rows stays hidden, and is removed.
	//
	// $1 = copy   $2 = its rows
	showSQL = `
UPDATE scrip.segment SET rows = $2::bigint, merged_at = CASE $2::bigint WHEN 0 THEN clock_timestamp() END, merged_by = CASE $2::bigint WHEN 0 THEN pg_current_xact_id() END
WHERE segment = $1 AND merged_at IS NOT NULL AND merged_by IS NULL`

	// A copy that another owner made, or began; or one that may have what a repair replaces.
	discardSQL = `UPDATE scrip.segment SET merged_by = pg_current_xact_id() WHERE merged_at IS NOT NULL AND merged_by IS NULL`
)

// A session that lists the tables while one is attached may keep that list without it, in later transactions too, until PostgreSQL
// has it forget what it knows of the parent. This does so, and changes nothing. It is sent when all have ended that may list them
// as they were before; what they listed is used until those end that had locked the coupons by then.
const renewSQL = `ALTER TABLE ONLY scrip.coupon_claim ALTER COLUMN claimed_place SET STATISTICS -1`

// renew has all sessions list the tables again, and returns the transactions that may not have done so yet.
func (s *Set) renew(ctx context.Context) (readers []string, err error) {
	err = s.do(ctx, "renewing the list of tables", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.in(renewSQL))
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.readers(ctx)
}

// readers returns the transactions that have locked the coupons.
func (s *Set) readers(ctx context.Context) ([]string, error) {
	list, err := schema.Collect(ctx, s.db, pgx.RowTo[string], s.in(readersSQL))
	if err != nil {
		return nil, s.explain("looking for readers", err)
	}
	return list, nil
}

// remaining returns those of some readers that have not ended.
func (s *Set) remaining(ctx context.Context, of []string) ([]string, error) {
	if len(of) == 0 {
		return nil, nil
	}
	now, err := s.readers(ctx)
	return slices.DeleteFunc(of, func(r string) bool { return err == nil && !slices.Contains(now, r) }), err
}

// renewYoung has sessions list the tables again after a segment was begun: at once, and when one has ended that may have listed them
// without it meanwhile. A transaction that lasts delays no other one.
func (s *Set) renewYoung(ctx context.Context, begun bool) (err error) {
	before := len(s.behind)
	if begun {
		s.behind, err = s.readers(ctx)
		s.renews = true
	} else {
		s.behind, err = s.remaining(ctx, s.behind)
	}
	if err != nil || !s.renews || !begun && len(s.behind) == before {
		return err
	}
	s.renews = len(s.behind) > 0
	if _, err = s.renew(ctx); err == nil && !s.renews {
		s.mu.Lock()
		s.fresh, s.listed = s.fresh[s.listed:], 0
		s.mu.Unlock()
	}
	return err
}

// swap hides the sources of the copy and shows the copy, in one transaction, once no statement can be planned without it.
func (s *Set) swap(ctx context.Context) error {
	c := s.copied
	if c == nil {
		return nil
	}
	var err error
	if c.readers, err = s.remaining(ctx, c.readers); err != nil || len(c.readers) > 0 {
		return err
	}
	if !c.renewed {
		if c.readers, err = s.renew(ctx); err != nil {
			return err
		}
		if c.renewed = true; len(c.readers) > 0 {
			return nil
		}
	}
	// Whether a commit without an answer took effect is not known. If it did not, the copy stays hidden until the next Open.
	s.copied = nil
	err = s.do(ctx, "merging into "+tables.SegmentTable(c.number), func(tx pgx.Tx) error {
		hidden, err := tx.Exec(ctx, s.in(hideSQL), c.sources)
		if err != nil {
			return err
		}
		shown, err := tx.Exec(ctx, s.in(showSQL), c.number, c.rows)
		switch {
		case err != nil:
			return err
		case hidden.RowsAffected() != int64(len(c.sources)):
			return ErrFenced
		case shown.RowsAffected() != 1:
			return errGivenUp
		}
		return nil
	})
	if errors.Is(err, errGivenUp) {
		return nil // its sources are merged again
	}
	return err
}

// errGivenUp: under the fence only Replace has given up a copy.
var errGivenUp = errors.New("the copy was given up by a repair")

// givenUp reports whether that is why the table of a copy is missing.
func (s *Set) givenUp(ctx context.Context, number int32) bool {
	var waits bool
	err := s.db.QueryRow(ctx, s.in("SELECT EXISTS (SELECT FROM scrip.segment WHERE segment = $1 AND merged_by IS NULL)"), number).Scan(&waits)
	return err == nil && !waits && !s.replaced(ctx)
}

const halfSQL = `SELECT 2 * count(*) FILTER (WHERE ` + leftSQL + `) >= count(*) FROM scrip.%s r`

// sweep rewrites segments of which half has left the tables, when something has since the last sweep. It goes on at later looks
// while a copy waits for readers.
func (s *Set) sweep(ctx context.Context) error {
	if len(s.sweeps) == 0 && time.Since(s.swept) >= sweepEvery {
		var removed int64
		err := s.db.QueryRow(ctx, s.in("SELECT coalesce(sum(through), 0)::bigint FROM scrip.removal")).Scan(&removed)
		if err == nil && removed != s.removed {
			s.sweeps, err = schema.Collect(ctx, s.db, pgx.RowTo[int32], s.in("SELECT segment FROM scrip.segment WHERE rows > 0 AND merged_at IS NULL AND segment < 0"))
		}
		if err != nil {
			return s.explain("looking for coupons that left", err)
		}
		s.swept, s.removed = time.Now(), removed
	}
	for len(s.sweeps) > 0 && s.copied == nil {
		number := s.sweeps[0]
		s.sweeps = s.sweeps[1:]
		var half bool
		if err := s.db.QueryRow(ctx, s.in(fmt.Sprintf(halfSQL, tables.SegmentTable(number)))).Scan(&half); err != nil {
			return s.explain("looking for coupons that left", err)
		}
		if half {
			if err := s.merge(ctx, []int32{number}); err != nil {
				return err
			}
		}
	}
	return nil
}
