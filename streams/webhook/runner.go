package webhook

import (
	"context"
	"crypto/x509"
	"errors"
	"hash/fnv"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/webhook/signature"
)

const (
	// LeaseGroup is the group of leases that spread the endpoints over servers, and slots how many there are: an endpoint
	// belongs to the slot that its id hashes to.
	LeaseGroup = "webhook"
	slots      = 4
	// lookEvery is how often a server looks for new changes.
	lookEvery = time.Second
	// recordFor bounds storing a change.
	recordFor = 10 * time.Second
	// again is the pause before an endpoint whose run failed is run again.
	again = 5 * time.Second
)

// schedule are the waits between tries, as in the specification's example: ten tries within three days.
var schedule = []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour}

// Options for New.
type Options struct {
	JetStream jetstream.JetStream
	Log       topology.Log
	CodeKey   [32]byte
	// Server names this server in leases.
	Server string
	Guard  *Guard
	// Roots are the certificates to trust; nil = the system's. Resolver is nil for the system's.
	Roots    *x509.CertPool
	Resolver *net.Resolver
	// Clock defaults to the machine's.
	Clock  push.Clock
	Logger *slog.Logger

	timeout time.Duration // of a request; 0 = requestTimeout. Shorter in tests.
}

// Runner delivers to the endpoints of which this server has the lease.
type Runner struct {
	o     Options
	store *Store
	key   *Key

	mu      sync.Mutex // guards the fields below
	now     []Endpoint
	gone    map[string]*Endpoint
	changed chan struct{} // closed when there are other ones
	running map[string]*runs
}

// runs are the pushers of an endpoint in this process.
type runs struct {
	pushers []*push.Pusher
}

// New makes a Runner. It sends no request.
func New(o Options) *Runner {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	key := NewKey(o.CodeKey, o.Log.UUID)
	return &Runner{o: o, key: key, store: Open(o.JetStream, key), changed: make(chan struct{}), running: map[string]*runs{}}
}

// Run delivers until ctx ends, and then returns nil. As long as there was never a webhook it only looks for one.
func (r *Runner) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { r.follow(ctx); return nil })
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

// follow folds all changes whenever there is a new one. While NATS is unreachable the endpoints stay as they are.
func (r *Runner) follow(ctx context.Context) {
	seen := uint64(0)
	for {
		newest, err := r.store.newest(ctx)
		if err == nil && newest != seen {
			short, done := context.WithTimeout(ctx, recordFor)
			var reg *registry
			if reg, err = r.store.read(short); err == nil {
				seen = newest
				r.mu.Lock()
				r.now, r.gone = reg.list(), reg.gone
				close(r.changed)
				r.changed = make(chan struct{})
				r.mu.Unlock()
			}
			done()
		}
		if err != nil && ctx.Err() == nil {
			r.o.Logger.Debug("the webhooks were not read; the last ones stay in force", "err", err)
		}
		if topology.Pause(ctx, lookEvery) != nil {
			return
		}
	}
}

