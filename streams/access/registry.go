package access

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
)

// The errors of Authenticate.
var (
	// ErrUnknownKey: no key of this log. It is the answer to a text of another form, too.
	ErrUnknownKey = errors.New("the key is not known here")
	// ErrRevoked: the key was revoked, or replaced by another.
	ErrRevoked = errors.New("the key was revoked or replaced")
	// ErrNotReady: this server has not read the keys yet, so it cannot check one. The client retries.
	ErrNotReady = errors.New("the keys are not read yet; retry")
)

// Registry is the keys, folded from the bucket, current within a second on every server. It is a collector of metrics to
// register.
type Registry struct {
	*registry.Live[*state, record]
	store   *Store
	keys    atomic.Pointer[map[string]*Key] // immutable; nil = not read yet
	uses    uses
	Wrong   *WrongCodes
	end     chan struct{} // holds a token while the ends of keys have to be looked at again
	refused *prometheus.CounterVec
	counts  struct{ unknown, revoked, notReady prometheus.Counter }
	number  prometheus.Gauge

	// InForce is for tests: the revision of the last change, each time when the keys that were read are in force.
	InForce testsignal.Signal[uint64]

	mu       sync.Mutex // guards the fields below
	watchers map[int]func(id string)
	next     int

	// ended are the keys whose end was reported to watchers; owned by the goroutine of watchEnds.
	ended map[string]bool
}

// Registry returns the keys, which its Run keeps current. Until it has read them no key is known.
func (s *Store) Registry() *Registry {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "scrip_keys_refused_total", Help: "Keys that were refused, by reason."}, []string{"reason"})
	r := &Registry{
		store: s, uses: uses{stored: map[string]time.Time{}}, end: make(chan struct{}, 1), watchers: map[int]func(string){}, ended: map[string]bool{},
		number: prometheus.NewGauge(prometheus.GaugeOpts{Name: "scrip_keys", Help: "Keys in force, as this server has read them."}),
	}
	r.Live = s.history.Live(r.put)
	r.refused, r.Wrong = refused, newWrongCodes(&r.uses)
	r.counts.unknown, r.counts.revoked, r.counts.notReady = refused.WithLabelValues("unknown"), refused.WithLabelValues("revoked"), refused.WithLabelValues("not_ready")
	return r
}

// Describe and Collect make it a [prometheus.Collector].
func (r *Registry) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(r, to) }

// Collect is described at Describe.
func (r *Registry) Collect(to chan<- prometheus.Metric) {
	r.refused.Collect(to)
	r.number.Collect(to)
	r.Wrong.wrong.Collect(to)
	r.Wrong.refused.Collect(to)
}

// Authenticate returns the principal of a key as a client presents it. Errors: ErrUnknownKey, ErrRevoked, ErrNotReady. It
// takes the same time for each key of the right form that is not the one stored.
func (r *Registry) Authenticate(key string) (Principal, error) {
	keys := r.keys.Load()
	if keys == nil {
		r.counts.notReady.Inc()
		return Principal{}, ErrNotReady
	}
	role, id, err := ParseKey(key)
	if err != nil {
		r.counts.unknown.Inc()
		return Principal{}, ErrUnknownKey
	}
	k := (*keys)[id]
	if k == nil {
		k = &Key{}
	}
	presented := digest(key)
	if subtle.ConstantTimeCompare(presented[:], k.hash[:]) != 1 || k.Role != role {
		r.counts.unknown.Inc()
		return Principal{}, ErrUnknownKey
	}
	now := r.store.history.Clock.Now()
	if !k.In(now) {
		r.counts.revoked.Inc()
		return Principal{}, ErrRevoked
	}
	r.uses.note(id, now)
	return k.Principal(), nil
}

// Principal returns who uses the key of that id, if it is in force. It is for requests that were authenticated elsewhere,
// such as by the log-in to NATS.
func (r *Registry) Principal(id string) (Principal, error) {
	keys := r.keys.Load()
	if keys == nil {
		return Principal{}, ErrNotReady
	}
	k, now := (*keys)[id], r.store.history.Clock.Now()
	switch {
	case k == nil:
		return Principal{}, ErrUnknownKey
	case !k.In(now):
		return Principal{}, ErrRevoked
	}
	r.uses.note(id, now)
	return k.Principal(), nil
}

