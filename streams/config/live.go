package config

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// followAgain is the pause before following again after trouble. With it, and the time that following takes, a change
	// made right then is in force within a second.
	followAgain = 100 * time.Millisecond
	// lookEvery is how often the bucket's leader is asked whether there is a change that did not come.
	lookEvery = 5 * time.Second
)

// Live is the settings in force, for one server. It is a Source, and a collector of metrics to register.
type Live struct {
	store    *Store
	ready    chan struct{}
	revision prometheus.Gauge
	ignored  prometheus.Counter

	mu      sync.Mutex // guards what follows
	now     *Settings
	changed chan struct{}
	status  Status

	// What follows is owned by Run.
	seen   bool            // the bucket has been there
	newest uint64          // revision of the last change that was published; a bucket that ends before it is another one
	warned bool            // that the bucket does not keep everything
	told   map[Change]bool // ignored changes that were logged and counted
	lost   string          // the trouble that was logged
}

// Status is how a Live stands.
type Status struct {
	// Revision and Change are of the last change that was read, in force or ignored; 0 = there is none.
	Revision uint64 `json:"revision"`
	Change   uint64 `json:"change"`
	// By and At are of it.
	By string    `json:"by,omitempty"`
	At time.Time `json:"at,omitzero"`
	// Ignored counts the changes that are not in force nor ever were.
	Ignored int `json:"ignored"`
	// Following says whether what is in force is what the history says now. Where it is not, Error says why: changes are
	// not heard of, or the history was lost. What was read last stays in force.
	Following bool   `json:"following"`
	Error     string `json:"error,omitempty"`
}

// Watch returns the settings in force, which Run keeps so. Until it has read them, they are the defaults.
func (s *Store) Watch() *Live {
	return &Live{
		store: s, ready: make(chan struct{}), now: s.opts.Defaults.clone(), changed: make(chan struct{}), told: map[Change]bool{},
		revision: prometheus.NewGauge(prometheus.GaugeOpts{Name: "scrip_config_revision", Help: "Revision of the last change of a run-time setting that this server has read; servers that differ for long do not hear of changes."}),
		ignored:  prometheus.NewCounter(prometheus.CounterOpts{Name: "scrip_config_ignored_total", Help: "Changes of run-time settings that were read and are not in force, because they make no sense or are of a newer version."}),
	}
}

// Current is described at Source.
func (l *Live) Current() (*Settings, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now, l.changed
}

// Ready is closed when all changes have been read once.
func (l *Live) Ready() <-chan struct{} { return l.ready }

// Status may be asked from any goroutine.
func (l *Live) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// Describe and Collect make it a [prometheus.Collector].
func (l *Live) Describe(to chan<- *prometheus.Desc) {
	l.revision.Describe(to)
	l.ignored.Describe(to)
}

// Collect is described at Describe.
func (l *Live) Collect(to chan<- prometheus.Metric) {
	l.revision.Collect(to)
	l.ignored.Collect(to)
}

// Run keeps the settings those in force until ctx ends, and returns nil then. Whatever fails is tried again; meanwhile the
// last good settings stay. It may be run once.
func (l *Live) Run(ctx context.Context) error {
	tick := time.NewTicker(followAgain)
	defer tick.Stop()
	for {
		err := l.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		l.interrupted(err)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// follow folds all changes from the first, and goes on with each that comes, until there is trouble. What was in force
// before stays so until all have been read.
func (l *Live) follow(ctx context.Context) error {
	f, err := follow(ctx, l.store.js)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return l.missing(ctx)
	}
	if err != nil {
		return err
	}
	defer f.stop()
	l.seen = true
	if !f.grows && !l.warned {
		l.warned = true
		l.store.opts.Logger.WarnContext(ctx, "the bucket of settings was not made by scrip, and changes may be replaced or removed in it; see nats stream edit "+Stream, "bucket", Bucket)
	}
	state := newState(l.store.opts.Defaults)
	lost := f.until < l.newest
	if f.until == 0 {
		l.read(state, lost)
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-f.trouble:
			return err
		case <-f.status:
			return errReconnected
		case c := <-f.changes:
			l.tell(state.apply(c))
			if state.Revision >= f.until {
				l.read(state, lost)
			}
		case <-look.C:
			if err := l.missed(ctx, state, f); err != nil {
				return err
			}
		}
	}
}

