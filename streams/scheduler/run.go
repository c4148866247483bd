package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/config"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// foldBatch is how many event messages are folded before looking at the clock again.
	foldBatch = 64
	// longestNap bounds a timer: the clock may be set, an instant may lie beyond what a duration can hold, and what is
	// said about the backlog must not grow old.
	longestNap = 5 * time.Second
	// lookAtLane is how often a lane that decides nothing is looked at.
	lookAtLane = 100 * time.Millisecond
)

// run is one Run of a scheduler. Its one goroutine owns everything here.
type run struct {
	*Scheduler
	log     *slog.Logger
	timers  *timers.Timers
	planner *planner
	fan     *fan
	pace    *pace
	reader  *eventlog.Reader
	folded  eventlog.Message // the last valid one; zero if none
	torn    bool             // the book holds a part of the message after folded
	live    bool             // caught up with the end of the log as it was at the start

	restoreFrom Snapshots // nil = replay from the first event

	idPrefix   string // of asks: unlike any other run's
	serial     uint64
	dueSubject string
	asking     *asking // nil if none are on their way
	askFailing bool
	silent     bool // the lane does not answer some asks, and that was said
	idle       bool // the lane decides nothing

	configured bool
	changed    <-chan struct{} // closed when there are other settings; nil = never

	saver    saver
	reported domain.Instant // when the backlog was looked at last
	forecast forecast

	meters
}

// Run schedules until ctx ends, and then returns its error; an error before that means that the lane can not be
// scheduled as it is: ErrLost (another writer: what this run knows may be behind), a reminder stream that does not fit
// the event stream, a newer log format, a damaged event line, a full disk, or a NATS server that does not answer. The
// server tries again with another scheduler, after a growing pause and under the same lease, while the lane goes on; a new
// run reads where the reminder stream ends, so that of two writers each goes on behind the other until one loses the lease.
func (s *Scheduler) Run(ctx context.Context) error {
	err := s.run(ctx, s.opts.Snapshots)
	if errors.Is(err, errMisfit) {
		s.opts.Logger.WarnContext(ctx, "the snapshot does not fit the event log; replaying all events", "err", err)
		err = s.run(ctx, nil)
	}
	return err
}

// run is Run with a book from those snapshots.
func (s *Scheduler) run(ctx context.Context, snapshots Snapshots) error {
	nonce, err := uuid.NewRandom()
	if err != nil {
		return err
	}
	owner := nonce.String()
	r := &run{Scheduler: s, log: s.opts.Logger, restoreFrom: snapshots, dueSubject: topology.LaneDue(s.lane), idPrefix: "s-" + owner[:13] + "-"}
	r.meter()
	defer s.opts.Metrics.forget(s.lane)
	defer s.backlog.Store(nil)
	defer s.rushing.Store(false)

	appender, err := s.reminders().NewAppender(0)
	if err != nil {
		return err
	}
	defer appender.Close()
	r.pace = newPace(s.opts.Busy)
	r.fan = &fan{
		stream: s.reminders(), appender: appender, owner: owner,
		pace: r.pace, now: s.opts.Now, timer: s.opts.Timer,
		count: s.opts.Metrics.published.WithLabelValues(strconv.Itoa(s.lane)), told: &s.told, log: r.log,
		landed: s.landed,
	}
	defer func() { r.saver.abandon(); r.timers.Close() }()
	defer func() { r.asking.abandon() }()
	if err := r.begin(ctx); err != nil {
		return r.ended(ctx, err)
	}
	defer r.reader.Close()
	err = r.loop(ctx)
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), lease.ErrLost) { // another server has loaded the state otherwise
		r.saveLast()
	}
	return r.ended(ctx, err)
}

// ended prefers the context's error: after it, everything else fails too.
func (r *run) ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("scheduler of lane %d: %w", r.lane, err)
}

// begin finds where the fan-out stopped, restores the book, and folds everything that the log holds by then. Nothing is
// asked before that: the answer may stand in the log already.
func (r *run) begin(ctx context.Context) error {
	events := r.events()
	// What the last message of ours says decides whom nobody is told of any more.
	var err error
	if r.fan.stream, err = r.fan.stream.Settled(ctx); err != nil {
		return err
	}
	tail, err := r.fan.stream.Tail(ctx)
	if err != nil {
		return err
	}
	r.fan.sealer, r.fan.sealed = r.fan.stream.Sealer(), r.fan.stream.SealedFrom()
	if len(tail.Foreign) > 0 {
		r.log.ErrorContext(ctx, "messages on the reminder stream that scrip did not write; find out who may publish there",
			"stream", r.fan.stream.Name(), "sequences", tail.Foreign)
	}
	r.fan.last = tail.Last
	stream, err := r.js.Stream(ctx, r.fan.stream.Name())
	if err != nil {
		return err
	}
	r.fan.chained = stream.CachedInfo().Config.Replicas <= 1
	if m := tail.Message; m != nil {
		r.fan.reached = m.Source
		from := eventlog.Position{Log: r.Scheduler.log, Lane: r.lane, Sequence: m.Source.Sequence, Digest: m.SourceDigest}
		if err := events.Verify(ctx, r.Scheduler.log, from); isOtherLog(err) {
			return fmt.Errorf("message %d of stream %s tells reminders of event message %d, which the event stream does not hold: the event stream lost its tail or is older than the reminder stream; restore both from one backup: %w",
				m.Sequence, r.fan.stream.Name(), m.Source.Sequence, err)
		} else if err != nil {
			return err
		}
	}
	position := r.restore(ctx)
	if r.reader, err = events.Open(ctx, r.Scheduler.log, position, eventlog.ReaderOptions{Logger: r.log}); err != nil {
		return err
	}
	r.planner = newPlanner(r.timers)
	r.configure(ctx)
	r.fan.around = func() { r.configure(ctx) }
	began := r.opts.Now()
	err = r.reader.CatchUp(ctx, func(batch []eventlog.Message) error {
		for i := range batch {
			if err := r.fold(ctx, &batch[i]); err != nil {
				return err
			}
			if r.fan.full() {
				if err := r.fan.drain(ctx, fanFull/2); err != nil {
					return err
				}
			}
		}
		r.configure(ctx)
		_, err := r.fan.pump(ctx)
		r.save(ctx)
		return err
	})
	if err != nil {
		r.reader.Close()
		return err
	}
	r.live = true
	r.log.InfoContext(ctx, "caught up", "from", position.Sequence, "to", r.reader.Sequence(),
		"campaigns", r.timers.Campaigns(), "reminders", r.timers.Reminders(), "took", r.opts.Now().Sub(began))
	return nil
}

