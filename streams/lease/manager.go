package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// DefaultTTL is how long a dead server's leases block the others: four missed renewals. NATS elections take less
	// than two seconds.
	DefaultTTL = 5 * time.Second
	// renewals per TTL.
	renewals = 4
	// writesAtOnce bounds the renewals under way at one time.
	writesAtOnce = 16
	// rewatchEvery is after how many renewals the bucket is read anew, should an update have been missed.
	rewatchEvery = 6 * renewals
)

// Options for New.
type Options struct {
	// TTL of leases and announcements, at least 1 s; the server counts in whole seconds. Defaults to DefaultTTL.
	TTL time.Duration
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Manager competes for the leases of one group on behalf of one server.
type Manager struct {
	js     jetstream.JetStream
	group  string
	server string
	nonce  string
	opts   Options
	log    *slog.Logger

	// All below is owned by Run.
	kv       jetstream.KeyValue
	watcher  *watcher
	fresh    *view // being filled by the watcher, until complete
	view     *view // nil until the bucket has been read once
	held     map[int]*tenure
	exited   chan int
	stopping bool
	away     bool // while stopping: the server does not answer, do not wait for it once per lease
	ticks    int
	rewatch  bool
	workers  sync.WaitGroup
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// New prepares a manager for the keys 0 … keys-1 of a group. server names this server: the same over restarts (it then
// takes over its own dead predecessor's leases at once), and different from every other server's. Letters, digits, _
// and -.
func New(js jetstream.JetStream, group string, keys int, server string, opts Options) (*Manager, error) {
	if opts.TTL == 0 {
		opts.TTL = DefaultTTL
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	switch {
	case !nameForm.MatchString(group):
		return nil, fmt.Errorf("lease group %q: use 1 to 64 letters, digits, _ and -", group)
	case !nameForm.MatchString(server):
		return nil, fmt.Errorf("server name %q: use 1 to 64 letters, digits, _ and -", server)
	case keys < 1:
		return nil, fmt.Errorf("lease group %s has %d keys, expected at least 1", group, keys)
	case opts.TTL < time.Second:
		return nil, fmt.Errorf("lease TTL is %s, expected at least 1s", opts.TTL)
	}
	m := &Manager{
		js: js, group: group, server: server, nonce: uuid.NewString(), opts: opts,
		log:    opts.Logger.With("group", group, "server", server),
		held:   map[int]*tenure{},
		exited: make(chan int, keys),
	}
	m.fresh = newView(keys)
	return m, nil
}

// Run competes until ctx ends. For every lease acquired it calls work in a goroutine of its own, with a context that is
// cancelled when the lease is lost (cause ErrLost) or must be given up (ErrReleased). Giving up waits for work to
// return, then deletes the lease. Work that returns while the lease is held is called again after a pause that grows
// from 0.2 s to 15 s.
//
// When ctx ends, everything is given up in this way; Run returns ctx's error when all work has returned. A server that
// does not answer is waited for, without end.
func (m *Manager) Run(ctx context.Context, work func(ctx context.Context, key int) error) error {
	tick := time.NewTicker(m.opts.TTL / renewals)
	defer tick.Stop()
	defer m.stopWatching()
	stop := ctx.Done()
	m.renew()
	for {
		m.ensureWatcher()
		var w watcher // with channels that say nothing, while there is none
		if m.watcher != nil {
			w = *m.watcher
		}
		select {
		case <-stop:
			stop = nil
			m.beginStop()
		case key := <-m.exited:
			m.finish(key)
		case u := <-w.updates:
			m.learn(u)
		case <-w.status:
			m.rewatch = true
		case err := <-w.trouble:
			m.log.Debug("reading leases anew", "err", err)
			m.rewatch = true
		case <-tick.C:
			m.renew()
		}
		m.reconcile(work)
		if m.stopping && len(m.held) == 0 {
			m.workers.Wait()
			return ctx.Err()
		}
	}
}

// attempt bounds one exchange with the server, so that a slow one delays renewals by one period at most.
func (m *Manager) attempt() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), m.opts.TTL/renewals)
}

// holds is how long a lease may be counted on after a renewal was sent.
func (m *Manager) holds() time.Duration { return m.opts.TTL - m.opts.TTL/(2*renewals) }

