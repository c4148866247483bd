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

// Rates bounds the requests of each key at this server by a token bucket. It is used by all requests at once. A restart, and a
// change of the rate, give every key its burst again.
type Rates struct {
	limit   func() Rate
	most    int
	refused prometheus.Counter

	mu     sync.Mutex // guards the fields below
	of     Rate       // that the buckets have
	policy string     // the header
	by     map[string]*rate.Limiter
}

// NewRates returns Rates whose limit is read for each request. A nil registerer means that refusals are not counted anywhere.
func NewRates(limit func() Rate, metrics prometheus.Registerer) *Rates {
	r := &Rates{limit: limit, most: maxRated, by: map[string]*rate.Limiter{}, refused: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "scrip_http_rate_limited_total", Help: "HTTP requests that were refused because their key has used its rate, see setting http.rate.",
	})}
	if metrics != nil {
		metrics.MustRegister(r.refused)
	}
	return r
}

// take counts a request of a principal, and returns the Problem 429 if it is one too many. The credentials of the data directory
// have no limit. It sets the headers of draft-ietf-httpapi-ratelimit-headers-10: RateLimit-Policy with the quota (q) and the
// seconds in which it is filled (w); RateLimit with the requests left (r) and the seconds until all are (t).
func (r *Rates) take(h http.Header, p access.Principal) *Problem {
	if r == nil || p.ID == "" {
		return nil
	}
	limit := r.limit()
	if limit.PerSecond <= 0 {
		return nil
	}
	if limit.Burst <= 0 {
		limit.Burst = limit.PerSecond
	}
	now := time.Now()
	bucket, policy := r.bucket(p.ID, limit, now)
	allowed := bucket.AllowN(now, 1)
	left := max(0, bucket.TokensAt(now))
	filled := (float64(limit.Burst) - left) / float64(limit.PerSecond)
	h.Set("RateLimit-Policy", policy)
	h.Set("RateLimit", `"key";r=`+strconv.Itoa(int(left))+`;t=`+strconv.Itoa(int(math.Ceil(filled))))
	if allowed {
		return nil
	}
	r.refused.Inc()
	wait := time.Duration((1 - left) / float64(limit.PerSecond) * float64(time.Second))
	return New(RateLimited, fmt.Sprintf("this key may make %d requests a second, and %d at once; send fewer, or many commands in one request to /v1/commands", limit.PerSecond, limit.Burst)).
		After(wait)
}

// bucket returns the bucket of a key, and the header that describes it.
func (r *Rates) bucket(id string, limit Rate, now time.Time) (*rate.Limiter, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of != limit {
		clear(r.by)
		r.of = limit
		r.policy = fmt.Sprintf(`"key";q=%d;w=%d`, limit.Burst, (limit.Burst+limit.PerSecond-1)/limit.PerSecond)
	}
	b := r.by[id]
	if b == nil {
		if len(r.by) >= r.most {
			r.forget(now)
		}
		b = rate.NewLimiter(rate.Limit(limit.PerSecond), limit.Burst)
		r.by[id] = b
	}
	return b, r.policy
}

// forget makes room: for full buckets, which are like new ones, and then for any until an eighth is free.
func (r *Rates) forget(now time.Time) {
	for id, b := range r.by {
		if b.TokensAt(now) >= float64(r.of.Burst) {
			delete(r.by, id)
		}
	}
	for id := range r.by {
		if len(r.by) <= r.most*7/8 {
			return
		}
		delete(r.by, id)
	}
}
