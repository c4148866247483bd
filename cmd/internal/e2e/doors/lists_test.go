package doors

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

var (
	listsFor     = flag.Duration("lists.for", 0, "how long TestClaimsBesideLists fills the tables and measures; 0 = not at all")
	listsCoupons = flag.Int("lists.coupons", 1_600_000, "how many coupons the campaign has in TestClaimsBesideLists")
	listsSeed    = flag.Uint64("lists.seed", 0, "the first code that is looked for in TestClaimsBesideLists")
	listsCallers = flag.Int("lists.callers", 40, "how many callers of lists there are in TestClaimsBesideLists")
)

const (
	// slowerMost is how many times as long as calm ones claims may take beside lists, at the 99th percentile.
	slowerMost = 3
	// rowMost is when a row is in the tables, after the answer to its claim, and rowPoll how often they are looked at.
	rowMost, rowPoll = time.Second, 10 * time.Millisecond
	// batchOf claims are sent at once, each batchPause.
	batchOf, batchPause = 100, 50 * time.Millisecond
	// listKeys is how many keys callers have: more than have turns at once, as many requests as their rates allow.
	listKeys = 4
)

// TestClaimsBesideLists claims one at a time and in batches, in turns with and without callers of lists by the last four symbols.
func TestClaimsBesideLists(t *testing.T) {
	if *listsFor == 0 {
		t.Skip("it takes minutes: make soak PARTS=lists")
	}
	if !contain(t) {
		t.Logf("%s is on and no control group can be made: PostgreSQL has the same right to the CPU as claims", autogroups)
	}
	s := start(t)
	s.Lists, s.Seed = *listsCallers, *listsSeed
	for n := range listKeys {
		var made struct{ Secret string }
		s.ask(t, "POST", "/v1/keys", fmt.Sprintf(`{"name":"shop%d","role":"producer"}`, n), &made)
		s.Keys = append(s.Keys, made.Secret)
	}
	c := s.shop(t)
	began := time.Now()
	c.fill(*listsCoupons)
	t.Logf("%d coupons in %s", *listsCoupons, time.Since(began).Round(time.Second))
	c.begin()
	left := *listsFor - time.Since(began)
	pairs := max(1, int(left/(8*turnLeast)))
	length := max(turnLeast, left/time.Duration(2*pairs+1)-settles)
	calm, beside := c.during(length), taken{}
	for range pairs {
		stop := s.attack(t)
		beside.add(c.during(length))
		stop()
		calm.add(c.during(length))
	}
	c.end()
	for what, of := range map[string][2][]time.Duration{"one at a time": {calm.alone, beside.alone}, "in batches": {calm.batches, beside.batches}} {
		before, now := percentile(of[0], 99), percentile(of[1], 99)
		t.Logf("claims %s: %d calm ones take %s, %d beside lists %s, at the 99th percentile", what, len(of[0]), before, len(of[1]), now)
		if now > slowerMost*before || len(of[1]) == 0 {
			t.Errorf("claims %s take %s beside lists, calm ones %s", what, now, before)
		}
	}
	longest := percentile(beside.rows, 100)
	t.Logf("rows are in the tables after %s calm, %s beside lists, %s at the latest", percentile(calm.rows, 50), percentile(beside.rows, 50), longest)
	if longest > rowMost || len(beside.rows) == 0 {
		t.Errorf("of %d claims a row was in the tables after %s", len(beside.rows), longest)
	}
	t.Logf("soak: %d claims", len(calm.alone)+len(beside.alone)+len(calm.batches)+len(beside.batches))
}

// percentile is a percentile, 0 of none.
func percentile(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[(len(all)-1)*percent/100].Round(10 * time.Microsecond)
}

// taken is how long claims took, and how long after their answers rows were in the tables.
type taken struct{ alone, batches, rows []time.Duration }

func (a *taken) add(b taken) {
	a.alone, a.batches, a.rows = append(a.alone, b.alone...), append(a.batches, b.batches...), append(a.rows, b.rows...)
}

// shop claims from the campaign.
type shop struct {
	*testing.T
	campaign string
	sdk      *client.Client
	db       *pgx.Conn
	n        atomic.Int64 // customers
	stop     context.CancelFunc
	all      sync.WaitGroup

	mu    sync.Mutex
	taken taken
}

