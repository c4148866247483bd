package manage

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// allowance is how many wrong codes may be tried: burst at once, perMinute in the long run. block = how long all codes are
// refused after the last one of the burst.
type allowance struct {
	burst, perMinute float64
	block            time.Duration
}

// The allowances. A generated code has 60 bits: with ten million live codes, one guess in 10^11 is a hit, so the rate of a
// whole key leaves centuries for a public one and decades for another. The clients of a public key share it, so each address
// has a small allowance of its own: one of them must not use up that of all others.
var (
	perAddress = allowance{burst: 10, perMinute: 5, block: 10 * time.Minute}
	perPublic  = allowance{burst: 1000, perMinute: 600}
	perKey     = allowance{burst: 10000, perMinute: 6000}
)

// maxTriers bounds the triers that are remembered. Beyond that, those with a full allowance are forgotten first.
const maxTriers = 1 << 16

// trier is a key, or one address of a public key's clients.
type trier struct {
	key     string
	address netip.Addr
}

// tries is what a trier has left.
type tries struct {
	left    float64
	open    float64 // codes whose answer is not known yet; each may be wrong
	at      time.Time
	blocked time.Time // until
}

// budget counts wrong codes by trier. It is used by all requests at once. A restart forgets it.
type budget struct {
	wrong, refused *prometheus.CounterVec

	mu   sync.Mutex
	by   map[trier]*tries
	most int
}

// The kinds of budgets, in metrics.
const (
	ofKey     = "key"     // of a key that is not public
	ofPublic  = "public"  // of a public key as a whole
	ofAddress = "address" // of one address of its clients
)

// newBudget returns a budget without triers. A nil registerer means that its metrics are not shown anywhere.
func newBudget(metrics prometheus.Registerer) *budget {
	b := &budget{by: map[trier]*tries{}, most: maxTriers,
		wrong: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scrip_wrong_codes_total",
			Help: "Wrong codes that were tried over HTTP, by the budget that they cost: of a key, or of a public key."}, []string{"budget"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scrip_wrong_codes_refused_total",
			Help: "Codes over HTTP that were refused unseen, because of too many wrong ones before; by the budget that was used up: of a key, of a public key, or of one address of its clients."}, []string{"budget"}),
	}
	for _, kind := range []string{ofKey, ofPublic} {
		b.wrong.WithLabelValues(kind)
		b.refused.WithLabelValues(kind)
	}
	b.refused.WithLabelValues(ofAddress)
	if metrics != nil {
		metrics.MustRegister(b.wrong, b.refused)
	}
	return b
}

// begin reserves room for one wrong code. end must be called with whether the code was wrong. The credentials of the data
// directory have no budget.
func (b *budget) begin(p access.Principal, address string) (end func(wrong bool), problem *web.Problem) {
	if p.ID == "" {
		return func(bool) {}, nil
	}
	type part struct {
		trier
		allowance
		kind string
	}
	parts := []part{{trier{key: p.ID}, perKey, ofKey}}
	if p.Public {
		parts = []part{{trier{key: p.ID}, perPublic, ofPublic}, {trier{p.ID, web.Network(address)}, perAddress, ofAddress}}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, one := range parts {
		t := b.tries(one.trier, one.allowance, now)
		if wait := t.blocked.Sub(now); wait > 0 {
			b.refused.WithLabelValues(one.kind).Inc()
			return nil, web.New(web.TooManyWrongCodes, "too many wrong codes; wait").After(wait)
		}
		if t.left-t.open < 1 {
			b.refused.WithLabelValues(one.kind).Inc()
			return nil, web.New(web.TooManyWrongCodes, "too many wrong codes, or codes whose answer is not known yet; wait").
				After(time.Duration(float64(time.Minute) / one.perMinute))
		}
	}
	for _, one := range parts {
		b.tries(one.trier, one.allowance, now).open++
	}
	return func(wrong bool) {
		if wrong {
			b.wrong.WithLabelValues(parts[0].kind).Inc()
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		now := time.Now()
		for _, one := range parts {
			t := b.tries(one.trier, one.allowance, now)
			t.open = max(t.open-1, 0)
			if !wrong {
				continue
			}
			if t.left--; t.left < 1 && one.block > 0 {
				t.blocked = now.Add(one.block)
			}
		}
	}, nil
}

// tries returns what a trier has left at a time.
func (b *budget) tries(who trier, a allowance, now time.Time) *tries {
	t := b.by[who]
	if t == nil {
		if len(b.by) >= b.most {
			b.forget(now)
		}
		t = &tries{left: a.burst, at: now}
		b.by[who] = t
	}
	t.left = min(a.burst, t.left+now.Sub(t.at).Minutes()*a.perMinute)
	t.at = now
	return t
}

// forget makes room: for all who have tried nothing for ten minutes, else for an eighth of the addresses. Those could try
// again, within the allowance of their key.
func (b *budget) forget(now time.Time) {
	for who, t := range b.by {
		if t.open == 0 && now.Sub(t.at) > perAddress.block {
			delete(b.by, who)
		}
	}
	surplus := len(b.by) - b.most*7/8
	for who, t := range b.by {
		if surplus <= 0 {
			return
		}
		if t.open == 0 && who.address.IsValid() {
			delete(b.by, who)
			surplus--
		}
	}
}

// unusable are the refusals by which a code cannot be redeemed now. Public keys do not see which one it is.
var unusable = []web.Code{
	web.Code(wire.CodeNotFound), web.Code(wire.NotHolder), web.Code(wire.Voided), web.Code(wire.CampaignPaused), web.Code(wire.Expired),
	web.Code(wire.AlreadyRedeemed), web.Code(wire.RedemptionLimitReached), web.Code(wire.LimitReached),
}

// tried answers a request about a code, within the budget for wrong codes.
func tried[T any](ctx context.Context, a *API, answer func() (*T, error)) (*T, error) {
	p := principal(ctx)
	from, _ := ctx.Value(addressKey{}).(string)
	end, problem := a.wrong.begin(p, from)
	if problem != nil {
		return nil, problem
	}
	wrong := false
	defer func() { end(wrong) }()
	done, err := answer()
	var refused *web.Problem
	if errors.As(err, &refused) {
		if wrong, refused = judged(p, refused); wrong {
			err = refused
		}
	}
	return done, err
}

// judged reports whether a code was wrong, and what its sender sees of that.
func judged(p access.Principal, refused *web.Problem) (wrong bool, shown *web.Problem) {
	wrong = refused.Code == web.Code(wire.CodeNotFound) || p.Public && slices.Contains(unusable, refused.Code)
	if wrong && p.Public {
		refused = web.New(web.CodeNotValid, "")
	}
	return wrong, refused
}
