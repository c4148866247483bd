package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// foldBatch is how many event messages are folded before looking at the clock again.
	foldBatch = 64
	// longestNap bounds a timer: the clock may be set, and an instant may lie beyond what a duration can hold.
	longestNap = time.Minute
	// oldestEvery is how often the age of the oldest unanswered instant is looked up; it costs a walk over all of them.
	oldestEvery = time.Second
)

// run is one Run of a scheduler. Its one goroutine owns everything here.
type run struct {
	*Scheduler
	log     *slog.Logger
	book    *book
	planner *planner
	fan     *fan
	reader  *eventlog.Reader
	folded  eventlog.Message // the last valid one; zero if none
	claims  claimReader
	torn    bool // the book holds a part of the message after folded
	live    bool // caught up with the end of the log as it was at the start

	restoreFrom Snapshots // nil = replay from the first event

	idPrefix   string // of asks: unlike any other run's
	serial     uint64
	dueSubject string
	askFailing bool

	saver      saver
	oldestLook domain.Instant

	asked                                               map[domain.CommandType]prometheus.Counter
	fired, dropped, expired, repeats, askFailed, differ prometheus.Counter
	fallLate, remindLate                                prometheus.Observer
	oldest, pending, instants, foldedSequence           prometheus.Gauge
}

// Run schedules until ctx ends, and then returns its error; an error before that means that the lane can not be
// scheduled from here: ErrLost (another writer: give the lease up and compete again), a reminder stream that does not
// fit the event stream, a newer log format, a damaged event line, or a NATS server that does not answer.
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

	appender, err := eventlog.Reminders(s.js, s.lane).NewAppender(0)
	if err != nil {
		return err
	}
	defer appender.Close()
	r.fan = &fan{
		stream: eventlog.Reminders(s.js, s.lane), appender: appender, owner: owner,
		count: s.opts.Metrics.published.WithLabelValues(strconv.Itoa(s.lane)), log: r.log,
		landed: s.landed,
	}
	defer func() { r.saver.abandon(); r.book.close() }()
	if err := r.begin(ctx); err != nil {
		return r.ended(ctx, err)
	}
	defer r.reader.Close()
	err = r.loop(ctx)
	if ctx.Err() != nil {
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

// meter finds this lane's metrics.
func (r *run) meter() {
	m, lane := r.opts.Metrics, strconv.Itoa(r.lane)
	r.asked = map[domain.CommandType]prometheus.Counter{
		domain.Expire:    m.asked.WithLabelValues(lane, domain.Expire.String()),
		domain.RemindDue: m.asked.WithLabelValues(lane, domain.RemindDue.String()),
	}
	r.fired, r.dropped, r.expired = m.fired.WithLabelValues(lane), m.dropped.WithLabelValues(lane), m.expired.WithLabelValues(lane)
	r.repeats, r.askFailed, r.differ = m.repeats.WithLabelValues(lane), m.askFailed.WithLabelValues(lane), m.disagreements.WithLabelValues(lane)
	r.fallLate, r.remindLate = m.lateness.WithLabelValues(lane, "expiry"), m.lateness.WithLabelValues(lane, "reminder")
	r.oldest, r.pending = m.oldest.WithLabelValues(lane), m.pending.WithLabelValues(lane)
	r.instants, r.foldedSequence = m.instants.WithLabelValues(lane), m.folded.WithLabelValues(lane)
}

// begin finds where the fan-out stopped, restores the book, and folds everything that the log holds by then. Nothing is
// asked before that: the answer may stand in the log already.
func (r *run) begin(ctx context.Context) error {
	events := eventlog.Events(r.js, r.lane)
	tail, err := r.fan.stream.Tail(ctx)
	if err != nil {
		return err
	}
	if len(tail.Foreign) > 0 {
		r.log.ErrorContext(ctx, "messages on the reminder stream that scrip did not write; find out who may publish there",
			"stream", r.fan.stream.Name(), "sequences", tail.Foreign)
	}
	r.fan.last = tail.Last
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
	r.planner = newPlanner(r.book)
	began := r.opts.Now()
	err = r.reader.CatchUp(ctx, func(batch []eventlog.Message) error {
		for i := range batch {
			if err := r.fold(ctx, &batch[i]); err != nil {
				return err
			}
		}
		r.saveIfDue(ctx)
		return nil
	})
	if err != nil {
		r.reader.Close()
		return err
	}
	r.live = true
	r.log.InfoContext(ctx, "caught up", "from", position.Sequence, "to", r.reader.Sequence(),
		"campaigns", len(r.book.campaigns), "reminders", r.book.reminders, "took", r.opts.Now().Sub(began))
	return nil
}

func isOtherLog(err error) bool {
	return errors.Is(err, eventlog.ErrDiverged) || errors.Is(err, eventlog.ErrLostTail) || errors.Is(err, eventlog.ErrTrimmed) || errors.Is(err, eventlog.ErrHole)
}

// loop folds, asks and tells until ctx ends.
func (r *run) loop(ctx context.Context) error {
	var batch []eventlog.Message
	for {
		var err error
		if batch, err = r.reader.TryBatch(foldBatch, batch[:0]); err != nil {
			return err
		}
		for i := range batch {
			if err := r.fold(ctx, &batch[i]); err != nil {
				return err
			}
		}
		now := domain.At(r.opts.Now())
		if r.planner.wake() <= now {
			r.ask(ctx, now)
		}
		r.report(now)
		if len(batch) > 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.saveIfDue(ctx)
			continue
		}
		// Nothing to fold: the pipeline may run empty, so that a failed publish is found now and not at the next firing.
		if err := r.fan.settle(ctx); err != nil {
			return err
		}
		r.saveIfDue(ctx)
		if err := r.nap(ctx, now); err != nil {
			return err
		}
	}
}

// nap waits for the next instant, an event, or the time of a snapshot.
func (r *run) nap(ctx context.Context, now domain.Instant) error {
	nap := longestNap
	if until := r.planner.wake(); until < now+domain.Instant(nap/time.Microsecond) {
		nap = time.Duration(until-now) * time.Microsecond
	}
	var written <-chan error
	if w := r.saver.writing; w != nil {
		written = w.done
	} else if r.saver.changed > 0 && r.opts.Snapshots != nil {
		nap = min(nap, max(r.snapshotDue().Sub(now.Time()), time.Millisecond))
	}
	fires, release := r.opts.Timer(nap)
	defer release()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.reader.Ready():
	case err := <-written:
		r.saver.writing.done <- err // for saveIfDue
	case <-fires:
	}
	return nil
}

// report sets the gauges.
func (r *run) report(now domain.Instant) {
	r.pending.Set(float64(r.book.reminders))
	r.instants.Set(float64(r.book.instants))
	r.foldedSequence.Set(float64(r.folded.Sequence))
	if now < r.oldestLook {
		return
	}
	r.oldestLook = now + domain.Instant(oldestEvery/time.Microsecond)
	age := 0.0
	if oldest := r.planner.oldest(); oldest < now {
		age = float64(now-oldest) / 1e6
	}
	r.oldest.Set(age)
}

// errMisfit: events do not fit the book that a snapshot made.
var errMisfit = errors.New("the event log does not fit the snapshot")
