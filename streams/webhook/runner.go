package webhook

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"hash/fnv"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/once"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
	"github.com/seed-4a2410e3/scrip/streams/webhook/signature"
)

const (
	// LeaseGroup is the group of leases that spread the endpoints over servers, and slots how many there are: an endpoint
	// belongs to the slot that its id hashes to.
	LeaseGroup = "webhook"
	slots      = 4
	// recordFor bounds storing a change.
	recordFor = 10 * time.Second
	// again is the pause before an endpoint whose run failed is run again, and before deleted ones are forgotten again.
	again = 5 * time.Second
)

// Options for New.
type Options struct {
	JetStream jetstream.JetStream
	Log       topology.Log
	CodeKey   [32]byte
	// Server names this server in leases.
	Server string
	Guard  *Guard
	// Attempts keeps the last requests, for people; nil = they are not kept.
	Attempts *once.Store
	// Roots are the certificates to trust; nil = the system's. Resolver is nil for the system's.
	Roots    *x509.CertPool
	Resolver *net.Resolver
	// Clock is nil for the machine's.
	Clock  wall.Clock
	Logger *slog.Logger

	// Shorter in tests; 0 = requestTimeout, the default of package push, and the constants again and rehearsalMost.
	timeout, ackWait time.Duration
	again, rehearsal time.Duration
}

// Runner delivers to the endpoints of which this server has the lease.
type Runner struct {
	o     Options
	store *Store
	key   *Key

	// Changed is for tests: it is sent when Stats or the webhooks in force have changed, a change by this server is stored, or
	// something was forgotten.
	Changed testsignal.Signal[struct{}]

	mu      sync.Mutex // guards the fields below
	read    bool       // now is what the log has
	now     []Endpoint
	gone    map[string]*Endpoint
	changed chan struct{}             // closed when there are other ones
	running map[string][]*push.Pusher // of each endpoint, in this process
}

// New makes a Runner. It sends no request.
func New(o Options) *Runner {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = wall.Machine
	}
	key := NewKey(o.CodeKey, o.Log.UUID)
	store := Open(o.JetStream, key, registry.Options{Logger: o.Logger, Audit: audit.Open(o.JetStream, nil)})
	return &Runner{o: o, key: key, store: store, changed: make(chan struct{}), running: map[string][]*push.Pusher{}}
}

// Run delivers until ctx ends, and then returns nil. As long as there was never a webhook it only looks for one.
func (r *Runner) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.store.history.Live(r.put).Run(ctx) })
	g.Go(func() error {
		for {
			all, gone, changed := r.state()
			if len(all)+len(gone) > 0 {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return nil
			}
		}
		manager, err := lease.New(r.o.JetStream, LeaseGroup, slots, r.o.Server, lease.Options{Logger: r.o.Logger})
		if err != nil {
			return err
		}
		if err := manager.Run(ctx, r.slot); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	return g.Wait()
}

// put puts the endpoints of a fold in force.
func (r *Runner) put(f *registry.Fold[*state, Change]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read, r.now, r.gone = true, f.State.list(), maps.Clone(f.State.gone)
	close(r.changed)
	r.changed = make(chan struct{})
	r.Changed.Send(struct{}{})
}

func (r *Runner) state() ([]Endpoint, map[string]*Endpoint, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now, r.gone, r.changed
}

// States returns how many endpoints are in each state; nil until they are read.
func (r *Runner) States() map[State]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.read {
		return nil
	}
	counts := map[State]int{}
	for _, s := range States {
		counts[s] = 0
	}
	for i := range r.now {
		counts[r.now[i].State]++
	}
	return counts
}

func slotOf(id string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	return int(h.Sum32() % slots)
}