func (r *running) shop(t *testing.T) *shop {
	t.Helper()
	sdk, err := client.Connect(r.server.Desc.NATSURL, nats.RootCAs(r.CA))
	streamtest.Must(t, err)
	t.Cleanup(sdk.Close)
	db, err := pgx.Connect(t.Context(), r.server.Desc.PostgresURL)
	streamtest.Must(t, err)
	t.Cleanup(func() { _ = db.Close(context.Background()) })
	return &shop{T: t, campaign: r.Campaign, sdk: sdk, db: db, stop: func() {}}
}

// fill claims many, and waits until the tables have them.
func (s *shop) fill(many int) {
	s.Helper()
	slots, failed := make(chan struct{}, 20_000), atomic.Int64{}
	for range many {
		slots <- struct{}{}
		cmd := wire.Command{Type: wire.Claim, Campaign: s.campaign, CustomerID: s.customer()}
		err := s.sdk.DoAsync(s.Context(), cmd, func(out wire.Outcome, err error) {
			if err != nil || out.Refused() {
				failed.Add(1)
			}
			<-slots
		})
		streamtest.Must(s, err)
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
	if n := failed.Load(); n > 0 {
		s.Fatalf("%d of %d claims failed", n, many)
	}
	for there := 0; there < many; <-time.After(100 * time.Millisecond) {
		streamtest.Must(s, s.db.QueryRow(s.Context(), "SELECT claimed FROM scrip.campaign WHERE campaign = $1", s.campaign).Scan(&there))
	}
}

func (s *shop) customer() string { return fmt.Sprint("w", s.n.Add(1)) }

// begin claims until end: two callers one at a time, of whom one looks for its rows, and one in batches.
func (s *shop) begin() {
	ctx, stop := context.WithCancel(s.Context())
	s.stop = stop
	s.Cleanup(stop)
	s.all.Go(func() {
		for ctx.Err() == nil {
			s.claim(ctx)
		}
	})
	s.all.Go(func() {
		for ctx.Err() == nil {
			if n := s.claim(ctx); n > 0 {
				s.row(ctx, n)
			}
		}
	})
	s.all.Go(func() {
		for sleep(ctx, batchPause) == nil {
			s.batch(ctx)
		}
	})
}

func (s *shop) claim(ctx context.Context) (n uint32) {
	began := time.Now()
	out, err := s.sdk.Claim(ctx, s.campaign, s.customer())
	if s.counts(ctx, out, err) {
		s.add(taken{alone: []time.Duration{time.Since(began)}})
	}
	return out.N
}

// counts reports whether a claim has been answered; one that failed is an error, unless the end of the test is the reason.
func (s *shop) counts(ctx context.Context, out wire.Outcome, err error) bool {
	if ctx.Err() == nil && (err != nil || out.Refused()) {
		s.Errorf("a claim: %+v, %v", out, err)
	}
	return err == nil && !out.Refused()
}

func (s *shop) add(t taken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken.add(t)
}

// row waits until the tables have a coupon.
func (s *shop) row(ctx context.Context, n uint32) {
	for began := time.Now(); ctx.Err() == nil; _ = sleep(ctx, rowPoll) {
		var there bool
		err := s.db.QueryRow(s.Context(), "SELECT EXISTS (SELECT FROM scrip_tables.coupon_row WHERE campaign = $1 AND n = $2)", s.campaign, int64(n)).Scan(&there)
		if err != nil {
			s.Error(err)
			return
		}
		if there {
			s.add(taken{rows: []time.Duration{time.Since(began)}})
			return
		}
	}
}

// batch sends claims at once, and waits for all of them. Each takes until its own answer.
func (s *shop) batch(ctx context.Context) {
	var all sync.WaitGroup
	began := time.Now()
	for range batchOf {
		all.Add(1)
		cmd := wire.Command{Type: wire.Claim, Campaign: s.campaign, CustomerID: s.customer()}
		err := s.sdk.DoAsync(ctx, cmd, func(out wire.Outcome, err error) {
			defer all.Done()
			if s.counts(ctx, out, err) {
				s.add(taken{batches: []time.Duration{time.Since(began)}})
			}
		})
		if err != nil {
			all.Done()
			s.counts(ctx, wire.Outcome{}, err)
		}
	}
	all.Wait()
}

// during is what claims took during a time.
func (s *shop) during(length time.Duration) taken {
	s.mu.Lock()
	s.taken = taken{}
	s.mu.Unlock()
	<-time.After(length)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

func (s *shop) end() {
	s.stop()
	s.all.Wait()
}
