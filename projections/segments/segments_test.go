package segments

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func TestMain(m *testing.M) {
	removeAfter, lookEvery, sweepEvery = 0, 20*time.Millisecond, 0
	os.Exit(projtest.Main(m))
}

// rig is a database with a campaign of each of two lanes.
type rig struct {
	t    *testing.T
	pool *pgxpool.Pool
	next [2]uint32 // coupon
}

func newRig(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	r := &rig{t: t, pool: projtest.Pool(t, projtest.URL(t))}
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

// tryClaim returns the error of Take.
func (r *rig) tryClaim(ctx context.Context, s *Set, lane, many int) error {
	r.t.Helper()
	segment, done, err := s.Take(ctx, many)
	if err != nil {
		return err
	}
	defer done()
	lines := make([]tables.Line, many)
	for i := range lines {
		r.next[lane]++
		lines[i].Sequence, lines[i].Number = uint64(r.next[lane]), 1
		lines[i].Event = *projtest.Claimed(fmt.Sprint("c", lane), r.next[lane], wire.Instant(1_767_225_600_000_000+int64(r.next[lane])))
	}
	streamtest.Must(r.t, r.apply(lane, segment, lines))
	return nil
}

func (r *rig) open(opts Options) *Set {
	r.t.Helper()
	s, err := Open(r.t.Context(), r.pool, "scrip_1", opts)
	streamtest.Must(r.t, err)
	return s
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
	unindexed = `SELECT coalesce(sum(n), 0)::text FROM (SELECT (SELECT count(*) FROM pg_index x WHERE x.indrelid = to_regclass('scrip_1.coupon_claim_' || -g.segment)) AS indexes,
		(xpath('/row/n/text()', query_to_xml('SELECT count(*) AS n FROM scrip_1.coupon_claim_' || -g.segment, true, true, '')))[1]::text::int AS n
		FROM scrip_1.segment g WHERE merged_at IS NULL) x WHERE indexes < 3`
)

// Claims of two lanes at once fill segments, which are sealed, merged and removed meanwhile. Rows without an index are few
// at any time, however many lanes write.
func TestSealMergeRemove(t *testing.T) {
	r := newRig(t)
	s := r.open(Options{Rows: 200})
	r.run(s)
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
	r.until("tables", "SELECT (("+tablesSQL+") = ("+live+"))::text", "true")
	r.whole()
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

const atWork = "SELECT count(*)::text FROM pg_stat_activity " +
	"WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()"

// Whatever a run leaves behind when it dies, the next one goes on with: a young segment, full ones, a merged one that is not
// complete; and what was merged and not removed.
func TestCrashes(t *testing.T) {
	r := newRig(t)
	s := r.open(Options{Rows: 100, Waiting: 9})
	for range 8 { // nothing is sealed
		r.claim(s, 0, 60)
		r.claim(s, 1, 40)
	}
	streamtest.Equal(t, "rows without an index", r.text(unindexed), "800")
	s = r.open(Options{Rows: 100})
	stop := r.run(s)
	r.claim(s, 0, 20)
	streamtest.Must(t, s.Finish(t.Context()))
	streamtest.Equal(t, "rows without an index", r.text(unindexed), "0")
	stop()
	r.whole()

	// The connection dies in the middle of each step, or the process after it.
	for _, doing := range []string{"beginning a segment", "sealing", "beginning a merged segment", "merging into", "removing"} {
		for _, after := range []bool{false, true} {
			s := r.open(Options{Rows: 100})
			crashed := errors.New("crashed")
			s.crash = func(step string, tx pgx.Tx, committed bool) error {
				if !strings.HasPrefix(step, doing) || committed != after {
					return nil
				}
				if after {
					return crashed
				}
				_, err := r.pool.Exec(t.Context(), "SELECT pg_terminate_backend($1)", tx.Conn().PgConn().PID())
				return err
			}
			ended := make(chan error, 1)
			ctx, stop := context.WithCancel(t.Context())
			go func() { ended <- s.Run(ctx) }()
			err := r.claims(ctx, s, ended)
			stop()
			r.until("sessions at work", atWork, "0") // a commit that is given up may still be made
			if after != errors.Is(err, crashed) || err == nil {
				t.Errorf("%s, after it %t: %v", doing, after, err)
			}
			r.whole()
		}
	}
	s = r.open(Options{Rows: 100})
	r.run(s)
	streamtest.Must(t, s.Finish(t.Context()))
	s.calm()
	r.until("tables", "SELECT (("+tablesSQL+") = ("+live+"))::text", "true")
	r.whole()
}

// claims writes claims until a step fails: one of Run's, or one of Take's.
func (r *rig) claims(ctx context.Context, s *Set, ended <-chan error) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	for i := 0; ; i++ {
		select {
		case err := <-ended:
			return err
		default:
		}
		if i >= 12 { // enough to merge
			s.calm()
			time.Sleep(time.Millisecond)
			continue
		}
		taking, enough := context.WithTimeout(ctx, time.Second) // Run may have ended
		err := r.tryClaim(taking, s, i%2, 90)
		enough()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

// A reader that does not end, such as pg_dump, keeps what it sees, and delays nothing but that its tables are removed.
func TestReaderThatDoesNotEnd(t *testing.T) {
	r := newRig(t)
	s := r.open(Options{Rows: 100})
	r.run(s)
	for range 9 {
		r.claim(s, 0, 90)
	}
	streamtest.Must(t, s.Finish(t.Context()))
	dump, err := r.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	streamtest.Must(t, err)
	defer dump.Rollback(context.Background()) //nolint:errcheck
	seen := func() (n int) {
		t.Helper()
		streamtest.Must(t, dump.QueryRow(t.Context(), "SELECT count(*) FROM scrip.coupon WHERE campaign = 'c0'").Scan(&n))
		return n
	}
	streamtest.Equal(t, "the reader sees", seen(), 810)
	s.calm()
	r.until("merged", "SELECT (count(*) > 0)::text FROM scrip_1.segment WHERE merged_at IS NOT NULL", "true")
	for range 9 {
		r.claim(s, 0, 90)
	}
	r.whole()
	streamtest.Equal(t, "the reader sees", seen(), 810)
	r.until("the tables that it reads", "SELECT (("+tablesSQL+")::int > ("+live+")::int)::text", "true")
	streamtest.Must(t, dump.Rollback(t.Context()))
	r.until("when it has ended, tables", "SELECT (("+tablesSQL+") = ("+live+"))::text", "true")
	r.whole()
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
	r.until("rewritten", "SELECT string_agg(rows::text, ' ' ORDER BY rows) FROM scrip_1.segment WHERE segment < 0", "50 100")
	streamtest.Equal(t, "rows", r.text("SELECT count(*)::text FROM scrip_1.coupon_claim"), "150")
	streamtest.Equal(t, "coupons", r.text(left), "10 391 100")
}
