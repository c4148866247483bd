package readers

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

const (
	// campaigns are few, so that one has many coupons, and more than one, so that several lanes are projected.
	campaigns = 3
	// callers claim at once in a burst.
	callers = 128
	// burstLeast coupons and up to burstMore others are claimed in a burst: enough for a segment that is sealed.
	burstLeast, burstMore = 11_000, 9_000
	// burstPause is longer than it takes until a segment without claims is sealed.
	burstPause = 7 * time.Second
	// redeemPause is between two redemptions, which go on in the pauses.
	redeemPause = 20 * time.Millisecond
	// campaignCodes is more than are claimed.
	campaignCodes = 50_000_000
)

// load claims in bursts, and redeems all the time.
type load struct {
	sdk    *client.Client
	ledger *e2e.Ledger
	names  []string
	seed   uint64
	all    sync.WaitGroup
	first  chan struct{} // closed after the first burst
	db     string

	mu       sync.Mutex
	asked    map[string]int64 // claims by campaign, each counted before it was sent
	redeemed int64            // redemptions, likewise
	codes    []string         // that are not redeemed
}

func newLoad(t *testing.T, s *site, seed uint64) *load {
	t.Helper()
	l := &load{sdk: s.server.Client(), ledger: e2e.NewLedger(), names: e2e.Campaigns(s.server.Desc.Lanes)[:campaigns],
		seed: seed, first: make(chan struct{}), db: s.server.Desc.PostgresURL, asked: map[string]int64{}}
	for _, name := range l.names {
		out, err := l.sdk.CreateCampaign(t.Context(), name, wire.DefaultSettings(campaignCodes))
		if err != nil || out.Refused() {
			t.Fatal(out, err)
		}
	}
	return l
}

func (l *load) run(ctx context.Context) {
	l.all.Go(func() {
		rng := rand.New(rand.NewPCG(l.seed, 1))
		for n := 0; ctx.Err() == nil; n++ {
			l.burst(ctx, n, burstLeast+rng.IntN(burstMore))
			if n == 0 {
				close(l.first)
			}
			_ = sleep(ctx, burstPause)
		}
	})
	l.all.Go(func() {
		for sleep(ctx, redeemPause) == nil {
			l.redeem(ctx)
		}
	})
}

// grown waits until the tables have the first burst.
func (l *load) grown(ctx context.Context) bool {
	select {
	case <-l.first:
	case <-ctx.Done():
		return false
	}
	db, err := pgx.Connect(ctx, l.db)
	if err != nil {
		return false
	}
	defer db.Close(context.WithoutCancel(ctx)) //nolint:errcheck
	for ctx.Err() == nil {
		var n int64
		if err := db.QueryRow(ctx, "SELECT count(*) FROM scrip.coupon").Scan(&n); err == nil && n >= burstLeast {
			return true
		}
		_ = sleep(ctx, redeemPause)
	}
	return false
}

// burst claims for new customers. A claim that was sent is waited for, also when ctx ends: the ledger has its answer.
func (l *load) burst(ctx context.Context, number, many int) {
	var each sync.WaitGroup
	for caller := range callers {
		each.Go(func() {
			for i := caller; i < many && ctx.Err() == nil; i += callers {
				campaign, customer := l.names[i%len(l.names)], fmt.Sprintf("b%d-%d", number, i)
				l.mu.Lock()
				l.asked[campaign]++
				l.mu.Unlock()
				out, err := l.sdk.Claim(context.WithoutCancel(ctx), campaign, customer)
				if l.ledger.Claimed(campaign, customer, out, err) && i%50 == 0 {
					l.mu.Lock()
					l.codes = append(l.codes, out.Code)
					l.mu.Unlock()
				}
			}
		})
	}
	each.Wait()
}

// redeem redeems a coupon that is not, if there is one.
func (l *load) redeem(ctx context.Context) {
	l.mu.Lock()
	if len(l.codes) == 0 {
		l.mu.Unlock()
		return
	}
	code := l.codes[0]
	l.codes = l.codes[1:]
	l.redeemed++
	l.mu.Unlock()
	order := "order-" + code
	out, err := l.sdk.Redeem(context.WithoutCancel(ctx), code, order)
	l.ledger.Redeemed(code, order, out, err)
}

// sent is how much was asked for until now.
func (l *load) sent() (claims map[string]int64, redemptions int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.asked), l.redeemed
}

// known is what reads have found. A later one that finds less is wrong.
type known struct {
	mu       sync.Mutex
	claimed  map[string]int64
	total    int64
	redeemed int64
}

// least is what a read that begins now must find at least.
func (k *known) least() (claimed map[string]int64, total, redeemed int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sum := int64(0)
	for _, n := range k.claimed {
		sum += n
	}
	return maps.Clone(k.claimed), max(sum, k.total), k.redeemed
}

// found adds what a read has found.
func (k *known) found(claimed map[string]int64, total, redeemed int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.claimed == nil {
		k.claimed = map[string]int64{}
	}
	for name, n := range claimed {
		k.claimed[name] = max(k.claimed[name], n)
	}
	k.total, k.redeemed = max(k.total, total), max(k.redeemed, redeemed)
}

// within describes a count that is not between two bounds.
func within(what string, got, least, most int64) error {
	switch {
	case got < least:
		return fmt.Errorf("%d %s, and %d were committed before", got, what, least)
	case got > most:
		return fmt.Errorf("%d %s, and only %d were asked for", got, what, most)
	}
	return nil
}

// TestWithin shows that a count too low and one too high are found.
func TestWithin(t *testing.T) {
	var k known
	k.found(map[string]int64{"a": 3, "b": 4}, 9, 2)
	k.found(map[string]int64{"a": 2, "b": 5}, 1, 1)
	_, total, redeemed := k.least()
	streamtest.Equal(t, "coupons and redemptions", fmt.Sprint(total, redeemed), "9 2")
	for got, wrong := range map[int64]bool{8: true, 9: false, 11: false, 12: true} {
		if err := within("coupons", got, total, 11); (err != nil) != wrong {
			t.Errorf("%d: %v", got, err)
		}
	}
}