// AllowsOrigin reports whether a key in force is for pages of an origin.
func (r *Registry) AllowsOrigin(origin string) bool {
	keys, now := r.keys.Load(), r.store.history.Clock.Now()
	if keys == nil {
		return false
	}
	for _, k := range *keys {
		if slices.Contains(k.Origins, origin) && k.In(now) {
			return true
		}
	}
	return false
}

// Logins are the keys in force that open PostgreSQL, by name; nil before keys are read. Of a rotated key and its
// replacement it is the newest: a role of PostgreSQL has one password.
func (r *Registry) Logins() []Login {
	keys, now := r.keys.Load(), r.store.history.Clock.Now()
	if keys == nil {
		return nil
	}
	newest := map[string]*Key{}
	for _, k := range *keys {
		if was := newest[k.Name]; k.scram != "" && k.In(now) && (was == nil || was.Created.Before(k.Created)) {
			newest[k.Name] = k
		}
	}
	all := []Login{}
	for _, k := range newest {
		all = append(all, Login{k.Name, cmp.Or(k.first, k.ID), k.scram, k.Codes, k.Customers})
	}
	slices.SortFunc(all, func(a, b Login) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// uses are when keys were used last, as this server knows.
type uses struct {
	at sync.Map // id of a key → *use

	stored map[string]time.Time // owned by Run: what was stored last, per key
}

type use struct {
	seconds atomic.Int64 // since 1970
	wrong   atomic.Int64 // wrong codes that are not stored yet
}

// of returns the use of a key.
func (u *uses) of(id string) *use {
	v, ok := u.at.Load(id)
	if !ok {
		v, _ = u.at.LoadOrStore(id, &use{})
	}
	return v.(*use)
}

// note records a use. It is called with every request.
func (u *uses) note(id string, now time.Time) {
	if of, s := u.of(id), now.Unix(); of.seconds.Load() < s { // most requests of a second only read
		of.seconds.Store(s)
	}
}

// Watch calls revoked with a key's id when it is revoked or replaced, so that streams in progress end. It is called by a
// goroutine of Run and must return at once. For a key that had ended before the call of Watch it may be called, too.
func (r *Registry) Watch(revoked func(id string)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.next
	r.next++
	r.watchers[n] = revoked
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watchers, n)
	}
}

// Run keeps the keys current until ctx ends, and then returns nil. It retries after every failure; the keys that were
// read last stay in force. It may be run once.
func (r *Registry) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { return r.Live.Run(ctx) })
	g.Go(func() error { r.watchEnds(ctx); return nil })
	g.Go(func() error { r.storeUses(ctx); return nil })
	return g.Wait()
}

// storeUses stores how keys were used, until ctx ends, after it has read what was tried with them in this hour.
func (r *Registry) storeUses(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-r.Ready():
	}
	used, err := r.store.used(ctx)
	for id, u := range used {
		if k, n := (*r.keys.Load())[id], u.wrongIn(r.store.history.Clock.Now()); k != nil && n > 0 {
			r.Wrong.before(k, n)
		}
	}
	tick := time.NewTicker(useLook)
	defer tick.Stop()
	for {
		if err != nil && ctx.Err() == nil {
			r.store.history.Logger.Warn("how keys were used could not be read or stored", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			err = r.uses.store(ctx, r.store)
		}
	}
}

// watchEnds reports keys that end to the watchers: those that a change ended, and those whose overlap is over.
func (r *Registry) watchEnds(ctx context.Context) {
	for {
		now := r.store.history.Clock.Now()
		soonest := time.Hour
		if keys := r.keys.Load(); keys != nil {
			for id, k := range *keys {
				switch {
				case k.Ended.IsZero() || r.ended[id]:
				case k.In(now):
					soonest = min(soonest, k.Ended.Sub(now))
				default:
					r.ended[id] = true
					r.report(id)
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-r.end:
		case <-r.store.history.Clock.After(soonest):
		}
	}
}

func (r *Registry) report(id string) {
	r.mu.Lock()
	all := maps.Clone(r.watchers)
	r.mu.Unlock()
	for _, revoked := range all {
		revoked(id)
	}
}

// put puts the keys of a fold in force.
func (r *Registry) put(f *registry.Fold[*state, record]) {
	keys := maps.Clone(f.State.keys)
	r.keys.Store(&keys)
	now, in := r.store.history.Clock.Now(), 0
	for _, k := range keys {
		if k.In(now) {
			in++
		}
	}
	r.number.Set(float64(in))
	select {
	case r.end <- struct{}{}:
	default:
	}
	r.InForce.Send(f.Last().Revision)
}
