package power

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/check"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// answers is what clients were answered.
type answers struct {
	mu       sync.Mutex
	claims   map[string]string // campaign/customer → code
	redeemed map[string]string // code → order
	wrong    []string
}

func newAnswers() *answers {
	return &answers{claims: map[string]string{}, redeemed: map[string]string{}}
}

func (a *answers) wrongf(format string, args ...any) {
	if len(a.wrong) < 20 {
		a.wrong = append(a.wrong, fmt.Sprintf(format, args...))
	}
}

// now is what was answered so far.
func (a *answers) now() (claims, redeemed map[string]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.claims), maps.Clone(a.redeemed)
}

// load is clients at work. They live through power cuts.
type load struct {
	*answers
	conn      *client.Client
	campaigns []string
	stop      context.CancelFunc
	workers   sync.WaitGroup
	turns     chan *sync.WaitGroup // one for each claim that may be made, done when it is
}

const workers = 12

// apply creates campaigns on a server, two for each lane, and lets clients claim and redeem. What is answered goes to a.
func (m *machine) apply(url string, a *answers) *load {
	m.t.Helper()
	c, err := client.Connect(url, nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		m.t.Fatal(err)
	}
	l := &load{answers: a, conn: c, turns: make(chan *sync.WaitGroup)}
	for i := range 8 {
		l.campaigns = append(l.campaigns, fmt.Sprintf("sale-%d", i))
		settings := domain.DefaultSettings(10_000_000)
		settings.ExpiresAt = domain.At(time.Now().Add(24 * time.Hour))
		if out, err := c.CreateCampaign(bounded(m.t), l.campaigns[i], settings); err != nil || out.Refused() {
			m.t.Fatal(out, err)
		}
	}
	ctx, stop := context.WithCancel(m.t.Context())
	l.stop = stop
	for w := range workers {
		rng := rand.New(rand.NewPCG(m.rng.Uint64(), 0))
		l.workers.Go(func() { l.work(ctx, rng, fmt.Sprintf("c%d", w)) })
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
func (l *load) work(ctx context.Context, rng *rand.Rand, name string) {
	for i := 0; ; i++ {
		select {
		case turn := <-l.turns:
			customer := fmt.Sprintf("%s-%d", name, i)
			if i > 0 && rng.IntN(5) == 0 {
				customer = fmt.Sprintf("%s-%d", name, rng.IntN(i))
			}
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
	key := campaign + "/" + customer
	l.mu.Lock()
	switch before, known := l.claims[key]; {
	case out.Refused():
		l.wrongf("claim of %s refused: %s", key, out.Refusal)
	case known && before != out.Code:
		l.wrongf("%s was answered %s, then %s", key, before, out.Code)
	default:
		l.claims[key] = out.Code
	}
	l.mu.Unlock()
	if out.Refused() || !redeem {
		return
	}
	order := "order-of-" + customer
	used, err := l.conn.Redeem(ctx, out.Code, order)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if used.Refused() {
		l.wrongf("redeem of %s by %s refused: %s", out.Code, key, used.Refusal)
	} else {
		l.redeemed[out.Code] = order
	}
}

// judge holds the log of a server against what was answered before: nothing is missing, nothing is there twice. It returns
// how many answered claims are missing.
func (m *machine) judge(url string, claims, redeemed map[string]string) (missing int) {
	m.t.Helper()
	fold, err := foldOf(bounded(m.t), url)
	if err != nil {
		m.t.Fatalf("after %d cuts, reading the log: %v", m.cuts, err)
	}
	for _, v := range fold.Violations {
		m.t.Errorf("after %d cuts, promise broken: %s", m.cuts, v)
	}
	uses, holders := map[string]string{}, map[string]string{}
	for name, campaign := range fold.Campaigns {
		for _, k := range campaign.Coupons {
			if other := holders[k.Code]; other != "" {
				m.t.Errorf("after %d cuts: %s has two holders, %s and %s/%s", m.cuts, k.Code, other, name, k.Customer)
			}
			holders[k.Code] = name + "/" + k.Customer
			for _, r := range k.Redemptions {
				uses[k.Code] = r.Order
			}
		}
	}
	gone := lost(fold, claims)
	if len(gone) > 0 {
		m.t.Errorf("after %d cuts %d of %d answered claims are missing, such as %s", m.cuts, len(gone), len(claims), gone[0])
	}
	for code, order := range redeemed {
		if uses[code] != order {
			m.t.Errorf("after %d cuts: %s was answered as redeemed for %s, the log has %q", m.cuts, code, order, uses[code])
			break
		}
	}
	return len(gone)
}

// lost are the answered claims that a log does not have.
func lost(fold *check.Fold, claims map[string]string) (gone []string) {
	held := map[string]string{}
	for name := range fold.Campaigns {
		for code, customer := range fold.Holders(name) {
			held[name+"/"+customer] = code
		}
	}
	for key, code := range claims {
		if held[key] != code {
			gone = append(gone, fmt.Sprintf("%s, answered %s, in the log %q", key, code, held[key]))
		}
	}
	return gone
}

func foldOf(ctx context.Context, url string) (*check.Fold, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	log, found, err := topology.Inspect(ctx, js)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, errors.New("there is no log")
	}
	fold, _, err := check.Log(ctx, js, log)
	return fold, err
}
