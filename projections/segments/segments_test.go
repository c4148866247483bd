package segments

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func TestMain(m *testing.M) {
	lookEvery, sweepEvery, finishWait, tables.LeavePiece = 20*time.Millisecond, 0, 50*time.Millisecond, 20
	analyzeEvery, detail = 0, 3
	os.Exit(projtest.Main(m))
}

// rig is a database with a campaign of each of two lanes.
type rig struct {
	t    *testing.T
	url  string
	pool *pgxpool.Pool
	next [2]uint32 // coupon

	fence     sync.RWMutex // what the generation of checkpoints is to batches
	owner     *Set
	begun     [2]atomic.Int64 // coupons of a lane whose batch was begun, and committed
	committed [2]atomic.Int64
}

func newRig(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	r := &rig{t: t, url: projtest.URL(t)}
	r.pool = projtest.Pool(t, r.url+"&pool_max_conns=12") // each step that waits has one
	_, err := schema.Ensure(t.Context(), r.pool, slog.New(slog.DiscardHandler))
	streamtest.Must(t, err)
	for lane := range r.next {
		var line tables.Line
		line.Read(1, 1, []byte(strings.ReplaceAll(projtest.Created(fmt.Sprint("c", lane), lane+1, ""), "@", "2026-01-01T00:00:00Z")), 0)
		streamtest.Must(t, line.Problem)
		streamtest.Must(t, r.apply(lane, 0, []tables.Line{line}))
	}
	return r
}

func (r *rig) apply(lane int, segment int32, lines []tables.Line) error {
	tx, err := tables.Begin(r.t.Context(), r.pool)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.Background()) //nolint:errcheck
	if _, err := tables.Apply(r.t.Context(), tx, &tables.Batch{Schema: "scrip_1", Lane: lane, Segment: segment, Lines: lines}); err != nil {
		return err
	}
	return tx.Commit(r.t.Context())
}

// claim writes claims of a lane through a set. Each lane is used by one goroutine.
func (r *rig) claim(s *Set, lane, many int) {
	r.t.Helper()
	streamtest.Must(r.t, r.tryClaim(r.t.Context(), s, lane, many))
}

// tryClaim returns the error of Take, and ErrFenced if another set was opened.
func (r *rig) tryClaim(ctx context.Context, s *Set, lane, many int) error {
	r.t.Helper()
	segment, done, err := s.Take(ctx, many)
	if err != nil {
		return err
	}
	defer done()
	r.fence.RLock()
	defer r.fence.RUnlock()
	if r.owner != s {
		return ErrFenced
	}
	lines := make([]tables.Line, many)
	for i := range lines {
		r.next[lane]++
		lines[i].Sequence, lines[i].Number = uint64(r.next[lane]), 1
		lines[i].Event = *projtest.Claimed(fmt.Sprint("c", lane), r.next[lane], wire.Instant(1_767_225_600_000_000+int64(r.next[lane])))
	}
	r.begun[lane].Add(int64(many))
	streamtest.Must(r.t, r.apply(lane, segment, lines))
	r.committed[lane].Add(int64(many))
	return nil
}

// open opens a set; no batch of another one is committed any more.
func (r *rig) open(opts Options) *Set {
	r.t.Helper()
	s, err := r.tryOpen(opts)
	streamtest.Must(r.t, err)
	return s
}

func (r *rig) tryOpen(opts Options) (*Set, error) {
	r.fence.Lock()
	r.owner = nil
	r.fence.Unlock()
	s, err := Open(r.t.Context(), r.pool, "scrip_1", opts)
	r.fence.Lock()
	defer r.fence.Unlock()
	r.owner = s
	return s, err
}