var (
	errReconnected = errors.New("the connection to NATS was lost meanwhile")
	errMissing     = errors.New("the bucket of settings is gone; " + whatHolds)
	errEmpty       = errors.New("the bucket of settings was lost and is there again without a change; " + whatHolds)
)

// whatHolds is true of a bucket that is lost. A bucket without changes that was always empty is in force as it is.
const whatHolds = "what was in force stays so at this server until it is started anew or something is set: the first `scrip config set` begins a new history, and all else is back to its default then; restore the log from a backup, or set again what should hold, pauses first"

// missing makes the bucket where there has not been one. Until there is one, nothing counts as read: a node that has not
// caught up says of every stream that it is not there.
func (l *Live) missing(ctx context.Context) error {
	if l.seen {
		return errMissing
	}
	ctx, done := context.WithTimeout(ctx, attempt)
	defer done()
	return makeBucket(ctx, l.store.js, l.store.opts.Replicas) // nil: follow it
}

// missed asks whether there are changes that did not come.
func (l *Live) missed(ctx context.Context, state *State, f *follower) error {
	ctx, done := context.WithTimeout(ctx, attempt)
	defer done()
	last, err := lastRevision(ctx, l.store.js)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return errMissing
	}
	if err != nil || last <= state.Revision || len(f.changes) > 0 {
		return nil // the follower finds out by itself when the server is away
	}
	return errGap
}

// read puts a state in force. Where the bucket was lost, whoever made it anew did not mean to end every pause; a change in
// it that makes sense is of somebody who knows.
func (l *Live) read(state *State, lost bool) {
	if lost && len(state.set) == 0 {
		l.interrupted(errEmpty)
		return
	}
	l.publish(state)
}

// publish puts a state in force.
func (l *Live) publish(state *State) {
	now := state.Settings()
	last := Change{}
	if n := len(state.changes); n > 0 {
		last = state.changes[n-1]
	}
	l.mu.Lock()
	l.status = Status{Revision: state.Revision, Change: last.N, By: last.By, At: last.At, Ignored: state.Ignored, Following: true}
	differ := !now.equal(l.now)
	if differ {
		l.now = now
		close(l.changed)
		l.changed = make(chan struct{})
	}
	l.mu.Unlock()
	l.newest = state.Revision
	l.revision.Set(float64(state.Revision))
	log := l.store.opts.Logger
	if l.lost != "" {
		l.lost = ""
		log.Info("settings are followed again", "revision", state.Revision)
	}
	select {
	case <-l.ready:
		if differ {
			log.Info("settings changed", "change", last.N, "setting", last.Setting, "value", last.Value, "was", last.Was, "by", last.By)
		}
	default:
		close(l.ready)
	}
}

// tell logs and counts an ignored change, once.
func (l *Live) tell(c Change) {
	if c.Ignored == "" || l.told[c] {
		return
	}
	l.told[c] = true
	l.ignored.Inc()
	l.store.opts.Logger.Warn("a change of the settings is ignored; what held before stays in force. Set it anew, or run a version that knows it",
		"change", c.N, "revision", c.Revision, "setting", c.Setting, "value", c.Value, "by", c.By, "why", c.Ignored)
}

// interrupted notes that changes are not heard of, or that there are none any more.
func (l *Live) interrupted(err error) {
	if err == nil {
		return // the bucket was made
	}
	l.mu.Lock()
	l.status.Following, l.status.Error = false, err.Error()
	l.mu.Unlock()
	if errors.Is(err, errReconnected) || errors.Is(err, errGap) || err.Error() == l.lost {
		return // mended at once, or told
	}
	l.lost = err.Error()
	l.store.opts.Logger.Warn("the settings are not followed; the last good ones stay in force, and it is tried again", "err", err)
}
