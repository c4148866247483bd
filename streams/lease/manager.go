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

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
)

const (
	// TTL is how long a server must be silent before the others take its leases. doc.go has the arithmetic.
	TTL = 4 * time.Second
	// renewals is how many announcements a server makes per TTL.
	renewals = 4
	// announcementsStay and leasesStay are how many TTLs a key stays in the bucket without a renewal: longer than an
	// election there (4 to 9 s), so that one takes no lease from its holder.
	announcementsStay, leasesStay = 3, 8
	// leaseRenewal is after how many TTLs a held lease is written again.
	leaseRenewal = 2
	// writesAtOnce bounds the writes in flight at one time.
	writesAtOnce = 16
	// rewatchEvery is after how many ticks the bucket is read again, in case an update was missed.
	rewatchEvery = 6 * renewals
)

// Options for New.
type Options struct {
	// Mover of the JetStream context's connection, shared with others who use it. Nil = one of the manager's own.
	Mover *natsx.Mover
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Manager competes for the leases of one group on behalf of one server.
type Manager struct {
	bucket  store
	mover   *natsx.Mover
	group   string
	server  string
	nonce   string
	started time.Time
	opts    Options
	log     *slog.Logger

	// All below is owned by Run. Writes to the bucket run in other goroutines and return their results to it.
	watcher   *watcher
	view      *view
	held      map[int]*term
	acquiring map[int]bool // or being released
	failing   []int        // of them, those to retry at the next tick
	exited    chan int
	results   chan func()
	writing   int           // results still to be received
	slots     chan struct{} // one per write in flight
	workers   sync.WaitGroup

	announcing  bool
	announced   uint64    // revision of the newest own announcement
	acked       time.Time // when it was acknowledged
	back        time.Time // when that started again after the bucket was silent so long that announcements expire
	live        time.Time // since when announcements have been acknowledged without a gap; zero = they are not
	ticks       int
	rewatch     bool
	twins       int // announcements under this name by another server
	stopping    bool
	failed      error // why it stops, where that is not ctx
	unreachable bool  // while stopping: NATS does not answer, do not wait for it once per lease

	signals struct {
		announced testsignal.Signal[time.Time] // when an announcement was sent that was acknowledged
	}
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// ErrTwin: another running server has this one's name. Its data directory is a copy of the other's.
var ErrTwin = errors.New("another running server has the same name")

// New returns a manager for the keys 0 … keys-1 of a group. server names this server: the same over restarts (it then
// takes over its own dead predecessor's leases at once), and different from every other server's. Letters, digits, _
// and -.
func New(js jetstream.JetStream, group string, keys int, server string, opts Options) (*Manager, error) {
	m, err := newManager(natsStore{js: js}, group, keys, server, opts)
	if err == nil && m.mover == nil {
		m.mover = natsx.NewMover(js.Conn())
	}
	return m, err
}

func newManager(bucket store, group string, keys int, server string, opts Options) (*Manager, error) {
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
	}
	return &Manager{
		bucket: bucket, mover: opts.Mover, group: group, server: server, nonce: uuid.NewString(), started: time.Now().UTC(), opts: opts,
		log:  opts.Logger.With("group", group, "server", server),
		view: newView(keys),
		held: map[int]*term{}, acquiring: map[int]bool{},
		exited: make(chan int, keys), results: make(chan func(), writesAtOnce), slots: make(chan struct{}, writesAtOnce),
	}, nil
}

// Run competes until ctx ends. For every lease acquired it calls work in a goroutine of its own, with a context that is
// cancelled when another server holds the lease (cause ErrLost) or it must be given up (ErrReleased). Silence of the
// bucket cancels nothing: see doc.go. Giving up waits for work to return, then deletes the lease. Work that returns while
// the lease is held is called again after a pause that grows from 0.2 s to 15 s, unless it returns ErrLost (see Confirm).
//
// When ctx ends, everything is given up in this way; Run returns ctx's error when all work has returned. It waits without end
// for NATS to answer. Other errors: ErrTwin.
func (m *Manager) Run(ctx context.Context, work func(ctx context.Context, key int) error) error {
	tick := time.NewTicker(TTL / renewals)
	defer tick.Stop()
	defer m.stopWatching()
	stop := ctx.Done()
	m.renew()
	for {
		m.ensureWatcher()
		var w watcher // with nil channels while there is none
		if m.watcher != nil {
			w = *m.watcher
		}
		select {
		case <-stop:
			stop = nil
			m.startStop()
		case key := <-m.exited:
			m.finish(key)
		case apply := <-m.results:
			m.writing--
			apply()
		case u := <-w.updates:
			m.learn(u)
			m.drain(w.updates)
		case <-w.status:
			m.rewatch = true
		case err := <-w.trouble:
			m.log.Debug("reading leases again", "err", err)
			m.rewatch = true
		case <-tick.C:
			m.renew()
		}
		if m.failed != nil && !m.stopping {
			m.startStop()
		}
		m.reconcile(work)
		if m.stopping && len(m.held) == 0 && m.writing == 0 {
			m.workers.Wait()
			return errors.Join(m.failed, ctx.Err())
		}
	}
}

// drain applies all waiting updates: the bucket rejects what is decided by a view that lags.
func (m *Manager) drain(updates <-chan update) {
	for {
		select {
		case u := <-updates:
			m.learn(u)
		default:
			return
		}
	}
}

// ensureWatcher starts a watcher, and replaces it if requested. It may fail: the next tick tries again.
func (m *Manager) ensureWatcher() {
	if m.watcher != nil && !m.rewatch || m.stopping {
		return
	}
	m.stopWatching()
	ctx, cancel := m.attempt()
	defer cancel()
	var err error
	if m.watcher, err = m.bucket.watch(ctx, m.group); err != nil {
		m.watcher = nil
		m.log.Debug("leases not read", "err", err)
		return
	}
	m.rewatch = false
}

func (m *Manager) stopWatching() {
	if m.watcher != nil {
		m.watcher.stop()
		m.watcher = nil
	}
}

func (m *Manager) learn(u update) {
	if e, key := m.view.apply(m.group, u, time.Now()), serverKey(m.group, m.server); u.key == key {
		m.checkTwin(e)
	}
	if u.complete {
		m.view.complete = true
	}
}

// checkTwin checks an announcement under this server's name. A predecessor's last ones may arrive late; one that continues is from
// a twin, and the later of the two stops.
func (m *Manager) checkTwin(e entry) {
	if e.rec.Nonce == m.nonce || e.rec.Server == "" || m.announced == 0 || e.revision < m.announced {
		return
	}
	if m.twins++; m.twins < 3 {
		return
	}
	if their := e.rec.Started; their.Before(m.started) || their.Equal(m.started) && e.rec.Nonce < m.nonce {
		m.failed = fmt.Errorf("server %s: %w: its data directory is a copy of the other's, or the other way round; remove the file server.id from this one", m.server, ErrTwin)
	}
}

// current reports whether the view can be trusted to be the bucket's content: this server's announcements are acknowledged,
// have been for long enough that those of all living servers were, too, and are read back by the watcher.
func (m *Manager) current(now time.Time) bool {
	return !m.live.IsZero() && now.Sub(m.live) >= TTL*3/4
}

// silent reports whether a sign of life last seen at that time is too old.
func (m *Manager) silent(seen, now time.Time) bool {
	silence := now.Sub(seen)
	if silence >= TTL && m.current(now) {
		return true
	}
	// On a machine too busy to be current, a late takeover is better than none. After an outage the others need a moment too.
	return silence >= announcementsStay*TTL && now.Sub(m.acked) < TTL && now.Sub(m.back) >= TTL
}

// alive returns the servers that count when the work is spread.
func (m *Manager) alive(now time.Time) (names []string) {
	for name, e := range m.view.servers {
		if e.rec.Server != "" && (name == m.server || !m.silent(e.seen, now)) {
			names = append(names, name)
		}
	}
	return names
}

// free reports whether a lease of another server may be taken.
func (m *Manager) free(e *entry, now time.Time) bool {
	switch {
	case e.unknown:
		return false // the watcher will show its holder
	case e.rec.Server == m.server:
		return true // the predecessor's
	case e.rec.Server == "":
		// An expired one may have a holder that could not renew it, and may now.
		return !e.expired || m.silent(e.seen, now) || m.current(now)
	}
	holder := m.view.servers[e.rec.Server]
	return m.silent(e.seen, now) && m.silent(holder.seen, now)
}

// reconcile changes what is held towards what should be.
func (m *Manager) reconcile(work func(context.Context, int) error) {
	if m.stopping || !m.view.complete {
		return
	}
	for key, t := range m.held {
		e := &m.view.leases[key]
		switch {
		case e.unknown || e.revision <= t.revision || t.ctx.Err() != nil:
		case e.rec.Server == "":
			m.renewLease(t, e.revision) // it expired while the bucket did not answer
		case e.rec.Nonce != m.nonce:
			t.cancel(ErrLost)
		}
	}
	if m.view.servers[m.server].rec.Server == "" {
		return // not announced yet, or not seen by the others
	}
	now := time.Now()
	for key, desired := range spread(m.alive(now), len(m.view.leases)) {
		t := m.held[key]
		switch {
		case t != nil && desired != m.server && t.ctx.Err() == nil:
			m.log.Info("giving a lease up", "key", key, "to", desired)
			t.leave()
		case t == nil && desired == m.server && !m.acquiring[key] && m.free(&m.view.leases[key], now):
			m.acquire(key, work)
		case t == nil && desired != m.server && !m.acquiring[key] && m.view.leases[key].rec.Nonce == m.nonce:
			m.release(key, m.view.leases[key].revision) // deleting it failed, or an acquisition without an answer took effect
		}
	}
}

// Confirm checks with the bucket's leader whether the lease is this server's. Work calls it when another sign than the lease
// shows that another server has it; a server that keeps work that is not its own makes both restart for ever. It retries
// until it gets an answer or ctx ends. Error: ErrLost, for work to return. Any goroutine may call it.
func (m *Manager) Confirm(ctx context.Context, key int) error {
	rec, _, err := m.look(ctx, key)
	if err == nil && rec.Nonce != m.nonce {
		return ErrLost
	}
	return err
}

// look reads a lease from the bucket's leader; rec is zero if it has no holder.
func (m *Manager) look(ctx context.Context, key int) (rec record, revision uint64, err error) {
	u, _, err := m.bucket.last(ctx, leaseKey(m.group, key))
	if err != nil {
		return rec, 0, err
	}
	if json.Unmarshal(u.value, &rec) != nil { // a marker has no data
		rec = record{}
	}
	return rec, u.revision, nil
}