// read counts the coupons of both lanes in one statement, and checks that each that was committed before is there once.
func (r *rig) read(ctx context.Context, db schema.Querier) error {
	var least [2]int64
	for lane := range least {
		least[lane] = r.committed[lane].Load()
	}
	var rows, coupons [2]int64
	err := db.QueryRow(ctx, `SELECT count(*) FILTER (WHERE campaign = 'c0'), count(*) FILTER (WHERE campaign = 'c1'),
		count(DISTINCT n) FILTER (WHERE campaign = 'c0'), count(DISTINCT n) FILTER (WHERE campaign = 'c1') FROM scrip.coupon`).
		Scan(&rows[0], &rows[1], &coupons[0], &coupons[1])
	for lane := 0; err == nil && lane < len(least); lane++ {
		if rows[lane] < least[lane] || rows[lane] > r.begun[lane].Load() || rows[lane] != coupons[lane] {
			err = fmt.Errorf("lane %d: %d rows of %d coupons; %d were committed", lane, rows[lane], coupons[lane], least[lane])
		}
	}
	return err
}

// run runs a set until the function it returns is called, or the end of the test.
func (r *rig) run(s *Set) (stop func()) { return streamtest.Background(r.t, s.Run) }

func (r *rig) text(sql string) (text string) {
	r.t.Helper()
	streamtest.Must(r.t, r.pool.QueryRow(r.t.Context(), sql).Scan(&text))
	return text
}

// whole checks that each coupon is there once, by code and by customer.
func (r *rig) whole() {
	r.t.Helper()
	for lane, n := range r.next {
		got := r.text(fmt.Sprintf("SELECT concat_ws(' ', count(*), count(DISTINCT n), coalesce(max(n), 0)) FROM scrip.coupon WHERE campaign = 'c%d'", lane))
		streamtest.Equal(r.t, fmt.Sprintf("coupons of lane %d", lane), got, fmt.Sprintf("%d %[1]d %[1]d", n))
	}
	e := projtest.Claimed("c0", r.next[0]/2, 1)
	streamtest.Equal(r.t, "by code", r.text("SELECT count(*)::text FROM scrip.coupon WHERE campaign = 'c0' AND code = '"+e.Code+"'"), "1")
	streamtest.Equal(r.t, "by customer", r.text("SELECT count(*)::text FROM scrip.coupon WHERE campaign = 'c0' AND customer_id = '"+e.CustomerID+"'"), "1")
}

// until waits until a query returns a text.
func (r *rig) until(what, sql, want string) {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		got := r.text(sql)
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: %s, want %s", what, got, want)
		}
	}
}

const (
	live      = "SELECT count(*)::text FROM scrip_1.segment WHERE merged_at IS NULL"
	tablesSQL = "SELECT count(*)::text FROM pg_class WHERE relname ~ '^coupon_claim_[0-9]+$' AND relkind = 'r'"
	// Merged segments and copies are none, so nothing but tables of coupons is there.
	allDropped = "SELECT ((" + tablesSQL + ") = (" + live + "))::text"
	unindexed  = `SELECT coalesce(sum(n), 0)::text FROM (SELECT (SELECT count(*) FROM pg_index x WHERE x.indrelid = to_regclass('scrip_1.coupon_claim_' || -g.segment)) AS indexes,
		(xpath('/row/n/text()', query_to_xml('SELECT count(*) AS n FROM scrip_1.coupon_claim_' || -g.segment, true, true, '')))[1]::text::int AS n
		FROM scrip_1.segment g WHERE merged_at IS NULL) x WHERE indexes < 3`
)

