package crash

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/client"
)

// rounds of kill -9; each ends at a random number of answers.
var rounds = flag.Int("crash.rounds", 25, "how often TestKillNine kills")

// load claims and redeems until ctx ends, from several goroutines, and keeps what was answered. A claim is asked again
// by the same customer now and then; it must bring the same code, before and after any crash.
func load(ctx context.Context, c *client.Client, campaigns []string, l *ledger, worker int, rng *rand.Rand) {
	for i := 0; ctx.Err() == nil; i++ {
		campaign := campaigns[rng.IntN(len(campaigns))]
		customer := fmt.Sprintf("w%d-%d", worker, i)
		if i > 0 && rng.IntN(5) == 0 {
			customer = fmt.Sprintf("w%d-%d", worker, rng.IntN(i))
		}
		out, err := c.Claim(ctx, campaign, customer)
		if err != nil {
			if ctx.Err() == nil {
				l.mu.Lock()
				l.problem("claim of %s: %v", customer, err)
				l.mu.Unlock()
			}
			continue
		}
		key := campaign + "/" + customer
		l.mu.Lock()
		switch before, asked := l.claims[key]; {
		case out.Refused():
			l.problem("claim of %s refused: %s", key, out.Refusal)
		case asked && before != out.Code:
			l.problem("%s was answered %s, then %s", key, before, out.Code)
		}
		l.claims[key] = out.Code
		l.answered()
		l.mu.Unlock()
		if rng.IntN(3) != 0 || out.Refused() {
			continue
		}
		order := "order-of-" + customer
		used, err := c.Redeem(ctx, out.Code, order)
		if err != nil {
			var unknown *client.UnknownError
			if ctx.Err() == nil && !errors.As(err, &unknown) {
				l.mu.Lock()
				l.problem("redeem by %s: %v", key, err)
				l.mu.Unlock()
			}
			continue
		}
		l.mu.Lock()
		if used.Refused() {
			l.problem("redeem of %s by %s refused: %s", out.Code, key, used.Refusal)
		} else {
			l.redeemed[out.Code] = order
		}
		l.answered()
		l.mu.Unlock()
	}
}

// TestKillNine kills scrip serve at random moments under load. No code gets two holders, no answered claim or
// redemption is missing, no lane is stuck, and the tables equal the log.
func TestKillNine(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	s := newServer(t, "--nats-listen", freePort(t))
	s.up()
	c := s.client()
	ctx := t.Context()
	// Two campaigns per lane at least.
	var campaigns []string
	for i := range 12 {
		name := fmt.Sprintf("sale-%d", i)
		campaigns = append(campaigns, name)
		settings := domain.DefaultSettings(1_000_000)
		settings.ExpiresAt = domain.At(time.Now().Add(time.Hour))
		if i%2 == 1 {
			settings.ExpiresAt, settings.ValidFor = 0, 30*time.Minute
		}
		if out, err := c.CreateCampaign(ctx, name, settings); err != nil || out.Refused() {
			t.Fatal(out, err)
		}
	}
	l := newLedger()
	running, stop := context.WithCancel(ctx)
	var workers sync.WaitGroup
	for w := range 32 {
		wr := rand.New(rand.NewPCG(seed, uint64(w)+2))
		workers.Go(func() { load(running, c, campaigns, l, w, wr) })
	}
	for round := range *rounds {
		select {
		case <-l.after(1 + rng.IntN(3000)):
		case <-time.After(time.Minute):
			t.Fatalf("round %d: the load stands still", round)
		}
		s.kill()
		s.up()
	}
	select {
	case <-l.after(1000):
	case <-time.After(time.Minute):
		t.Fatal("after the last round the load stands still")
	}
	stop()
	workers.Wait()
	for _, p := range l.problems {
		t.Error(p)
	}
	// No lane is stuck: each campaign, and so each lane, answers.
	for _, campaign := range campaigns {
		if out, err := c.Claim(ctx, campaign, "the-last"); err != nil || out.Refused() {
			t.Errorf("%s after the last round: %+v, %v", campaign, out, err)
		}
	}
	fold := s.checkLog()
	missing := 0
	holders := map[string]string{}
	uses := map[string]string{}
	for name, campaign := range fold.Campaigns {
		for _, k := range campaign.Coupons {
			holders[k.Code] = name + "/" + k.Customer
			for _, r := range k.Redemptions {
				uses[k.Code] = r.Order
			}
		}
	}
	for key, code := range l.claims {
		if holders[code] != key {
			missing++
			t.Errorf("%s was answered %s, which the log gives to %q", key, code, holders[code])
		}
	}
	for code, order := range l.redeemed {
		if uses[code] != order {
			t.Errorf("%s was answered as redeemed for %s, the log says %q", code, order, uses[code])
		}
	}
	t.Logf("%d rounds of kill -9: %d answered claims, %d answered redemptions, %d missing, %d coupons in the log", *rounds, len(l.claims), len(l.redeemed), missing, len(holders))
	if code := s.stop(); code != 0 {
		t.Errorf("the clean stop ended with exit code %d", code)
	}
}
