package chaos

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/check"
	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
)

// ledger is what clients were answered.
type ledger struct {
	*e2e.Ledger
	reminded atomic.Int64
}

func newLedger() *ledger {
	l := &ledger{Ledger: e2e.NewLedger()}
	l.Faults = true
	return l
}

// reminds keeps the answer to a remind. Some refusals are in order: it is tried again later, the coupon is used, or the
// client sent it again after it had fired.
func (l *ledger) reminds(key string, out wire.Outcome, err error) {
	switch out.Refusal {
	case wire.TooLate, wire.AlreadyRedeemed, wire.Invalid, wire.Outdated:
		return
	}
	if l.Note("reminder of "+key, out, err) {
		l.reminded.Add(1)
	}
}

// shortPause is before each claim of a worker in a short run, which has the machine with other tests.
const shortPause = 10 * time.Millisecond

// work claims, redeems and subscribes until ctx ends. Now and then a customer sends the request again, before and after any fault.
func (l *ledger) work(ctx context.Context, c *client.Client, campaigns []string, worker int, rng *rand.Rand) {
	for i := 0; ctx.Err() == nil; i++ {
		if *runFor == 0 {
			time.Sleep(shortPause)
		}
		campaign := campaigns[rng.IntN(len(campaigns))]
		customer := e2e.Customer(rng, worker, i)
		key := campaign + "/" + customer
		out, err := c.Claim(ctx, campaign, customer)
		claimed := l.Claimed(campaign, customer, out, err)
		switch n := rng.IntN(8); {
		case !claimed:
		case n < 2:
			l.Redeem(ctx, c, out.Code, customer)
		case n == 2:
			set, err := c.Remind(ctx, campaign, customer, wire.KindExpires, remindBefore)
			l.reminds(key, set, err)
		case n == 3:
			gone, err := c.Unremind(ctx, campaign, customer, wire.KindExpires, remindBefore)
			if gone.Refusal != wire.TooLate {
				l.Note("reminder that "+key+" wants no more", gone, err)
			}
		case n == 4: // its reminder, if there is one, falls due now and then earlier, now and then later
			at := time.Now().Add(remindBefore + time.Duration(1+rng.IntN(8))*time.Second)
			moved, err := c.Extend(ctx, out.Code, at)
			l.Note("extension for "+key, moved, err)
		}
	}
}

const (
	lifetime     = 50 * time.Minute
	remindBefore = lifetime - 4*time.Second // so that reminders fire while all this goes on
)

// settle compares the ledger with the log.
func (l *ledger) settle(t *testing.T, fold *check.Fold) {
	t.Helper()
	l.Settle(t, fold)
	_, redeemed := l.Answers()
	if len(redeemed) == 0 || l.reminded.Load() == 0 {
		t.Error("a load without redemptions or reminders shows nothing")
	}
}