// put writes a key with a TTL. kv.Update would drop the TTL, and the lease would never end.
func (m *Manager) put(key string, since time.Time, opts ...jetstream.PublishOpt) (uint64, error) {
	value, err := json.Marshal(record{Server: m.server, Nonce: m.nonce, Since: since})
	if err != nil {
		return 0, err
	}
	ctx, cancel := m.attempt()
	defer cancel()
	ack, err := m.js.Publish(ctx, "$KV."+topology.LeaseBucket+"."+key, value, append(opts, jetstream.WithMsgTTL(m.opts.TTL))...)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// renew announces the server and renews what it holds, all at once.
func (m *Manager) renew() {
	m.ticks++
	if m.ticks%rewatchEvery == 0 {
		m.rewatch = true
	}
	var g errgroup.Group
	g.SetLimit(writesAtOnce)
	if !m.stopping {
		g.Go(func() error {
			if _, err := m.put(serverKey(m.group, m.server), time.Now().UTC()); err != nil {
				m.log.Debug("server not announced", "err", err)
			}
			return nil
		})
	}
	for _, t := range m.held {
		if t.lost || t.ctx.Err() != nil && !t.leaving {
			continue
		}
		g.Go(func() error { m.renewOne(t); return nil })
	}
	_ = g.Wait()
}

func (m *Manager) renewOne(t *tenure) {
	sent := time.Now()
	revision, err := m.put(leaseKey(m.group, t.key), t.since, jetstream.WithExpectLastSequencePerSubject(t.revision))
	if err == nil {
		t.revision = revision
		t.expiry.Reset(time.Until(sent.Add(m.holds())))
		return
	}
	actual, refused := wrongRevision(err)
	if !refused {
		m.log.Debug("lease not renewed", "key", t.key, "err", err) // the expiry timer decides
		return
	}
	// Either an own renewal whose answer was lost, or another server has it.
	if actual != 0 {
		ctx, cancel := m.attempt()
		defer cancel()
		var rec record
		if e, err := m.kv.GetRevision(ctx, leaseKey(m.group, t.key), actual); err == nil && json.Unmarshal(e.Value(), &rec) == nil && rec.Nonce == m.nonce {
			t.revision = actual // it runs out when the expiry timer says, unless the next renewal succeeds
			return
		}
	}
	t.lost = true
	t.cancel(ErrLost)
}

// ensureWatcher reads the bucket, again when asked. Failing is no matter: the next tick comes by here.
func (m *Manager) ensureWatcher() {
	if m.watcher != nil && !m.rewatch || m.stopping {
		return
	}
	m.stopWatching()
	ctx, cancel := m.attempt()
	defer cancel()
	kv, err := m.js.KeyValue(ctx, topology.LeaseBucket)
	if err == nil {
		m.kv = kv
		m.watcher, err = watch(ctx, m.js, m.group)
	}
	if err != nil {
		m.log.Debug("leases not read", "err", err)
		return
	}
	m.rewatch = false
	m.fresh = newView(len(m.fresh.leases))
}

func (m *Manager) stopWatching() {
	if m.watcher != nil {
		m.watcher.stop()
		m.watcher = nil
	}
}

func (m *Manager) learn(u update) {
	m.fresh.apply(m.group, u)
	if u.complete {
		m.view = m.fresh // and stays it: what follows changes both
	}
}

// reconcile brings what is held closer to what should be.
func (m *Manager) reconcile(work func(context.Context, int) error) {
	if m.stopping || m.view == nil {
		return
	}
	if m.view.servers[m.server].rec.Server == "" {
		return // not announced yet, or not seen by the others
	}
	for key, desired := range spread(m.view.alive(), len(m.view.leases)) {
		t := m.held[key]
		switch {
		case t != nil && desired != m.server && !t.leaving:
			m.log.Info("giving a lease up", "key", key, "to", desired)
			m.leave(t)
		case t == nil && desired == m.server:
			m.acquire(key, work)
		}
	}
}

func (m *Manager) leave(t *tenure) {
	t.leaving = true
	t.cancel(ErrReleased)
}

// acquire takes a lease that is free, or is this server's from before.
func (m *Manager) acquire(key int, work func(context.Context, int) error) {
	e := &m.view.leases[key]
	if e.rec.Server != "" && e.rec.Server != m.server {
		return
	}
	now := time.Now()
	revision, err := m.put(leaseKey(m.group, key), now.UTC(), jetstream.WithExpectLastSequencePerSubject(e.revision))
	if err != nil {
		// Somebody was faster, or the view lags: its marker may be gone already. Look again.
		if actual, refused := wrongRevision(err); refused && actual == 0 {
			*e = entry{}
			m.rewatch = true
		} else if !errors.Is(err, context.DeadlineExceeded) {
			m.log.Debug("lease not acquired", "key", key, "err", err)
		}
		return
	}
	*e = entry{rec: record{Server: m.server, Nonce: m.nonce, Since: now.UTC()}, revision: revision}
	t := newTenure(key, revision, now.UTC(), m.holds())
	m.held[key] = t
	m.log.Info("lease acquired", "key", key)
	m.workers.Go(func() {
		t.work(work, m.log)
		m.exited <- key
	})
}

// finish is called when a tenure's work has returned for good.
func (m *Manager) finish(key int) {
	t := m.held[key]
	delete(m.held, key)
	t.expiry.Stop()
	t.cancel(ErrReleased)
	if errors.Is(context.Cause(t.ctx), ErrLost) {
		m.log.Warn("lease lost", "key", key)
	}
	// A crash before the deletion only means that the lease runs out by itself.
	if t.leaving && !t.lost && m.kv != nil && !m.away {
		ctx, cancel := m.attempt()
		defer cancel()
		err := m.kv.Purge(ctx, leaseKey(m.group, key), jetstream.LastRevision(t.revision), jetstream.PurgeTTL(markerTTL))
		if err != nil {
			m.log.Debug("lease not released, it will run out", "key", key, "err", err)
			m.away = m.stopping && errors.Is(err, context.DeadlineExceeded)
		}
	}
}

// beginStop withdraws the announcement, so that the others know at once whose turn it is, and gives everything up.
func (m *Manager) beginStop() {
	m.stopping = true
	if m.kv != nil {
		ctx, cancel := m.attempt()
		defer cancel()
		if err := m.kv.Purge(ctx, serverKey(m.group, m.server), jetstream.PurgeTTL(markerTTL)); err != nil {
			m.log.Debug("announcement not withdrawn, it will run out", "err", err)
		}
	}
	for _, t := range m.held {
		if !t.leaving {
			m.leave(t)
		}
	}
}