// slot runs the endpoints of one lease until ctx ends.
func (r *Runner) slot(ctx context.Context, slot int) error {
	type running struct {
		version uint64
		stop    func() // returns when it has ended
	}
	all := map[string]running{}
	started, forgotten := map[uint64]bool{}, map[string]bool{} // started: numbers of changes that request a test or a retry
	var background sync.WaitGroup                              // runs, requests of people, and what is forgotten
	defer background.Wait()                                    // ctx has ended
	for {
		now, gone, changed := r.state()
		want := map[string]Endpoint{}
		for _, e := range now {
			if slotOf(e.ID) != slot {
				continue
			}
			if e.State == Active {
				want[e.ID] = e
			}
			for n, carryOut := range map[uint64]func(context.Context, Endpoint){e.test: r.test, e.retry: r.retry, e.rehearsal: r.rehearse} {
				if n != 0 && !started[n] {
					started[n] = true
					background.Go(func() { carryOut(ctx, e) })
				}
			}
		}
		for id, run := range all {
			if e, ok := want[id]; !ok || e.Version != run.version {
				run.stop()
				delete(all, id)
			}
		}
		for id, e := range want {
			if _, ok := all[id]; ok {
				continue
			}
			ectx, cancel := context.WithCancel(ctx)
			done := make(chan struct{})
			all[id] = running{e.Version, func() { cancel(); <-done }}
			background.Go(func() {
				defer close(done)
				r.keep(ectx, e)
			})
		}
		// Those that are active are delivered to at the same time. After a crash the next server forgets all again.
		var old []*Endpoint
		for id, e := range gone {
			if slotOf(id) == slot && !forgotten[id] {
				forgotten[id] = true
				old = append(old, e)
			}
		}
		if len(old) > 0 {
			background.Go(func() { r.forgetAll(ctx, old, true) })
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// forgetAll is forget for some endpoints, one after the other. Those that fail are retried until ctx ends.
func (r *Runner) forgetAll(ctx context.Context, old []*Endpoint, all bool) {
	for {
		old = slices.DeleteFunc(old, func(e *Endpoint) bool { return ctx.Err() == nil && r.forget(ctx, e, all) })
		if len(old) == 0 || natsx.Pause(ctx, cmp.Or(r.o.again, again)) != nil {
			return
		}
	}
}

// forget removes what is kept of the audiences of an endpoint: those before the present ones, with all also these.
func (r *Runner) forget(ctx context.Context, e *Endpoint, all bool) bool {
	for kind := range e.audiences {
		names := e.names(kind, true)
		if !all {
			names = names[1:]
		}
		for _, name := range names {
			if err := push.Forget(ctx, r.o.JetStream, name, r.o.Log.Lanes); ctx.Err() != nil {
				return false
			} else if err != nil {
				r.o.Logger.Warn("what is kept of a webhook that is gone could not be removed yet", "webhook", e.ID, "err", err)
				return false
			}
			r.Changed.Send(struct{}{})
		}
	}
	return true
}

// keep runs an endpoint, again after errors. Its earlier audiences are forgotten in the background: nothing of the present ones
// depends on them, since a replay starts at a time that is stored and not after what waits. After a crash the next server forgets
// them.
func (r *Runner) keep(ctx context.Context, e Endpoint) {
	var background sync.WaitGroup
	defer background.Wait()
	background.Go(func() { r.forgetAll(ctx, []*Endpoint{&e}, false) })
	for ctx.Err() == nil {
		if err := r.endpoint(ctx, e); err != nil && ctx.Err() == nil {
			r.o.Logger.Error("a webhook is not served; it is started again", "webhook", e.ID, "err", err)
			_ = natsx.Pause(ctx, again) // the loop checks ctx
		}
	}
}

func (r *Runner) sender(e Endpoint) (*sender, error) {
	var secrets []signature.Secret
	for _, sealed := range e.secrets {
		s, err := r.key.open(sealed, e.ID)
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, s)
	}
	t := transport(r.o.Guard, e.URL, r.o.Roots, r.o.Resolver)
	s := newSender(e, secrets, t, r.o.Clock, func(ctx context.Context, c Change) error {
		c.Webhook = e.ID
		return r.record(ctx, c)
	})
	s.tries = &attempts{store: r.o.Attempts, name: attemptsOf(e.ID)}
	if r.o.timeout > 0 {
		s.client.Timeout = r.o.timeout
	}
	return s, nil
}

// record stores a change by this server. An error is logged.
func (r *Runner) record(ctx context.Context, c Change) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), recordFor)
	defer done()
	level := slog.LevelWarn
	if c.What == Tested || c.What == Retried || c.What == Rehearsed || c.What == Works {
		level = slog.LevelInfo
	}
	if _, err := r.store.byServer(ctx, c); err != nil {
		r.o.Logger.Warn("a change of a webhook was not stored", "webhook", c.Webhook, "what", c.What, "reason", c.Reason, "err", err)
		return err
	}
	r.Changed.Send(struct{}{})
	r.o.Logger.Log(ctx, level, "a webhook changed", "webhook", c.Webhook, "what", c.What, "reason", c.Reason)
	return nil
}

// options of package push for an audience of an endpoint.
func (r *Runner) options(e *Endpoint, name string, since time.Time) push.Options {
	return push.Options{
		Name: name, Workers: e.Concurrency, Batch: e.Batch, Timeout: 2 * time.Minute, Tries: len(e.Schedule) + 1, Pause: 5 * time.Second, Schedule: e.waits(),
		MaxAge: time.Duration(e.MaxAge), Grace: 3 * time.Second, Since: push.From(since), SealKey: seal.Text(r.o.CodeKey, r.o.Log.UUID),
		AckWait: r.o.ackWait,
		Clock:   r.o.Clock, Logger: r.o.Logger,
	}
}

// endpoint delivers to one endpoint until ctx ends.
func (r *Runner) endpoint(ctx context.Context, e Endpoint) error {
	s, err := r.sender(e)
	if err != nil {
		return err
	}
	defer s.client.CloseIdleConnections()
	g, ctx := errgroup.WithContext(ctx)
	var pushers []*push.Pusher
	for kind, a := range e.audiences {
		if !e.wants(kind == reminders) {
			continue
		}
		from := push.Events{Reminders: kind == reminders, Pass: func(ev *wire.Event) bool { return e.passes(ev) }}
		p, err := push.NewEvents(r.o.JetStream, r.options(&e, e.name(kind), a.since), from)
		if err != nil {
			return err
		}
		p.Changed = r.Changed
		pushers = append(pushers, p)
		g.Go(func() error { return p.RunEvents(ctx, s.push) })
	}
	r.mu.Lock()
	r.running[e.ID] = pushers
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.running, e.ID)
		r.mu.Unlock()
		r.Changed.Send(struct{}{})
	}()
	err = g.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Stats returns the sum over the pushers of each endpoint that this server delivers to.
func (r *Runner) Stats() map[string]push.Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]push.Stats{}
	for id, pushers := range r.running {
		var sum push.Stats
		for _, p := range pushers {
			st := p.Stats()
			sum.Pushed, sum.FailedTries, sum.Dead = sum.Pushed+st.Pushed, sum.FailedTries+st.FailedTries, sum.Dead+st.Dead
			sum.Away = sum.Away || st.Away
		}
		all[id] = sum
	}
	return all
}
