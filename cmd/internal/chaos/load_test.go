package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/check"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/client"
)

// ledger is what clients were answered.
type ledger struct {
	mu       sync.Mutex
	claims   map[string]string // campaign/customer → code
	redeemed map[string]string // code → order
	reminded int
	unknown  int // answers that did not come, or "not durable": nothing is known then
	answers  int
	problems []string
	target   int
	reached  chan struct{}
}

func newLedger() *ledger { return &ledger{claims: map[string]string{}, redeemed: map[string]string{}} }

// more returns a channel that is closed when n more answers have come.
func (l *ledger) more(n int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target, l.reached = l.answers+n, make(chan struct{})
	return l.reached
}

// note keeps what one call brought. It returns whether there was an answer that says yes.
func (l *ledger) note(what string, out domain.Outcome, err error, keep func() string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var unknown *client.UnknownError
	problem := ""
	switch {
	case errors.Is(err, context.Canceled), errors.As(err, &unknown), out.Refusal == domain.NotDurable:
		l.unknown++
		return false
	case err != nil:
		problem = err.Error()
	case out.Refused():
		problem = string(out.Refusal) + " " + out.Message
	default:
		problem = keep()
	}
	if problem != "" && len(l.problems) < 20 {
		l.problems = append(l.problems, what+": "+problem)
	}
	if l.answers++; l.reached != nil && l.answers >= l.target {
		close(l.reached)
		l.reached = nil
	}
	return problem == ""
}

// work claims, redeems and subscribes until ctx ends. Now and then a customer asks again, before and after any fault.
func (l *ledger) work(ctx context.Context, c *client.Client, campaigns []string, worker int, rng *rand.Rand) {
	for i := 0; ctx.Err() == nil; i++ {
		campaign := campaigns[rng.IntN(len(campaigns))]
		customer := fmt.Sprintf("w%d-%d", worker, i)
		if i > 0 && rng.IntN(5) == 0 {
			customer = fmt.Sprintf("w%d-%d", worker, rng.IntN(i))
		}
		key := campaign + "/" + customer
		out, err := c.Claim(ctx, campaign, customer)
		claimed := l.note("claim of "+key, out, err, func() string {
			before, asked := l.claims[key]
			l.claims[key] = out.Code
			if asked && before != out.Code {
				return fmt.Sprintf("answered %s, then %s", before, out.Code)
			}
			return ""
		})
		switch n := rng.IntN(8); {
		case !claimed:
		case n < 2:
			order := "order-of-" + customer
			used, err := c.Redeem(ctx, out.Code, order)
			l.note("redeem by "+key, used, err, func() string { l.redeemed[out.Code] = order; return "" })
		case n == 2:
			set, err := c.Remind(ctx, campaign, customer, domain.KindExpires, remindBefore)
			if set.Refusal == domain.TooLate || set.Refusal == domain.AlreadyRedeemed || set.Refusal == domain.Invalid {
				continue // asked again later, or by somebody who used it
			}
			l.note("reminder of "+key, set, err, func() string { l.reminded++; return "" })
		case n == 3:
			gone, err := c.Unremind(ctx, campaign, customer, domain.KindExpires, remindBefore)
			if gone.Refusal != domain.TooLate {
				l.note("reminder that "+key+" wants no more", gone, err, func() string { return "" })
			}
		case n == 4: // its reminder, if there is one, falls due now and then earlier, now and then later
			at := time.Now().Add(remindBefore + time.Duration(1+rng.IntN(8))*time.Second)
			moved, err := c.Extend(ctx, out.Code, at)
			l.note("extension for "+key, moved, err, func() string { return "" })
		}
	}
}

const (
	lifetime     = 50 * time.Minute
	remindBefore = lifetime - 4*time.Second // so that reminders fire while all this goes on
)

// settle holds the ledger against the log.
func (l *ledger) settle(t *testing.T, fold *check.Fold) {
	t.Helper()
	for _, p := range l.problems {
		t.Error(p)
	}
	holders, uses := map[string]string{}, map[string]string{}
	for name, campaign := range fold.Campaigns {
		for _, k := range campaign.Coupons {
			holders[k.Code] = name + "/" + k.Customer
			for _, r := range k.Redemptions {
				uses[k.Code] = r.Order
			}
		}
	}
	missing := 0
	for key, code := range l.claims {
		if holders[code] != key {
			missing++
			t.Errorf("%s was answered %s, which the log gives to %q", key, code, holders[code])
		}
	}
	for code, order := range l.redeemed {
		if uses[code] != order {
			missing++
			t.Errorf("%s was answered as redeemed for %s, the log says %q", code, order, uses[code])
		}
	}
	t.Logf("%d answers, %d unknown: %d claims, %d redemptions, %d reminders set; %d missing", l.answers, l.unknown, len(l.claims), len(l.redeemed), l.reminded, missing)
	if len(l.claims) == 0 || len(l.redeemed) == 0 || l.reminded == 0 {
		t.Error("a load without claims, redemptions or reminders shows nothing")
	}
}
