package lane

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane/protocol"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
)

// Lane runs one lane of the log while this process holds its lease.
type Lane struct {
	opt    Options
	label  string // the lane's number as a metrics label
	status atomic.Pointer[Status]

	load *load.Report // what it reports

	tallied  sync.Mutex // guards the field below
	outcomes map[domain.OutcomeKind]*tallied

	distrusts bool // the next load does without a snapshot; owned by Run

	alarmed atomic.Uint64 // newest foreign message of the event stream that was reported

	signals signals
}

// signals are the facts that tests wait for.
type signals struct {
	Reported   testsignal.Signal[Status]             // the state, its error or the owner's nonce has changed
	Configured testsignal.Signal[*settings.Settings] // the loop applies these
	Confirmed  testsignal.Signal[uint64]             // the event stream still ends with our last step
	Purged     testsignal.Signal[uint64]             // the command stream starts there now, or later
	Saved      testsignal.Signal[error]              // a snapshot was written, or not
}

// New returns the lane; Run runs it.
func New(o Options) *Lane {
	l := &Lane{opt: o.withDefaults(), label: strconv.Itoa(o.Lane)}
	l.load = &l.opt.Load.Lanes[o.Lane]
	l.opt.Metrics.forget(l.label)
	l.report(func(s *Status) { s.State = StateIdle })
	return l
}

// ErrStopped is the kind of every error after which the lane must not continue by itself, because the log contradicts
// itself: to continue would lose or repeat acknowledged commands. The text names what an operator can do. It is a state of
// the log, not of the process: Run again later, and the lane continues once the contradiction is resolved.
var ErrStopped = protocol.ErrStopped

// errLost: another owner writes this lane. The decisions made here are invalid and none was answered.
var errLost = errors.New("another owner writes this lane")

// errDoubtful is the kind of an ErrStopped that a second read of the log, from the start, has not confirmed yet.
var errDoubtful = errors.New("not confirmed yet")

const (
	// doubts is how often a lane is loaded again because of an errDoubtful, within doubtsWithin, before it stops.
	doubts       = 2
	doubtsWithin = time.Minute
	doubtPause   = 250 * time.Millisecond
	// unreachablePause is the pause before a lane whose log was unreachable is loaded again. Each request of a load waits for
	// longer than an election.
	unreachablePause = 500 * time.Millisecond
)

// Run loads the lane, decides until ctx ends, and then returns nil. When another owner writes the lane, its state is
// dropped and loaded again, unless Options.Contested forbids it: each term has a new nonce. It returns an error of kind
// [ErrStopped] when every check finds that the log contradicts itself, and any other error when the log cannot be read or
// written at all. Where the log is only unreachable, Run retries.
//
// A fence that is lost again and again while this process keeps the lease has another cause than an owner: some program
// publishes on the event stream. To load the lane each time would cost too much, so it pauses (see losses).
func (l *Lane) Run(ctx context.Context) error {
	var recent losses
	doubted, since := 0, time.Time{}
	for {
		err := l.take(ctx)
		switch {
		case ctx.Err() != nil:
			l.report(func(s *Status) { *s = Status{State: StateIdle} })
			return nil
		case errors.Is(err, errLost):
			l.opt.Metrics.lost.WithLabelValues(l.label).Inc()
			pause := recent.add(l.opt.Clock.Now())
			l.opt.Logger.WarnContext(ctx, "lane lost to another owner; loading it again", "in", pause, "err", err)
			if pause > 0 {
				l.report(func(s *Status) {
					*s = Status{State: StateLoading, Error: "other programs wrote the event stream several times in " + lostWithin.String() + "; find out which one publishes there"}
				})
				_ = natsx.Pause(ctx, pause) // ended by ctx: the next load returns
			}
			if err := l.contested(ctx); err != nil {
				l.report(func(s *Status) { *s = Status{State: StateIdle} })
				return err
			}
			continue
		case errors.Is(err, errDoubtful):
			if now := l.opt.Clock.Now(); now.Sub(since) > doubtsWithin {
				doubted, since = 0, now
			}
			if doubted++; doubted <= doubts {
				l.opt.Logger.WarnContext(ctx, "commands and events contradict each other; loading the lane again", "err", err)
				_ = natsx.Pause(ctx, doubtPause)
				continue
			}
		}
		if !errors.Is(err, ErrStopped) && natsx.Transient(err) {
			// Another server could not do better. What was read of the log so far is read again, a snapshot included.
			l.opt.Logger.WarnContext(ctx, "log not read; retrying", "err", err)
			l.report(func(s *Status) {
				if s.State != StateStopped {
					*s = Status{State: StateLoading, Error: err.Error()}
				}
			})
			_ = natsx.Pause(ctx, unreachablePause)
			continue
		}
		if errors.Is(err, ErrStopped) {
			l.opt.Metrics.refused.WithLabelValues(l.label).Inc()
		}
		l.report(func(s *Status) { s.State, s.Error = StateStopped, err.Error() })
		return err
	}
}

