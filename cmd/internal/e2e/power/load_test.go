package power

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
)

// load is clients at work. They live through power cuts.
type load struct {
	*e2e.Ledger
	conn      *client.Client
	campaigns []string
	stop      context.CancelFunc
	workers   sync.WaitGroup
	turns     chan *sync.WaitGroup // one for each claim that may be made, done when it is
}

const workers = 12

// apply creates campaigns on a server, two for each lane, and lets clients claim and redeem. What is answered goes to a.
func (m *machine) apply(url string, a *e2e.Ledger) *load {
	m.t.Helper()
	c, err := client.Connect(url, nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		m.t.Fatal(err)
	}
	l := &load{Ledger: a, conn: c, turns: make(chan *sync.WaitGroup)}
	for i := range 8 {
		l.campaigns = append(l.campaigns, fmt.Sprintf("sale-%d", i))
		settings := wire.DefaultSettings(10_000_000)
		settings.ExpiresAt = wire.At(time.Now().Add(24 * time.Hour))
		if out, err := c.CreateCampaign(bounded(m.t), l.campaigns[i], settings); err != nil || out.Refused() {
			m.t.Fatal(out, err)
		}
	}
	ctx, stop := context.WithCancel(m.t.Context())
	l.stop = stop
	for w := range workers {
		rng := rand.New(rand.NewPCG(m.rng.Uint64(), 0))
		l.workers.Go(func() { l.work(ctx, rng, w) })
	}
	return l
}

// allow lets the clients make n claims, or as many as they can in half a minute, and returns what is closed when they have
// their answers.
func (l *load) allow(n int) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		var turns sync.WaitGroup
		defer turns.Wait()
		late := time.After(limit / 4)
		for range n {
			turns.Add(1)
			select {
			case l.turns <- &turns:
			case <-late:
				turns.Done()
				return
			}
		}
	}()
	return done
}

// end stops the clients, and waits for them.
func (l *load) end() {
	l.stop()
	l.workers.Wait()
	l.conn.Close()
}

// work claims, with every fifth customer again one of before.
func (l *load) work(ctx context.Context, rng *rand.Rand, worker int) {
	for i := 0; ; i++ {
		select {
		case turn := <-l.turns:
			customer := e2e.Customer(rng, worker, i)
			l.claim(ctx, l.campaigns[rng.IntN(len(l.campaigns))], customer, rng.IntN(4) == 0)
			turn.Done()
		case <-ctx.Done():
			return
		}
	}
}

// claim claims, and redeems. The same claim must bring the same code, before and after any cut. An error is no answer.
func (l *load) claim(ctx context.Context, campaign, customer string, redeem bool) {
	out, err := l.conn.Claim(ctx, campaign, customer)
	if err != nil {
		return
	}
	if !l.Claimed(campaign, customer, out, nil) || !redeem {
		return
	}
	order := "order-of-" + customer
	if used, err := l.conn.Redeem(ctx, out.Code, order); err == nil {
		l.Redeemed(out.Code, order, used, nil)
	}
}

// judge compares the log of a server with what was answered before: nothing is missing, nothing is there twice.
func (m *machine) judge(url string, claims, redeemed map[string]string) {
	m.t.Helper()
	js, closed := m.jetStream(url)
	defer closed()
	fold, _, err := e2e.ReadLog(bounded(m.t), js)
	if err != nil {
		m.t.Fatalf("after %d cuts, reading the log: %v", m.cuts, err)
	}
	for _, v := range fold.Violations {
		m.t.Errorf("after %d cuts, promise broken: %s", m.cuts, v)
	}
	if gone := e2e.Missing(fold, claims, redeemed); len(gone) > 0 {
		m.t.Errorf("after %d cuts %d of %d answers are missing, such as: %s", m.cuts, len(gone), len(claims)+len(redeemed), gone[0])
	}
}

// jetStream connects to a server until closed is called.
func (m *machine) jetStream(url string) (js jetstream.JetStream, closed func()) {
	m.t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		m.t.Fatal(err)
	}
	if js, err = jetstream.New(nc); err != nil {
		m.t.Fatal(err)
	}
	return js, nc.Close
}
