package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/google/uuid"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/fanout"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// run is one Run of a scheduler. Its one goroutine owns everything here.
type run struct {
	*Scheduler
	log     *slog.Logger
	timers  *timers.Timers
	planner *planner
	fan     *fanout.Fan
	pace    *fanout.Pace
	reader  *eventlog.Reader
	folded  eventlog.Message // the last valid one; zero if none
	torn    bool             // the timers hold a part of the message after folded
	live    bool             // caught up with the end of the log as it was at the start

	restoreFrom Snapshots // nil = replay from the first event

	idPrefix   string // of requests: unlike any other run's
	serial     uint64
	dueSubject string
	round      *round // of requests that is being published; nil if none is
	failing    bool   // the last round was not published

	configured bool
	changed    <-chan struct{} // closed when there are other settings; nil = never

	saver    saver
	reported wire.Instant // when the backlog was published last

	meters
}

// Run schedules until ctx ends, and then returns its error; an error before that means that the lane can not be
// scheduled as it is: fanout.ErrLost (another writer: what this run knows may be stale), a reminder stream that does not fit
// the event stream, a newer log format, a damaged event line, a full disk, or a NATS server that does not answer. The
// server tries again with another scheduler, after a growing pause and under the same lease, while the lane goes on; a new
// run reads where the reminder stream ends, so that of two writers each goes on after the other until one loses the lease.
func (s *Scheduler) Run(ctx context.Context) error {
	err := s.run(ctx, s.opts.Snapshots)
	if errors.Is(err, errMisfit) {
		s.opts.Logger.WarnContext(ctx, "the snapshot does not fit the event log; replaying all events", "err", err)
		err = s.run(ctx, nil)
	}
	return err
}

// run is Run with timers from those snapshots.
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
	defer s.load.Bursting.Store(false)

	appender, err := s.reminders().NewAppender(0)
	if err != nil {
		return err
	}
	defer appender.Close()
	r.pace = fanout.NewPace(s.opts.Load.Clients)
	r.fan = &fanout.Fan{
		Queue:  fanout.Queue{Owner: owner},
		Stream: s.reminders(), Appender: appender, Pace: r.pace, Clock: s.opts.Clock,
		Published: s.opts.Metrics.published.WithLabelValues(strconv.Itoa(s.lane)), Total: &s.load.Done, Stored: s.stored, Log: r.log,
	}
	defer func() { r.saver.abandon(); r.timers.Close() }()
	defer func() { r.round.abandon() }()
	if err := r.start(ctx); err != nil {
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

// start finds where the fan-out stopped, restores the timers, and folds everything that the log holds by then. Nothing is
// requested before that: the answer may be in the log already.
func (r *run) start(ctx context.Context) error {
	events := r.events()
	// The source of the last message decides what is not published any more.
	tail, err := r.fan.Stream.Tail(ctx)
	if err != nil {
		return err
	}
	r.fan.Sealer = r.fan.Stream.Sealer()
	if len(tail.Foreign) > 0 {
		r.log.ErrorContext(ctx, "messages on the reminder stream that scrip did not write; find out who may publish there",
			"stream", r.fan.Stream.Name(), "sequences", tail.Foreign)
	}
	r.fan.Last = tail.Last
	stream, err := r.js.Stream(ctx, r.fan.Stream.Name())
	if err != nil {
		return err
	}
	r.fan.Chained = stream.CachedInfo().Config.Replicas <= 1
	if m := tail.Message; m != nil {
		r.fan.Reached = m.Source
		from := eventlog.Position{Log: r.of.UUID, Lane: r.lane, Sequence: m.Source.Sequence, Digest: m.SourceDigest}
		if err := events.Verify(ctx, r.of.UUID, from); isOtherLog(err) {
			return fmt.Errorf("message %d of stream %s has reminders of event message %d, which the event stream does not hold: the event stream lost its tail or is older than the reminder stream; restore both from one backup: %w",
				m.Sequence, r.fan.Stream.Name(), m.Source.Sequence, err)
		} else if err != nil {
			return err
		}
	}
	position := r.restore(ctx)
	if r.reader, err = events.Open(ctx, r.of.UUID, position, eventlog.ReaderOptions{Logger: r.log}); err != nil {
		return err
	}
	r.planner = newPlanner(r.timers)
	r.configure(ctx)
	r.fan.Around = func() { r.configure(ctx) }
	started := r.opts.Clock.Now()
	err = r.reader.CatchUp(ctx, func(batch []eventlog.Message) error {
		for i := range batch {
			if err := r.fold(ctx, &batch[i]); err != nil {
				return err
			}
			if r.fan.Full() {
				if err := r.fan.Drain(ctx, fanout.MaxWaiting/2); err != nil {
					return err
				}
			}
		}
		r.configure(ctx)
		_, err := r.fan.Pump(ctx)
		r.save(ctx)
		return err
	})
	if err != nil {
		r.reader.Close()
		return err
	}
	r.live = true
	r.log.InfoContext(ctx, "caught up", "from", position.Sequence, "to", r.reader.Sequence(),
		"campaigns", r.timers.Campaigns(), "reminders", r.timers.Reminders(), "took", r.opts.Clock.Now().Sub(started))
	return nil
}

func isOtherLog(err error) bool {
	return errors.Is(err, eventlog.ErrDiverged) || errors.Is(err, eventlog.ErrLostTail) || errors.Is(err, eventlog.ErrTrimmed) || errors.Is(err, eventlog.ErrHole)
}

// configure puts the settings in force that hold now.
func (r *run) configure(ctx context.Context) {
	if r.pace.Look(); r.changed != nil && !fanout.Closed(r.changed) || r.changed == nil && r.configured {
		return
	}
	var now *settings.Settings
	now, r.changed = r.opts.Config.Current()
	if r.configured {
		r.log.InfoContext(ctx, "other settings in force", "batch", now.ReminderBatch, "rate", now.ReminderRate,
			"concurrency", now.ReminderConcurrency, "expiry_paused", len(now.ExpiryPaused), "reminders_paused", len(now.RemindersPaused))
	}
	r.configured = true
	r.pace.Configure(now)
	r.planner.configure(now)
}

// errMisfit: events do not fit the timers that a snapshot made.
var errMisfit = errors.New("the event log does not fit the snapshot")