// contested checks whether the lane is still this process's to take. Two owners that both load it again after each fence
// loss would fence each other out for ever.
func (l *Lane) contested(ctx context.Context) error {
	if l.opt.Contested == nil {
		return nil
	}
	if err := l.opt.Contested(ctx); ctx.Err() == nil {
		return err
	}
	return nil // the next load returns
}

const (
	lostWithin = 10 * time.Second
	lostPause  = time.Second
)

// losses are the times of the last lost fences, oldest first.
type losses [3]time.Time

// add records a loss and returns the pause before the lane is loaded again.
func (l *losses) add(now time.Time) time.Duration {
	l[0], l[1], l[2] = l[1], l[2], now
	if l[0].IsZero() || now.Sub(l[0]) >= lostWithin {
		return 0
	}
	return lostPause
}

// take loads the state from the log and runs the loop until it ends.
func (l *Lane) take(ctx context.Context) (err error) {
	defer l.distrust(&err)
	defer l.opt.Metrics.forget(l.label)
	l.report(func(s *Status) {
		if s.State != StateStopped { // that stays until the contradiction is resolved
			*s = Status{State: StateLoading}
		}
	})
	o := &owner{lane: l, opt: l.opt, started: l.opt.Clock.Now(), arrived: true, queries: make(chan receivedQuery, maxQueries)}
	o.stream = eventlog.Events(l.opt.JetStream, l.opt.Lane).In(l.opt.Log)
	o.term = protocol.New(protocol.Options{
		Log: l.opt.Log.UUID, Lane: l.opt.Lane, Nonce: uuid.NewString(), State: domain.NewLane(l.opt.domainOptions()),
		Sealer: o.stream.Sealer(),
	})
	if o.appender, err = o.stream.NewAppender(l.opt.WriteTimeout); err != nil {
		return err
	}
	defer o.appender.Close()
	if err := o.load(ctx); err != nil {
		return err
	}
	o.replayed = o.term.EventsSinceSnapshot()
	if err := o.rebase(ctx); err != nil {
		return err
	}
	if err := o.checkCommands(ctx); err != nil {
		return err
	}
	if o.feed, err = eventlog.Commands(l.opt.JetStream, l.opt.Lane).OpenFeed(ctx, o.term.Covered(), l.opt.Logger); err != nil {
		return o.feedBroke(ctx, err)
	}
	defer o.feed.Close()
	sub, err := o.subscribe()
	if err != nil {
		return fmt.Errorf("subscribing to queries: %w", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection may be closed; then no query arrives

	l.opt.Metrics.owned.WithLabelValues(l.label).Set(1)
	o.reportGap(ctx)
	l.opt.Logger.InfoContext(ctx, "lane taken", "events", o.term.Sequence(), "commands", o.term.Covered(),
		"campaigns", o.term.State().Campaigns(), "replayed", o.replayed, "took", l.opt.Clock.Now().Sub(o.started).Round(time.Millisecond))
	o.report(StateOwner)

	o.confirmation = confirmation{since: o.started, replies: make(chan confirmed, 1)}
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return o.purge(running) })
	group.Go(func() (err error) {
		defer l.distrust(&err)
		return o.loop(running)
	})
	err = group.Wait()
	o.finish()
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), lease.ErrLost) {
		o.saveShutdownSnapshot() // not after a lost lease: another server loads the lane already, and this one may be the next to take it
	}
	return err
}

