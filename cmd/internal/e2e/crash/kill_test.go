package crash

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

var (
	rounds  = flag.Int("crash.rounds", 5, "how often TestKillNine kills")
	lasting = flag.Duration("crash.for", 0, "no round starts later than that; 0 = no limit")
	seeded  = flag.Uint64("crash.seed", 0, "of the random moments and choices; 0 = a new one")
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m, nil)) }

// load claims and redeems until ctx ends, and keeps what was answered. A claim is repeated by the same customer now and then;
// it must bring the same code, before and after any crash.
func load(ctx context.Context, c *client.Client, campaigns []string, l *e2e.Ledger, worker int, rng *rand.Rand) {
	for i := 0; ctx.Err() == nil; i++ {
		campaign := campaigns[rng.IntN(len(campaigns))]
		customer := e2e.Customer(rng, worker, i)
		out, err := c.Claim(ctx, campaign, customer)
		if err != nil && ctx.Err() != nil {
			return
		}
		if !l.Claimed(campaign, customer, out, err) || rng.IntN(3) != 0 {
			continue
		}
		order := "order-of-" + customer
		used, err := c.Redeem(ctx, out.Code, order)
		var unknown *client.UnknownError
		if err == nil || ctx.Err() == nil && !errors.As(err, &unknown) {
			l.Redeemed(out.Code, order, used, err)
		}
	}
}

// TestKillNine kills scrip serve at random moments under load. No code gets two holders, no answered claim or
// redemption is missing, no lane is stuck, and the tables equal the log.
func TestKillNine(t *testing.T) {
	t.Parallel()
	started, seed := time.Now(), *seeded
	if seed == 0 {
		seed = uint64(started.UnixNano())
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	s := e2e.NewServer(t, "--nats-listen", streamtest.Address(t), "--postgres", projtest.URL(t))
	s.Up()
	c := s.Client()
	ctx := t.Context()
	// Two campaigns per lane at least.
	var campaigns []string
	for i := range 12 {
		settings := wire.DefaultSettings(1_000_000)
		settings.ExpiresAt = wire.At(time.Now().Add(time.Hour))
		if i%2 == 1 {
			settings.ExpiresAt, settings.ValidFor = 0, 30*time.Minute
		}
		campaigns = append(campaigns, fmt.Sprintf("sale-%d", i))
		if out, err := c.CreateCampaign(ctx, campaigns[i], settings); err != nil || out.Refused() {
			t.Fatal(out, err)
		}
	}
	l := e2e.NewLedger()
	running, stop := context.WithCancel(ctx)
	var workers sync.WaitGroup
	for w := range 32 {
		own := rand.New(rand.NewPCG(seed, uint64(w)+2))
		workers.Go(func() { load(running, c, campaigns, l, w, own) })
	}
	kills := 0
	answers := func(n int) {
		t.Helper()
		select {
		case <-l.After(n):
		case <-time.After(3 * time.Minute):
			t.Fatalf("after %d kills nothing is answered", kills)
		}
	}
	for kills < *rounds && (*lasting == 0 || time.Since(started) < *lasting) {
		kills++
		answers(int(math.Exp(rng.Float64() * math.Log(1500)))) // few as likely as many
		s.Kill()
		s.Up()
	}
	answers(300)
	stop()
	workers.Wait()
	// No lane is stuck: each campaign, and so each lane, answers.
	for _, campaign := range campaigns {
		if out, err := c.Claim(ctx, campaign, "the-last"); err != nil || out.Refused() {
			t.Errorf("%s after the last round: %+v, %v", campaign, out, err)
		}
	}
	l.Settle(t, s.CheckLog())
	t.Logf("soak: %d kills", kills)
	if code := s.Stop(); code != 0 {
		t.Errorf("the clean stop ended with exit code %d", code)
	}
}
