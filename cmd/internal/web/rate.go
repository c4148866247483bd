package web

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/seed-4a2410e3/scrip/streams/access"
)

// maxRated bounds the keys whose requests are counted. Only requests of known keys are, so it is reached by no client.
const maxRated = 1 << 14

// Rate is how many requests a key may make: PerSecond in the long run, Burst at once. PerSecond 0 = any number; Burst 0 = those
// of one second.
type Rate struct{ PerSecond, Burst int }

// Rates bounds the requests of each key at this server by a token bucket: those of a key with a rate of its own over HTTP and
// NATS together, those of others over HTTP alone. It is used by all requests at once. A restart, and a change of the rate, give
// a key its burst again. A key and those that replaced it are one.
type Rates struct {
	limit   func() Rate
	most    int
	refused prometheus.Counter

	mu sync.Mutex // guards by
	by map[string]*bucket
}

// bucket is one of Rates.
type bucket struct {
	*rate.Limiter
	of     Rate
	policy string // the header
}

// NewRates returns Rates whose limit, of keys without a rate of their own, is read for each request. A nil registerer means that
// refusals are not counted anywhere.
func NewRates(limit func() Rate, metrics prometheus.Registerer) *Rates {
	r := &Rates{limit: limit, most: maxRated, by: map[string]*bucket{}, refused: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "scrip_rate_limited_total", Help: "Requests that were refused because their key has used its rate: that of the key, or over HTTP that of setting http.rate.",
	})}
	if metrics != nil {
		metrics.MustRegister(r.refused)
	}
	return r
}

// Take counts a request of a key that has a rate of its own. It is for requests over NATS, and for each line of many in one
// request. wait is 0, or, if it is one too many, how long until there is room for one.
func (r *Rates) Take(p access.Principal) (wait time.Duration) {
	if r == nil || p.Rate == 0 {
		return 0
	}
	now := time.Now()
	return r.count(r.bucket(p.Client(), Rate{p.Rate, p.Rate}, now), now)
}

// count takes a token, or returns how long until there is one.
func (r *Rates) count(b *bucket, now time.Time) (wait time.Duration) {
	if b.AllowN(now, 1) {
		return 0
	}
	r.refused.Inc()
	return max(1, time.Duration((1-b.TokensAt(now))/float64(b.of.PerSecond)*float64(time.Second)))
}

// take counts a request of a principal, and returns the Problem 429 if it is one too many. The credentials of the data directory
// have no limit. It sets the headers of draft-ietf-httpapi-ratelimit-headers-10: RateLimit-Policy with the quota (q) and the
// seconds in which it is filled (w); RateLimit with the requests left (r) and the seconds until all are (t).
func (r *Rates) take(h http.Header, p access.Principal) *Problem {
	if r == nil || p.ID == "" {
		return nil
	}
	limit := Rate{PerSecond: p.Rate}
	if p.Rate == 0 {
		limit = r.limit()
	}
	if limit.PerSecond <= 0 {
		return nil
	}
	if limit.Burst <= 0 {
		limit.Burst = limit.PerSecond
	}
	now := time.Now()
	b := r.bucket(p.Client(), limit, now)
	wait := r.count(b, now)
	left := max(0, b.TokensAt(now))
	filled := (float64(limit.Burst) - left) / float64(limit.PerSecond)
	h.Set("RateLimit-Policy", b.policy)
	h.Set("RateLimit", `"key";r=`+strconv.Itoa(int(left))+`;t=`+strconv.Itoa(int(math.Ceil(filled))))
	if wait == 0 {
		return nil
	}
	fewer := "send fewer"
	if p.Rate == 0 { // else lines count, too
		fewer += ", or many commands in one request to /v1/commands"
	}
	return New(RateLimited, fmt.Sprintf("this key may make %d requests a second, and %d at once; %s", limit.PerSecond, limit.Burst, fewer)).After(wait)
}

// bucket returns the bucket of a client.
func (r *Rates) bucket(client string, limit Rate, now time.Time) *bucket {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.by[client]
	if b == nil && len(r.by) >= r.most {
		r.forget(now)
	}
	if b == nil || b.of != limit {
		b = &bucket{rate.NewLimiter(rate.Limit(limit.PerSecond), limit.Burst), limit,
			fmt.Sprintf(`"key";q=%d;w=%d`, limit.Burst, (limit.Burst+limit.PerSecond-1)/limit.PerSecond)}
		r.by[client] = b
	}
	return b
}

// forget makes room: for full buckets, which are like new ones, and then for any until an eighth is free.
func (r *Rates) forget(now time.Time) {
	for client, b := range r.by {
		if b.TokensAt(now) >= float64(b.of.Burst) {
			delete(r.by, client)
		}
	}
	for client := range r.by {
		if len(r.by) <= r.most*7/8 {
			return
		}
		delete(r.by, client)
	}
}