// suspiciousGap is the age of the last event beyond which a takeover reports it. A process that starts cannot distinguish
// a lane that was idle from a machine clock that is wrong; an operator can.
const suspiciousGap = time.Hour

// reportGap compares the time of the lane's last event with the machine's clock.
func (o *owner) reportGap(ctx context.Context) {
	last := o.term.State().Clock()
	if last == 0 {
		return
	}
	gap := o.opt.Clock.Now().Sub(last.Time())
	o.opt.Metrics.gap.WithLabelValues(o.lane.label).Set(gap.Seconds())
	switch {
	case gap > suspiciousGap:
		o.opt.Logger.WarnContext(ctx, "the lane's last event is long ago; if the lane was not idle for so long, the clock of this machine or of NATS is ahead, and everything due until then expires now", "last", last.Time(), "gap", gap.Round(time.Second))
	case gap < -o.maxAhead():
		o.opt.Logger.ErrorContext(ctx, "the lane's last event is in the future; lane time does not advance until the clocks have reached it. Check the clocks of this machine and of the NATS servers", "last", last.Time(), "ahead", -gap.Round(time.Second))
	}
}

// report publishes the lane's status.
func (o *owner) report(state State) {
	s := Status{
		State: state, Owner: o.term.Nonce(), Sequence: o.term.Sequence(), Covered: o.term.Covered(),
		Clock: o.term.State().Clock().Time(), Campaigns: o.term.State().Campaigns(), Replayed: o.replayed,
	}
	if state == StateOwner && o.held.reason != "" {
		s.State, s.Error = StateWaiting, o.held.reason
	}
	o.lane.report(func(into *Status) { *into = s })
	m := o.opt.Metrics
	m.sequence.WithLabelValues(o.lane.label).Set(float64(s.Sequence))
	m.covered.WithLabelValues(o.lane.label).Set(float64(s.Covered))
	m.campaigns.WithLabelValues(o.lane.label).Set(float64(s.Campaigns))
	m.stateEvents.WithLabelValues(o.lane.label).Set(float64(o.term.EventsSinceSnapshot()))
}

// State is what a lane is doing.
type State string

// The states of a lane in this process.
const (
	StateIdle    State = "idle"    // another server's
	StateLoading State = "loading" // reading snapshot and log
	StateOwner   State = "owner"   // deciding
	StateWaiting State = "waiting" // commands are stamped in the future; see Error
	StateFull    State = "full"    // the event log accepts no writes; claims are not answered
	StateUnknown State = "unknown" // the event log does not answer; see Error
	StateStopped State = "stopped" // an operator is needed; see Error
)

// Owns is true of a process that has taken the lane, whether it can decide now or waits.
func (s State) Owns() bool {
	return s == StateOwner || s == StateWaiting || s == StateFull || s == StateUnknown
}

// Status is a lane's state as of its last step.
type Status struct {
	State     State     `json:"state"`
	Error     string    `json:"error,omitempty"`
	Owner     string    `json:"owner,omitempty"`
	Sequence  uint64    `json:"event_sequence"`
	Covered   uint64    `json:"command_sequence"`
	Clock     time.Time `json:"clock"`
	Campaigns int       `json:"campaigns"`
	Replayed  int       `json:"replayed"` // event lines folded at the start, after the snapshot
}

// Status may be called from any goroutine.
func (l *Lane) Status() Status { return *l.status.Load() }

// report changes the published status. Only the goroutine in Run calls it.
func (l *Lane) report(change func(*Status)) {
	var s Status
	if old := l.status.Load(); old != nil {
		s = *old
	}
	was := s
	change(&s)
	l.status.Store(&s)
	l.load.Loading.Store(s.State == StateLoading)
	if s.State != was.State || s.Error != was.Error || s.Owner != was.Owner {
		l.signals.Reported.Send(s)
	}
}