func (r *Runner) state() ([]Endpoint, map[string]*Endpoint, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now, r.gone, r.changed
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
		stop    context.CancelFunc
		done    chan struct{}
	}
	all := map[string]running{}
	tested, forgotten := map[string]uint64{}, map[string]bool{}
	stop := func(id string) {
		all[id].stop()
		<-all[id].done
		delete(all, id)
	}
	defer func() {
		for _, run := range all {
			run.stop()
		}
		for id := range all {
			<-all[id].done
		}
	}()
	var tests sync.WaitGroup
	defer tests.Wait()
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
			if e.test != 0 && tested[e.ID] != e.test {
				tested[e.ID] = e.test
				tests.Go(func() { r.test(ctx, e) })
			}
		}
		for id, run := range all {
			if e, ok := want[id]; !ok || e.version != run.version {
				stop(id)
			}
		}
		for id, e := range gone {
			if slotOf(id) == slot && !forgotten[id] {
				forgotten[id] = r.forget(ctx, e, e.generation)
			}
		}
		for id, e := range want {
			if _, ok := all[id]; ok {
				continue
			}
			ectx, cancel := context.WithCancel(ctx)
			run := running{e.version, cancel, make(chan struct{})}
			all[id] = run
			go func() {
				defer close(run.done)
				r.keep(ectx, e)
			}()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// forget removes what is kept of the audiences of an endpoint up to a generation.
func (r *Runner) forget(ctx context.Context, e *Endpoint, through int) bool {
	for old := *e; old.generation >= 0; old.generation-- {
		if old.generation > through {
			continue
		}
		for _, reminders := range []bool{false, true} {
			if err := push.Forget(ctx, r.o.JetStream, old.audience(reminders), r.o.Log.Lanes); err != nil {
				r.o.Logger.Warn("what is kept of a webhook that is gone could not be removed yet", "webhook", e.ID, "err", err)
				return false
			}
		}
	}
	return true
}

// keep runs an endpoint, again after errors.
func (r *Runner) keep(ctx context.Context, e Endpoint) {
	if e.generation > 0 {
		r.forget(ctx, &e, e.generation-1)
	}
	for ctx.Err() == nil {
		if err := r.endpoint(ctx, e); err != nil && ctx.Err() == nil {
			r.o.Logger.Error("a webhook is not served; it is started again", "webhook", e.ID, "err", err)
			_ = topology.Pause(ctx, again) // the loop checks ctx
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
	clock := r.o.Clock
	if clock == nil {
		clock = push.Machine
	}
	t := transport(r.o.Guard, r.o.Roots, r.o.Resolver)
	s := newSender(e, secrets, t, clock, func(ctx context.Context, c Change) {
		c.Webhook = e.ID
		r.record(ctx, c)
	})
	if r.o.timeout > 0 {
		s.client.Timeout = r.o.timeout
	}
	return s, nil
}

// record stores a change by this server. One that is not stored is made again by a later request.
func (r *Runner) record(ctx context.Context, c Change) {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), recordFor)
	defer done()
	c.By = "scrip serve"
	level := slog.LevelWarn
	if c.What == Tested || c.What == Works {
		level = slog.LevelInfo
	}
	r.o.Logger.Log(ctx, level, "a webhook changed", "webhook", c.Webhook, "what", c.What, "reason", c.Reason)
	if _, err := r.store.Append(ctx, c); err != nil {
		r.o.Logger.Warn("a change of a webhook was not stored", "webhook", c.Webhook, "what", c.What, "err", err)
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
	var both runs
	for _, reminders := range []bool{false, true} {
		if !e.wants(reminders) {
			continue
		}
		p, err := push.NewEvents(r.o.JetStream, push.Options{
			Name: e.audience(reminders), Workers: e.Concurrency, Batch: e.Batch, Timeout: 2 * time.Minute, Tries: len(schedule) + 1, Pause: 5 * time.Second, Schedule: schedule,
			MaxAge: time.Duration(e.MaxAgeHours) * time.Hour, Grace: 3 * time.Second, Since: push.From(e.Since), SealKey: seal.Text(r.o.CodeKey, r.o.Log.UUID),
			Clock: r.o.Clock, Logger: r.o.Logger,
		}, push.Events{Reminders: reminders, Pass: func(ev *wire.Event) bool { return e.passes(ev) }})
		if err != nil {
			return err
		}
		both.pushers = append(both.pushers, p)
		g.Go(func() error { return p.RunEvents(ctx, s.push) })
	}
	r.mu.Lock()
	r.running[e.ID] = &both
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.running, e.ID)
		r.mu.Unlock()
	}()
	err = g.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// test makes the request that a change asks for, and stores its result.
func (r *Runner) test(ctx context.Context, e Endpoint) {
	s, err := r.sender(e)
	result := ""
	if err != nil {
		result = err.Error()
	} else {
		result = s.test(ctx, e.test)
		s.client.CloseIdleConnections()
	}
	r.record(ctx, Change{Webhook: e.ID, What: Tested, Reason: result})
}

// Stats returns the sum over the pushers of each endpoint that this server delivers to.
func (r *Runner) Stats() map[string]push.Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]push.Stats{}
	for id, run := range r.running {
		var sum push.Stats
		for _, p := range run.pushers {
			st := p.Stats()
			sum.Pushed, sum.FailedTries, sum.Dead = sum.Pushed+st.Pushed, sum.FailedTries+st.FailedTries, sum.Dead+st.Dead
			sum.Away = sum.Away || st.Away
		}
		all[id] = sum
	}
	return all
}
