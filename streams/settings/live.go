package settings

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/streams/changelog"
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
	state  *State          // the fold
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
		store: s, ready: make(chan struct{}), now: s.opts.Defaults.clone(), changed: make(chan struct{}), logged: map[Change]bool{},
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
	f := changelog.Follower{Bucket: l.store.bucket(), Fold: (*fold)(l)}
	return f.Run(ctx)
}

// fold is a Live as a [changelog.Fold].
type fold Live

func (f *fold) Begin() { f.state = newState(f.store.opts.Defaults) }

func (f *fold) Apply(m changelog.Message) { (*Live)(f).logIgnored(f.state.apply(parseMessage(m))) }

// Current puts a state in force. After a loss, an empty new bucket does not end every pause; the first valid change in it
// does, because an operator made it.
func (f *fold) Current(lost bool) error {
	if lost && len(f.state.set) == 0 {
		return errEmpty
	}
	(*Live)(f).publish(f.state)
	return nil
}

func (f *fold) Trouble(err error) {
	if errors.Is(err, changelog.ErrMissing) {
		err = errMissing
	}
	(*Live)(f).interrupted(err)
}

var (
	errMissing = errors.New("the bucket of settings is missing; " + whatHolds)
	errEmpty   = errors.New("the bucket of settings was lost and exists again without a change; " + whatHolds)
)

// whatHolds is true of a lost bucket. A bucket without changes that was always empty is in force as it is.
const whatHolds = "this server keeps its settings until it is restarted or something is set: the first `scrip config set` starts a new history, and every other setting has its default then; restore the log from a backup, or set the settings again, pauses first"

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
	l.mu.Lock()
	l.status.Following, l.status.Error = false, err.Error()
	l.mu.Unlock()
	if errors.Is(err, changelog.ErrDisconnected) || errors.Is(err, changelog.ErrBehind) || err.Error() == l.lost {
		return // resolved at once, or logged already
	}
	l.lost = err.Error()
	l.store.opts.Logger.Warn("the settings are not current; the last good ones stay in force, and the server retries", "err", err)
}
