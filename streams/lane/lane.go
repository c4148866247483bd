package lane

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Lane runs one lane of the log while this process holds its lease.
type Lane struct {
	opt    Options
	label  string // the lane's number as metrics label
	status atomic.Pointer[Status]
}

// New returns the lane; Run makes it work.
func New(o Options) *Lane {
	l := &Lane{opt: o.withDefaults(), label: strconv.Itoa(o.Lane)}
	l.report(func(s *Status) { s.State = StateIdle })
	return l
}

// ErrStopped is the kind of every error after which the lane must not go on by itself, because the log contradicts
// itself: going on would lose or double what was promised. The text says what an operator can do.
var ErrStopped = errors.New("lane stopped")

// errLost says that another owner writes this lane: what was decided here is void and nothing of it was answered.
var errLost = errors.New("another owner writes this lane")

// Run takes the lane, decides until ctx ends, and returns nil then. When another owner turns out to write the lane, its
// state is dropped, loaded again and the lane competed for again: each taking has a new nonce. It returns an error of
// kind [ErrStopped] when an operator is needed, any other error when the log could not be read or written.
func (l *Lane) Run(ctx context.Context) error {
	for {
		err := l.take(ctx)
		switch {
		case ctx.Err() != nil:
			l.report(func(s *Status) { *s = Status{State: StateIdle} })
			return nil
		case errors.Is(err, errLost):
			l.opt.Metrics.lost.WithLabelValues(l.label).Inc()
			l.opt.Logger.WarnContext(ctx, "lane lost to another owner; loading it again", "err", err)
		default:
			if errors.Is(err, ErrStopped) {
				l.opt.Metrics.refused.WithLabelValues(l.label).Inc()
			}
			l.report(func(s *Status) { s.State, s.Error = StateStopped, err.Error() })
			return err
		}
	}
}

// take loads the state from the log and runs the loop until it ends.
func (l *Lane) take(ctx context.Context) error {
	l.report(func(s *Status) { *s = Status{State: StateLoading} })
	o := &owner{lane: l, opt: l.opt, nonce: uuid.NewString(), started: time.Now(), arrived: true, queries: make(chan *nats.Msg, 4096)}
	o.stream = eventlog.Events(l.opt.JetStream, l.opt.Lane)
	var err error
	if o.appender, err = o.stream.NewAppender(l.opt.WriteTimeout); err != nil {
		return err
	}
	defer o.appender.Close()
	if err := o.load(ctx); err != nil {
		return err
	}
	o.replayed = o.fresh
	if err := o.rebase(ctx); err != nil {
		return err
	}
	if err := o.continues(ctx); err != nil {
		return err
	}
	if o.feed, err = eventlog.Commands(l.opt.JetStream, l.opt.Lane).OpenFeed(ctx, o.covered, l.opt.Logger); err != nil {
		return o.feedBroke(err)
	}
	defer o.feed.Close()
	sub, err := l.opt.JetStream.Conn().ChanSubscribe(topology.LaneQuery(l.opt.Lane), o.queries)
	if err != nil {
		return fmt.Errorf("subscribing to queries: %w", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection may be gone; nobody asks us then

	l.opt.Metrics.owned.WithLabelValues(l.label).Set(1)
	defer l.opt.Metrics.owned.WithLabelValues(l.label).Set(0)
	o.report(StateOwner)
	l.opt.Logger.InfoContext(ctx, "lane taken", "events", o.sequence, "commands", o.covered,
		"campaigns", o.state.Campaigns(), "replayed", o.replayed, "took", time.Since(o.started).Round(time.Millisecond))

	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return o.purge(running) })
	group.Go(func() error { return o.loop(running) })
	err = group.Wait()
	o.settle()
	if ctx.Err() != nil {
		o.farewell()
	}
	return err
}

// owner is one taking of a lane. Its fields belong to the goroutine that runs load and loop, unless said otherwise.
type owner struct {
	lane    *Lane
	opt     Options
	nonce   string
	started time.Time

	state    *domain.Lane
	void     bool      // state is ahead of the log for good: it must not be used or saved
	sequence uint64    // of the newest event message known to be durable
	covered  uint64    // newest command covered by it
	stamped  time.Time // stored timestamp of that command
	position eventlog.Position

	stream   eventlog.Stream
	appender *eventlog.Appender
	feed     *eventlog.Feed
	arrived  bool           // the feed may hold something
	buffer   []eventlog.Raw // taken from the feed
	backlog  []eventlog.Raw // of it, not decided yet
	next     *step          // collecting; nil = empty
	crowded  bool           // the next message does not fit into it
	flying   *flight        // published, not yet acknowledged
	queries  chan *nats.Msg

	replayed     int // event lines folded at the start
	fresh        int // event lines since the newest snapshot
	snapshotting bool
	snapshotted  time.Time
	saved        chan error // result of the snapshot being written

	durable atomic.Uint64 // covered, for purge to read
}

// report publishes how the lane stands.
func (o *owner) report(state State) {
	covered, sequence, clock := o.covered, o.sequence, o.state.Clock()
	campaigns := o.state.Campaigns()
	o.lane.report(func(s *Status) {
		*s = Status{State: state, Owner: o.nonce, Sequence: sequence, Covered: covered, Clock: clock.Time(), Campaigns: campaigns, Replayed: o.replayed}
	})
	m := o.opt.Metrics
	m.sequence.WithLabelValues(o.lane.label).Set(float64(sequence))
	m.covered.WithLabelValues(o.lane.label).Set(float64(covered))
	m.campaigns.WithLabelValues(o.lane.label).Set(float64(campaigns))
	m.stateEvents.WithLabelValues(o.lane.label).Set(float64(o.fresh))
}