// Claims of two lanes at once fill segments, which are sealed, merged and removed meanwhile. Rows without an index are few
// at any time, however many lanes write. A reader that never stops finds each coupon that was committed, once.
func TestSealMergeRemove(t *testing.T) {
	r := newRig(t)
	s := r.open(Options{Rows: 200})
	r.run(s)
	reads, readers := 0, projtest.Pool(t, r.url)
	stopReading := streamtest.Background(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			if err := r.read(ctx, readers); err != nil && ctx.Err() == nil {
				return err
			}
			reads++
		}
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	most, watched := 0, make(chan struct{})
	go func() {
		defer close(watched)
		for ctx.Err() == nil {
			var n int
			if err := r.pool.QueryRow(ctx, "SELECT ("+unindexed+")::int").Scan(&n); err == nil {
				most = max(most, n)
			}
		}
	}()
	var wg sync.WaitGroup
	for lane := range r.next {
		wg.Go(func() {
			for range 60 {
				r.claim(s, lane, 50)
			}
		})
	}
	wg.Wait()
	stop()
	<-watched
	r.whole()
	if most > 4*200 {
		t.Errorf("%d rows had no index", most)
	}
	streamtest.Must(t, s.Finish(t.Context()))
	streamtest.Equal(t, "rows without an index", r.text(unindexed), "0")
	r.whole()
	s.calm()
	r.until("live segments, one for each seven or fewer of a size, and segment 0", "SELECT (("+live+")::int <= 8)::text", "true")
	r.until("tables", allDropped, "true")
	r.whole()
	if stopReading(); reads < 10 {
		t.Errorf("%d reads", reads)
	}
	// Redemptions find their coupons in merged segments.
	var line tables.Line
	line.Read(9000, 1, []byte(`{"type":"coupon.redeemed","campaign":"c1","at":"2026-01-01T01:00:00Z","n":7,"code":"x","order_id":"o","redeemed_count":1}`), 0)
	streamtest.Must(t, r.apply(1, 0, []tables.Line{line}))
	streamtest.Equal(t, "its state", r.text("SELECT status || ' ' || customer_id FROM scrip.coupon WHERE campaign = 'c1' AND n = 7"), "redeemed customer-7")
}

// calm makes the set believe that no segment was filled for a while.
func (s *Set) calm() {
	s.turn <- struct{}{}
	s.rotated = time.Time{}
	s.unlock()
}

// sealed returns a set at rest that has sealed segments of 90 coupons each.
func (r *rig) sealed(many int) *Set {
	r.t.Helper()
	s := r.open(Options{Rows: 100})
	stop := r.run(s) // busy, so that nothing is merged
	for range many {
		r.claim(s, 0, 90)
	}
	streamtest.Must(r.t, s.Finish(r.t.Context()))
	stop()
	return s
}

// Writers wait while segments cannot be sealed, and go on when they are.
func TestWaitingIsBounded(t *testing.T) {
	r := newRig(t)
	s := r.open(Options{Rows: 100})
	for range 2 {
		r.claim(s, 0, 90) // young, and one waits
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := s.Take(ctx, 90); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a third segment: %v", err)
	}
	r.run(s)
	r.claim(s, 0, 90)
	streamtest.Must(t, s.Finish(t.Context()))
	r.whole()
}

// Coupons that leave the tables are hidden at once. Segments that had them are dropped, or rewritten if they are half of it.
func TestCouponsThatLeave(t *testing.T) {
	r := newRig(t)
	s := r.open(Options{Rows: 100})
	r.run(s)
	for range 3 {
		r.claim(s, 0, 100)
	}
	r.claim(s, 0, 40)
	r.claim(s, 1, 60) // stays as it is
	r.claim(s, 0, 60)
	r.claim(s, 1, 40)
	streamtest.Must(t, s.Finish(t.Context()))
	_, err := r.pool.Exec(t.Context(), "INSERT INTO scrip_1.removal (campaign, through, redeemed, expired) VALUES ('c0', 390, 0, 0)")
	streamtest.Must(t, err)
	const left = "SELECT concat_ws(' ', count(*) FILTER (WHERE campaign = 'c0'), min(n) FILTER (WHERE campaign = 'c0'), count(*) FILTER (WHERE campaign = 'c1')) FROM scrip.coupon"
	streamtest.Equal(t, "coupons", r.text(left), "10 391 100")
	s.calm()
	r.until("rewritten", "SELECT string_agg(rows::text, ' ' ORDER BY rows) FROM scrip_1.segment WHERE segment < 0", "50 100")
	streamtest.Equal(t, "rows", r.text("SELECT count(*)::text FROM scrip_1.coupon_claim"), "150")
	streamtest.Equal(t, "coupons", r.text(left), "10 391 100")
}
