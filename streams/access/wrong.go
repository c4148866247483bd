package access

import (
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Allowance is how many wrong codes may be tried: Burst at once, PerMinute in the long run. Block = how long all codes are
// refused after the last one of the burst.
type Allowance struct {
	Burst, PerMinute float64
	Block            time.Duration
}

// The allowances. A generated code has 60 bits: with ten million live codes, one guess in 10^11 is a hit, so the rate of a
// whole key leaves centuries for a public one and decades for another. The clients of a public key share it, so each address
// has a small allowance of its own, and each /48 of IPv6, which one client can have whole, that of ten addresses at once and
// a tenth of the key's: one of them must not use up that of all others.
var (
	perAddress = Allowance{Burst: 10, PerMinute: 5, Block: 10 * time.Minute}
	perSite    = Allowance{Burst: 100, PerMinute: 60}
	perPublic  = Allowance{Burst: 1000, PerMinute: 600}
	PerKey     = Allowance{Burst: 10000, PerMinute: 6000} // changed by tests alone
)

// maxTriers bounds the triers that are remembered. Beyond that, those with a full allowance are forgotten first.
const maxTriers = 1 << 16

// trier is a key, or one network of a public key's clients.
type trier struct {
	key string
	of  netip.Prefix
}

// siteBits is the length of the prefix of a site of IPv6.
const siteBits = 48

// site returns the /48 of a client; ok is false for IPv4, and for a client that is not known.
func site(client netip.Addr) (of netip.Prefix, ok bool) {
	if client = client.Unmap(); !client.Is6() {
		return of, false
	}
	return netip.PrefixFrom(client, siteBits).Masked(), true
}

// tries is what a trier has left.
type tries struct {
	left    float64
	open    float64 // codes whose answer is not known yet; each may be wrong
	at      time.Time
	blocked time.Time // until
}

// WrongCodes is the budget for wrong codes at one server, which counts them by trier, over HTTP and in the micro service. It is
// used by all requests at once. What a key has tried in the hour is stored each minute, for all servers together (see use.go): a
// restart gives no key another burst. It forgets addresses.
type WrongCodes struct {
	wrong, refused *prometheus.CounterVec

	uses *uses // of keys

	mu   sync.Mutex
	by   map[trier]*tries
	most int
}

// The kinds of budgets, in metrics.
const (
	ofKey     = "key"     // of a key that is not public
	ofPublic  = "public"  // of a public key as a whole
	ofSite    = "site"    // of one /48 of its clients
	ofAddress = "address" // of one address of its clients
	ofLog     = "log"     // none: of commands straight to the log, which do not name their key
)

func newWrongCodes(u *uses) *WrongCodes {
	b := &WrongCodes{uses: u, by: map[trier]*tries{}, most: maxTriers,
		wrong: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scrip_wrong_codes_total",
			Help: "Wrong codes that were tried, by the budget that they cost: of a key, of a public key, or none, in commands straight to the log."}, []string{"budget"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scrip_wrong_codes_refused_total",
			Help: "Codes that were refused unseen, because of too many wrong ones before; by the budget that was used up: of a key, of a public key, or of one address or site (a /48 of IPv6) of its clients."}, []string{"budget"}),
	}
	for _, kind := range []string{ofKey, ofPublic} {
		b.wrong.WithLabelValues(kind)
		b.refused.WithLabelValues(kind)
	}
	b.refused.WithLabelValues(ofSite)
	b.refused.WithLabelValues(ofAddress)
	b.wrong.WithLabelValues(ofLog)
	return b
}

// InLog counts wrong codes that were tried in commands straight to the log. Their answers are on the way: nothing refuses them.
func (b *WrongCodes) InLog(n int) { b.wrong.WithLabelValues(ofLog).Add(float64(n)) }

// Reserve reserves room for one wrong code. end must be called with whether the code was wrong. wait above 0: there is no room for
// so long, and end is nil. client is the address of one of a public key's clients. The credentials of the data directory have no budget.
func (b *WrongCodes) Reserve(p Principal, client netip.Addr) (end func(wrong bool), wait time.Duration) {
	if p.ID == "" {
		return func(bool) {}, 0
	}
	type part struct {
		trier
		Allowance
		kind string
	}
	parts := []part{{trier{key: p.ID}, PerKey, ofKey}}
	if p.Public {
		parts[0] = part{trier{key: p.ID}, perPublic, ofPublic}
		if of, ok := site(client); ok {
			parts = append(parts, part{trier{p.ID, of}, perSite, ofSite})
		}
		client = Network(client)
		parts = append(parts, part{trier{p.ID, netip.PrefixFrom(client, client.BitLen())}, perAddress, ofAddress})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, one := range parts {
		t := b.tries(one.trier, one.Allowance, now)
		if wait := t.blocked.Sub(now); wait > 0 {
			b.refused.WithLabelValues(one.kind).Inc()
			return nil, wait
		}
		if t.left-t.open < 1 {
			b.refused.WithLabelValues(one.kind).Inc()
			return nil, time.Duration(float64(time.Minute) / one.PerMinute)
		}
	}
	for _, one := range parts {
		b.tries(one.trier, one.Allowance, now).open++
	}
	return func(wrong bool) {
		if wrong {
			b.wrong.WithLabelValues(parts[0].kind).Inc()
			b.uses.of(p.ID).wrong.Add(1)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		now := time.Now()
		for _, one := range parts {
			t := b.tries(one.trier, one.Allowance, now)
			t.open = max(t.open-1, 0)
			if !wrong {
				continue
			}
			if t.left--; t.left < 1 && one.Block > 0 {
				t.blocked = now.Add(one.Block)
			}
		}
	}, 0
}

// before is that a key had tried so many wrong codes in the hour when this server started.
func (b *WrongCodes) before(k *Key, n int) {
	a := PerKey
	if k.Public {
		a = perPublic
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tries(trier{key: k.ID}, a, time.Now())
	t.left = max(0, t.left-float64(n))
}

// tries returns what a trier has left at a time.
func (b *WrongCodes) tries(who trier, a Allowance, now time.Time) *tries {
	t := b.by[who]
	if t == nil {
		if len(b.by) >= b.most {
			b.forget(now)
		}
		t = &tries{left: a.Burst, at: now}
		b.by[who] = t
	}
	t.left = min(a.Burst, t.left+now.Sub(t.at).Minutes()*a.PerMinute)
	t.at = now
	return t
}

// forget makes room: for all who have tried nothing for ten minutes, else for an eighth of the clients. Those could try
// again, within the allowance of their key. Sites, of which there are fewer, go last.
func (b *WrongCodes) forget(now time.Time) {
	for who, t := range b.by {
		if t.open == 0 && now.Sub(t.at) > perAddress.Block {
			delete(b.by, who)
		}
	}
	surplus := len(b.by) - b.most*7/8
	for _, bits := range []int{siteBits + 1, 1} {
		for who, t := range b.by {
			if surplus <= 0 {
				return
			}
			if t.open == 0 && who.of.IsValid() && (who.of.Addr().Is4() || who.of.Bits() >= bits) {
				delete(b.by, who)
				surplus--
			}
		}
	}
}
