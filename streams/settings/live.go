package settings

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// followAgain is the pause before a reader is replaced. With it, and the time that this takes, a change made in between
	// is in force within a second.
	followAgain = 100 * time.Millisecond
	// lookEvery is the interval of requests to the bucket's leader for its newest change: it, or another one, must have been
	// delivered before the next request.
	lookEvery = 5 * time.Second
)

// Live is the settings in force, for one server. It is a Source, and a collector of metrics to register.
type Live struct {
	store    *Store
	ready    chan struct{}
	revision prometheus.Gauge
	ignored  prometheus.Counter

	mu      sync.Mutex // guards the fields below
	now     *Settings
	changed chan struct{}
	status  Status

	// The fields below are owned by Run.
	every  time.Duration   // lookEvery; shorter in tests
	seen   bool            // the bucket existed
	newest uint64          // revision of the last change that was published; a bucket that ends before it is another one
	logged map[Change]bool // ignored changes that were logged and counted
	lost   string          // the trouble that was logged
}

// Status is the state of a Live.
type Status struct {
	// Revision and Change are of the last change that was read, in force or ignored; 0 = there is none.
	Revision uint64 `json:"revision"`
	Change   uint64 `json:"change"`
	// By and At are of that change.
	By string    `json:"by,omitempty"`
	At time.Time `json:"at,omitzero"`
	// Ignored counts the changes that are not in force nor ever were.
	Ignored int `json:"ignored"`
	// Following is true while the values in force are those of the history. Where they are not, Error has the reason: changes
	// are not received, or the history was lost. What was read last stays in force.
	Following bool   `json:"following"`
	Error     string `json:"error,omitempty"`
}

// Watch returns the settings in force, which Run keeps current. Until it has read them, they are the defaults.
func (s *Store) Watch() *Live {
	return &Live{
		store: s, ready: make(chan struct{}), now: s.opts.Defaults.clone(), changed: make(chan struct{}), every: lookEvery, logged: map[Change]bool{},
		revision: prometheus.NewGauge(prometheus.GaugeOpts{Name: "scrip_config_revision", Help: "Revision of the last change of a run-time setting that this server has read; a server that differs from others for long does not receive changes."}),
		ignored:  prometheus.NewCounter(prometheus.CounterOpts{Name: "scrip_config_ignored_total", Help: "Changes of run-time settings that were read and are not in force, because they are not valid or of a newer version."}),
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

// Status may be called from any goroutine.
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

// Run keeps the settings current until ctx ends, and then returns nil. It retries after every failure; meanwhile the last
// good settings stay. It may be run once.
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

// follow folds all changes from the first, and continues with each new one, until there is trouble. The settings in force
// stay so until all have been read.
func (l *Live) follow(ctx context.Context) error {
	nc := l.store.js.Conn()
	broken := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(broken)
	r, err := l.store.open(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return l.missing(ctx)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	if err := l.checkBucket(ctx); err != nil {
		return err
	}
	state := newState(l.store.opts.Defaults)
	lost, expected, read := r.until < l.newest, r.until, r.until
	if r.until == 0 {
		l.read(state, lost)
	}
	look := time.NewTicker(l.every)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-broken:
			return errDisconnected
		case <-r.Ready():
			err := r.take(func(c Change) {
				l.logIgnored(state.apply(c))
				if state.Revision >= r.until {
					l.read(state, lost)
				}
			})
			if err != nil {
				return err
			}
		case <-look.C:
			// The feed notices by itself that it lags; until it has caught up, the status must show it. While changes arrive it
			// does not lag: a long history takes its time.
			if state.Revision < expected && state.Revision == read {
				return errBehind
			}
			read = state.Revision
			if expected, err = newest(ctx, l.store.js); err != nil {
				return err
			}
		}
	}
}

var (
	errDisconnected = errors.New("there is no connection to NATS")
	errBehind       = errors.New("a change was not delivered")
	errMissing      = errors.New("the bucket of settings is missing; " + whatHolds)
	errEmpty        = errors.New("the bucket of settings was lost and exists again without a change; " + whatHolds)
)

// whatHolds is true of a lost bucket. A bucket without changes that was always empty is in force as it is.
const whatHolds = "this server keeps its settings until it is restarted or something is set: the first `scrip config set` starts a new history, and every other setting has its default then; restore the log from a backup, or set the settings again, pauses first"

// missing makes the bucket if it never existed. Until there is one, nothing counts as read: a node that lags reports every
// stream as missing.
func (l *Live) missing(ctx context.Context) error {
	if l.seen {
		return errMissing
	}
	ctx, done := context.WithTimeout(ctx, attempt)
	defer done()
	return makeBucket(ctx, l.store.js, l.store.opts.Replicas) // nil: follow it
}

// checkBucket logs, once, if changes in the bucket can be replaced or removed.
func (l *Live) checkBucket(ctx context.Context) error {
	if l.seen {
		return nil
	}
	ctx, done := context.WithTimeout(ctx, attempt)
	defer done()
	stream, err := l.store.js.Stream(ctx, topology.SettingsStream)
	if err != nil {
		return err
	}
	l.seen = true
	if !growsOnly(stream.CachedInfo().Config) {
		l.store.opts.Logger.WarnContext(ctx, "the bucket of settings was not made by scrip, and changes in it may be replaced or removed; see nats stream edit "+topology.SettingsStream, "bucket", topology.SettingsBucket)
	}
	return nil
}

// read puts a state in force. After a loss, an empty new bucket does not end every pause; the first valid change in it does,
// because an operator made it.
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
		log.Info("settings are current again", "revision", state.Revision)
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

// logIgnored logs and counts an ignored change, once.
func (l *Live) logIgnored(c Change) {
	if c.Ignored == "" || l.logged[c] {
		return
	}
	l.logged[c] = true
	l.ignored.Inc()
	l.store.opts.Logger.Warn("a change of the settings is ignored; the previous value stays in force. Set it again, or run a version that knows it",
		"change", c.N, "revision", c.Revision, "setting", c.Setting, "value", c.Value, "by", c.By, "why", c.Ignored)
}

// interrupted records that changes are not received, or that the bucket is lost.
func (l *Live) interrupted(err error) {
	if err == nil {
		return // the bucket was made
	}
	l.mu.Lock()
	l.status.Following, l.status.Error = false, err.Error()
	l.mu.Unlock()
	if errors.Is(err, errDisconnected) || errors.Is(err, errBehind) || err.Error() == l.lost {
		return // resolved at once, or logged already
	}
	l.lost = err.Error()
	l.store.opts.Logger.Warn("the settings are not current; the last good ones stay in force, and the server retries", "err", err)
}