func isOtherLog(err error) bool {
	return errors.Is(err, eventlog.ErrDiverged) || errors.Is(err, eventlog.ErrLostTail) || errors.Is(err, eventlog.ErrTrimmed) || errors.Is(err, eventlog.ErrHole)
}

// configure puts the settings in force that hold now.
func (r *run) configure(ctx context.Context) {
	if r.pace.look(); r.changed != nil && !over(r.changed) || r.changed == nil && r.configured {
		return
	}
	var now *config.Settings
	now, r.changed = r.opts.Config.Current()
	if r.configured {
		r.log.InfoContext(ctx, "other settings in force", "batch", now.ReminderBatch, "rate", now.ReminderRate,
			"concurrency", now.ReminderConcurrency, "expiry_paused", len(now.ExpiryPaused), "reminders_paused", len(now.RemindersPaused))
	}
	r.configured = true
	r.pace.configure(now)
	r.planner.configure(now)
}

// loop folds, asks and tells until ctx ends. It waits nowhere but in nap: the fan-out publishes a piece each time round,
// as its pace allows, and expiries are folded and asked for in between.
func (r *run) loop(ctx context.Context) error {
	var batch []eventlog.Message
	next := 0 // of batch, not folded yet
	for {
		r.configure(ctx)
		if next == len(batch) && !r.fan.full() {
			var err error
			if batch, err = r.reader.TryBatch(foldBatch, batch[:0]); err != nil {
				return err
			}
			next = 0
		}
		folded := false
		for ; next < len(batch) && !r.fan.full(); next++ {
			if err := r.fold(ctx, &batch[next]); err != nil {
				return err
			}
			folded = true
		}
		now := domain.At(r.opts.Now())
		r.planner.at(now)
		r.planner.allow(r.pace.chunk())
		r.planner.unpublished = r.fan.untold()
		r.planner.held = r.fan.full() || r.saveLate(now)
		if r.idle = r.opts.Decides != nil && !r.opts.Decides(); r.idle {
			r.askEnded(ctx)
		} else {
			r.ask(ctx, now)
		}
		// Whatever was folded leaves now, in messages as full as it fills them: nothing waits for company.
		again, err := r.fan.pump(ctx)
		if err != nil {
			return err
		}
		r.report(now)
		r.save(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !folded {
			if err := r.nap(ctx, now, again); err != nil {
				return err
			}
		}
	}
}

// save takes a snapshot if one is due and the fan-out is done with everything folded: waiting for it would hold up all
// else.
func (r *run) save(ctx context.Context) {
	if r.fan.settled() {
		r.saveIfDue(ctx)
	} else if r.opts.Snapshots != nil {
		r.writeEnded(ctx)
	}
}

// saveLate says that the fan-out has been kept going for so long that no snapshot could be taken. No reminders are asked
// for then until it is done, which is a fraction of a second.
func (r *run) saveLate(now domain.Instant) bool {
	s := &r.saver
	return r.opts.Snapshots != nil && s.changed > 0 && s.writing == nil && !s.failed &&
		now.Time().After(r.snapshotDue(r.timers.Size()).Add(r.opts.SnapshotEvery))
}

// nap waits for the next instant, an event, a message that lands, or the time of a snapshot. again is when the fan-out
// goes on, zero = when a message has landed.
func (r *run) nap(ctx context.Context, now domain.Instant, again time.Time) error {
	nap := longestNap
	var asked <-chan struct{}
	if r.asking != nil {
		asked = r.asking.done // nothing is asked before
	} else if r.idle {
		nap = min(nap, lookAtLane)
	} else if until := r.planner.wake(); until < now+domain.Instant(nap/time.Microsecond) {
		nap = time.Duration(until-now) * time.Microsecond
	}
	if r.forecast.walking {
		nap = min(nap, forecastBreak)
	}
	if !again.IsZero() {
		nap = min(nap, again.Sub(r.opts.Now()))
	}
	var ready <-chan struct{}
	if !r.fan.full() {
		ready = r.reader.Ready()
	}
	var written <-chan error
	if w := r.saver.writing; w != nil && w.frozen != nil {
		nap = 0
	} else if w != nil {
		written = w.done
	} else if r.saver.changed > 0 && r.opts.Snapshots != nil && r.fan.settled() {
		nap = min(nap, max(r.snapshotDue(r.timers.Size()).Sub(now.Time()), time.Millisecond))
	}
	fires, release := r.opts.Timer(max(nap, 0))
	defer release()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ready:
	case <-r.fan.changes():
	case <-asked:
	case <-r.changed:
	case err := <-written:
		r.saver.writing.done <- err // for saveIfDue
	case <-fires:
	}
	return nil
}

// errMisfit: events do not fit the book that a snapshot made.
var errMisfit = errors.New("the event log does not fit the snapshot")
