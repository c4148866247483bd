package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/testsignal"
)

const (
	// followAgain is the pause before a reader is replaced. With it, and the time that this takes, a change made in between
	// is in force within a second.
	followAgain = 100 * time.Millisecond
	// lookEvery is the interval of requests to the bucket's leader for its newest change: it, or another one, must have been
	// delivered before the next request.
	lookEvery = 5 * time.Second
)

// The kinds of trouble, beside errors of the server.
var (
	// errDisconnected and errLate are resolved at once, by another reader.
	errDisconnected = errors.New("there is no connection to NATS")
	errLate         = errors.New("a change was not delivered")
	// errMissing: the bucket was lost while this server ran. errEmpty: it exists again.
	errMissing = errors.New("it is missing")
	errEmpty   = errors.New("it was lost and exists again without a change in force")
)

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
	// Following is true while what is in force is the fold of the history. Where it is not, Error has the reason: changes are not
	// received, or the history was lost. What was read last stays in force.
	Following bool   `json:"following"`
	Error     string `json:"error,omitempty"`
}

// Live keeps a registry current on one server.
type Live[S, R any] struct {
	registry *Registry[S, R]
	put      func(*Fold[S, R])
	every    time.Duration // lookEvery, but in tests
	ready    chan struct{}
	trouble  testsignal.Signal[error] // for tests

	mu     sync.Mutex // guards status
	status Status

	// The fields below are owned by Run.
	fold    *Fold[S, R]
	seen    bool            // the bucket existed
	current uint64          // revision of the last change in force; a bucket that ends before it is another one
	logged  map[string]bool // ignored changes, by revision and reason
	why     string          // the trouble that was logged
}

// Live returns the registry as it is in force. put puts a fold in force; it is called by the goroutine of Run, again after each
// further change, and must not keep the fold.
func (r *Registry[S, R]) Live(put func(*Fold[S, R])) *Live[S, R] {
	return &Live[S, R]{registry: r, put: put, every: lookEvery, ready: make(chan struct{}), logged: map[string]bool{}}
}

// Ready is closed when all changes have been read once.
func (l *Live[S, R]) Ready() <-chan struct{} { return l.ready }

// Status may be called from any goroutine.
func (l *Live[S, R]) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// Run keeps the fold current until ctx ends, and then returns nil. It retries after every failure, and what is in force stays
// so until it has succeeded. It may be run once.
func (l *Live[S, R]) Run(ctx context.Context) error {
	tick := time.NewTicker(followAgain)
	defer tick.Stop()
	for {
		err := l.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil { // nil: the bucket was made
			l.interrupted(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// follow folds all changes from the first, and continues with each new one, until there is trouble. What is in force stays
// so until all have been read.
func (l *Live[S, R]) follow(ctx context.Context) error {
	nc := l.registry.bucket.js.Conn()
	broken := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(broken)
	r, err := l.registry.bucket.open(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return l.missing(ctx)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	l.seen = true
	l.fold = l.registry.Fold()
	revision, expected, read := uint64(0), r.until, r.until
	lost := r.until < l.current
	if r.until == 0 {
		l.inForce(lost)
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
			err := r.take(func(m Message) {
				l.apply(m)
				if revision = m.Revision; revision >= r.until {
					l.inForce(lost)
				}
			})
			if err != nil {
				return err
			}
		case <-look.C:
			// The feed notices by itself that it lags; until it has caught up, the status must show it. While changes arrive it
			// does not lag: a long history takes its time.
			if revision < expected && revision == read {
				return errLate
			}
			read = revision
			if expected, err = l.registry.bucket.newest(ctx); err != nil {
				return err
			}
		}
	}
}

// apply folds the next change, and logs an ignored one, once.
func (l *Live[S, R]) apply(m Message) {
	c := l.fold.Apply(m)
	key := fmt.Sprint(c.Revision, c.Ignored)
	if c.Ignored == "" || l.logged[key] {
		return
	}
	l.logged[key] = true
	l.registry.Logger.Warn("a change of the "+l.registry.spec.Noun+" is ignored; what was in force before stays so. Make it again, or run a version that knows it",
		"key", m.Key, "revision", c.Revision, "by", c.By, "why", c.Ignored)
}

// inForce puts the fold in force. lost: the history ends before what was in force, so the bucket was lost. An empty new bucket
// takes nothing out of force; the first valid change in it does, because an operator made it.
func (l *Live[S, R]) inForce(lost bool) {
	if lost && l.fold.Ignored == len(l.fold.Changes) {
		l.interrupted(errEmpty)
		return
	}
	c := l.fold.Last()
	l.current = c.Revision
	l.mu.Lock()
	l.status = Status{Revision: c.Revision, Change: c.N, By: c.By, At: c.At, Ignored: l.fold.Ignored, Following: true}
	l.mu.Unlock()
	l.put(l.fold)
	if l.why != "" {
		l.why = ""
		l.registry.Logger.Info("the "+l.registry.spec.Noun+" are current again", "revision", c.Revision)
	}
	select {
	case <-l.ready:
	default:
		close(l.ready)
	}
}

// interrupted records that changes are not received, or that the bucket is lost.
func (l *Live[S, R]) interrupted(err error) {
	spec := l.registry.spec
	if errors.Is(err, errMissing) || errors.Is(err, errEmpty) {
		err = fmt.Errorf("the bucket of the %s: %w; this server keeps its %s until it is restarted or something is changed: %s", spec.Noun, err, spec.Noun, spec.Restore)
	}
	l.mu.Lock()
	l.status.Following, l.status.Error = false, err.Error()
	l.mu.Unlock()
	l.trouble.Send(err)
	if errors.Is(err, errDisconnected) || errors.Is(err, errLate) || err.Error() == l.why {
		return // resolved at once, or logged already
	}
	l.why = err.Error()
	l.registry.Logger.Warn("the "+spec.Noun+" are not current; those read last stay in force, and the server retries", "err", err)
}

// missing makes the bucket if it never existed. Until there is one, nothing counts as read: a node that lags reports every
// stream as missing.
func (l *Live[S, R]) missing(ctx context.Context) error {
	if l.seen {
		return errMissing
	}
	ctx, done := context.WithTimeout(ctx, attempt)
	defer done()
	return l.registry.bucket.make(ctx) // nil: follow it
}
