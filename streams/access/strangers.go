package access

import (
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/seed-4a2410e3/scrip/streams/share"
)

// StrangerBurst is how many attempts an address has at once; it is changed by tests alone. A person who mistypes a key stays
// within it, and so does a program that starts again and again with a key that was revoked.
var StrangerBurst = 10

const (
	// strangerRate is how many attempts an address has a second in the long run.
	strangerRate = 1
	// siteShare is how many addresses' attempts a /48 of IPv6 has, which one client can have whole.
	siteShare = 10
)

// maxStrangers bounds the networks that are remembered. Beyond that, those with no attempt of late are forgotten first.
const maxStrangers = 1 << 16

// The doors that strangers knock at, in metrics.
const (
	DoorHTTP = "http"
	DoorNATS = "nats"
)

// Strangers counts the attempts of addresses without a key in force, over HTTP and NATS together: ten at once, and then one a
// second. Requests and log-ins with a key in force are not counted, and are served whatever others at their address did. It is
// used by all requests and log-ins at once. A restart gives each address its burst again.
type Strangers struct {
	over *prometheus.CounterVec

	burst int

	mu   sync.Mutex // guards by
	by   map[netip.Prefix]*rate.Limiter
	most int
}

// NewStrangers returns a Strangers. A nil registerer means that attempts are not counted anywhere else.
func NewStrangers(metrics prometheus.Registerer) *Strangers {
	s := &Strangers{burst: StrangerBurst, by: map[netip.Prefix]*rate.Limiter{}, most: maxStrangers, over: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "scrip_strangers_slowed_total", Help: "Attempts without a key in force beyond what their address may make, by door: http (requests) or nats (log-ins).",
	}, []string{"door"})}
	s.over.WithLabelValues(DoorHTTP)
	s.over.WithLabelValues(DoorNATS)
	if metrics != nil {
		metrics.MustRegister(s.over)
	}
	return s
}

// Wrong counts an attempt at a door, and reports whether it is one too many.
func (s *Strangers) Wrong(door string, from netip.Addr) (over bool) {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	client := Network(from)
	over = !s.bucket(netip.PrefixFrom(client, client.BitLen()), strangerRate, s.burst).Allow()
	if of, ok := site(from); ok && !over {
		over = !s.bucket(of, siteShare*strangerRate, siteShare*s.burst).Allow()
	}
	if over {
		s.over.WithLabelValues(door).Inc()
	}
	return over
}

// bucket returns the bucket of a network.
func (s *Strangers) bucket(of netip.Prefix, perSecond rate.Limit, burst int) *rate.Limiter {
	b := s.by[of]
	if b == nil {
		if len(s.by) >= s.most {
			likeNew := func(b *rate.Limiter) bool { return b.Tokens() >= float64(b.Burst()) }
			share.Forget(s.by, s.most, likeNew, func(of netip.Prefix) bool { return of.Bits() == siteBits })
		}
		b = rate.NewLimiter(perSecond, burst)
		s.by[of] = b
	}
	return b
}
