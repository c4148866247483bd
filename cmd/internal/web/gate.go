package web

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/once"
	"github.com/seed-4a2410e3/scrip/streams/share"
)

// CampaignValue is the name of the path wildcard that holds a campaign's name, in every route that has one.
const CampaignValue = "campaign"

// Keys are the keys that open this server; an access.Registry.
type Keys interface {
	// Authenticate returns the principal of a key. Its errors are access.ErrUnknownKey, access.ErrRevoked, or another one when
	// the key could not be checked.
	Authenticate(key string) (access.Principal, error)
	// Principal returns who uses the key of an id; its errors are those of Authenticate.
	Principal(id string) (access.Principal, error)
	// AllowsOrigin reports whether a public key in force is for pages of an origin.
	AllowsOrigin(origin string) bool
}

// Gate authenticates requests and checks what they may do. The zero value refuses all.
type Gate struct {
	// Keys are checked for Authorization: Bearer. Nil = there are none.
	Keys Keys
	// Owner reports whether a user name and password, of Authorization: Basic, are the credentials of the server's data
	// directory. They have the rights of an operator. Nil = there are none.
	Owner func(user, password string) bool
	// Rates bounds the requests of each key. Nil = there is no bound.
	Rates *Rates
	// Tokens remembers tokens. Nil = none can be made.
	Tokens *once.Store
}

// Enter identifies the sender of a new request, by its token if that is not "", and counts the request against its rate. It sets
// headers of the answer, also of a refusal.
func (g *Gate) Enter(w http.ResponseWriter, r *http.Request, token string) (p access.Principal, problem *Problem) {
	if p, ok := Within(r.Context()); ok {
		return p, nil
	}
	if problem := foreignPage(r); problem != nil {
		return p, problem
	}
	if token != "" && r.Header["Authorization"] == nil {
		p, problem = g.take(r.Context(), token)
	} else {
		p, problem = g.Identify(r)
	}
	Identified(w, problem == nil || problem.Code != Unauthorized)
	if problem == nil {
		problem = checkOrigin(w, r, p)
	}
	if problem == nil {
		problem = g.Rates.take(w.Header(), p)
	}
	return p, problem
}

// Identify returns the principal of a request, or the Problem 401.
func (g *Gate) Identify(r *http.Request) (access.Principal, *Problem) {
	header := r.Header["Authorization"]
	if len(header) == 0 {
		return access.Principal{}, unauthorized("send a key: Authorization: Bearer KEY (scrip access create makes one), or the credentials in http_url of scrip.json")
	}
	if len(header) > 1 {
		return access.Principal{}, unauthorized("the header Authorization is given twice; send it once")
	}
	scheme, key, _ := strings.Cut(header[0], " ")
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		return g.bearer(strings.TrimSpace(key))
	case strings.EqualFold(scheme, "Basic"):
		user, password, ok := r.BasicAuth()
		if ok && g.Owner != nil && g.Owner(user, password) {
			return access.Local(user), nil // no key has such a name
		}
		return access.Principal{}, unauthorized("these are not the credentials in http_url of scrip.json")
	}
	return access.Principal{}, unauthorized("Authorization must start with Bearer (a key) or Basic (the credentials in scrip.json)")
}

func (g *Gate) bearer(key string) (access.Principal, *Problem) {
	if g.Keys == nil {
		return access.Principal{}, unauthorized("this server has no keys; send the credentials in http_url of scrip.json")
	}
	p, err := g.Keys.Authenticate(key)
	return p, unknown(err)
}

// Still returns the Problem of a principal whose key is not in force any more.
func (g *Gate) Still(p access.Principal) *Problem {
	if p.ID == "" {
		return nil
	}
	_, err := g.Keys.Principal(p.ID)
	return unknown(err)
}

// unknown is the Problem of a key that the registry refused.
func unknown(err error) *Problem {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, access.ErrRevoked):
		return unauthorized("the key was revoked; scrip access create makes another")
	case errors.Is(err, access.ErrUnknownKey):
		return unauthorized("the key is not known; scrip access list shows those that are")
	}
	return New(Unavailable, "the key cannot be checked at the moment: "+err.Error())
}

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
		share.Forget(r.by, r.most, func(b *bucket) bool { return b.TokensAt(now) >= float64(b.of.Burst) }, nil)
	}
	if b == nil || b.of != limit {
		b = &bucket{rate.NewLimiter(rate.Limit(limit.PerSecond), limit.Burst), limit,
			fmt.Sprintf(`"key";q=%d;w=%d`, limit.Burst, (limit.Burst+limit.PerSecond-1)/limit.PerSecond)}
		r.by[client] = b
	}
	return b
}

// Check returns nil if p may do o to a campaign, else the Problem 403. campaign "" = the request names none: then a principal
// that is limited to campaigns is refused.
func Check(p access.Principal, o access.Operation, campaign string) *Problem {
	return forbidden(p.Check(o, campaign))
}

// CheckRole is Check without the campaign: its caller checks that as soon as it is known.
func CheckRole(p access.Principal, o access.Operation) *Problem { return forbidden(p.CheckRole(o)) }

func forbidden(why error) *Problem {
	if why == nil {
		return nil
	}
	return New(Forbidden, why.Error())
}

func unauthorized(detail string) *Problem {
	p := New(Unauthorized, detail)
	p.header("WWW-Authenticate", `Bearer realm="scrip", Basic realm="scrip"`)
	return p
}

// Body appends a request's body to buf. It reads at most `most` bytes; a longer body is the Problem 413, and the connection
// ends.
func Body(w http.ResponseWriter, r *http.Request, buf []byte, most int) ([]byte, *Problem) {
	if problem := CheckLength(w, r, int64(most)); problem != nil {
		return buf, problem
	}
	body, start := r.Body, len(buf)
	if r.ContentLength < 0 { // chunked: the length is not known
		body = http.MaxBytesReader(w, body, int64(most))
	}
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if int64(len(buf)-start) == r.ContentLength {
			return buf, nil
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return buf, nil
		default:
			return buf, unread(w, err, most)
		}
	}
}

// CheckLength returns the Problem 413 of a body that is announced as longer than most bytes, before any of it is read. The
// connection ends after the answer.
func CheckLength(w http.ResponseWriter, r *http.Request, most int64) *Problem {
	if r.ContentLength <= most {
		return nil
	}
	w.Header().Set("Connection", "close")
	return tooLarge(most)
}

// unread is the Problem of a body that could not be read.
func unread(w http.ResponseWriter, err error, most int) *Problem {
	w.Header().Set("Connection", "close")
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return tooLarge(int64(most))
	}
	if Late(err) {
		return New(TooSlow, "the body did not arrive within "+ReadWait.String())
	}
	return New(Malformed, "the body ended too early: "+err.Error())
}

// Late reports whether err is that of a deadline.
func Late(err error) bool {
	var n net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

func tooLarge(most int64) *Problem {
	return New(TooLarge, fmt.Sprintf("the body is longer than %d bytes, the most that this route takes", most)).At("body", "too long")
}

// CheckMediaType returns the Problem 415 unless the body is of type want. A body without Content-Type is taken as of that type.
func CheckMediaType(r *http.Request, want string) *Problem {
	if given := r.Header["Content-Type"]; len(given) == 0 || len(given) == 1 && given[0] == want {
		return nil
	}
	return New(WrongMediaType, "Content-Type must be "+want).At("header.Content-Type", "must be "+want)
}
