package scheduler

import (
	"context"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

const (
	// foldBatch is how many event messages are folded before the clock is read again.
	foldBatch = 64
	// longestWait bounds a timer: the clock may be set, an instant may lie beyond what a duration can hold, and the published
	// backlog must not grow old.
	longestWait = 5 * time.Second
	// laneEvery is how often the state of a lane that decides nothing is read.
	laneEvery = 100 * time.Millisecond
)

// loop folds, requests and publishes until ctx ends. It waits in wait only: the fan-out publishes a piece each time round, as
// its pace allows, and expiries are folded and requested in between.
func (r *run) loop(ctx context.Context) error {
	var batch []eventlog.Message
	next := 0 // of batch, not folded yet
	for {
		r.configure(ctx)
		if next == len(batch) && !r.fan.Full() {
			var err error
			if batch, err = r.reader.TryBatch(foldBatch, batch[:0]); err != nil {
				return err
			}
			next = 0
		}
		folded := false
		for ; next < len(batch) && !r.fan.Full(); next++ {
			if err := r.fold(ctx, &batch[next]); err != nil {
				return err
			}
			folded = true
		}
		now := wire.At(r.opts.Clock.Now())
		r.planner.at(now)
		r.planner.allow(r.pace.Chunk())
		r.planner.unpublished = r.fan.Unpublished()
		r.planner.held = r.fan.Full() || r.saveLate(now)
		r.planner.idle = !r.opts.Decides()
		r.request(ctx, now)
		// What was folded is published now, in messages as full as it fills them: no message waits to be filled.
		again, err := r.fan.Pump(ctx)
		if err != nil {
			return err
		}
		r.report(now)
		r.save(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// What was published may have made room for the next request: nothing would wake up for that.
		r.planner.unpublished = r.fan.Unpublished()
		if more := r.round == nil && r.planner.ready(); !folded && !more {
			if err := r.wait(ctx, now, again); err != nil {
				return err
			}
		}
	}
}

// save takes a snapshot if one is due and the fan-out has published everything folded: waiting for it would delay all else.
func (r *run) save(ctx context.Context) {
	if r.fan.Settled() {
		r.saveIfDue(ctx)
	} else if r.opts.Snapshots != nil {
		r.writeEnded(ctx)
	}
}

// saveLate reports whether the fan-out has been busy for so long that no snapshot could be taken. No reminders are requested
// then until it is done, which is a fraction of a second.
func (r *run) saveLate(now wire.Instant) bool {
	s := &r.saver
	return r.opts.Snapshots != nil && s.changed > 0 && s.writing == nil && !s.failed &&
		now.Time().After(s.snapshotDue(r.timers.Size()).Add(snapshotEvery))
}

// wait waits for the next instant, an event, an acknowledgement, or the time of a snapshot. again is when the fan-out goes on,
// zero = after an acknowledgement.
func (r *run) wait(ctx context.Context, now wire.Instant, again time.Time) error {
	wait := longestWait
	var published <-chan struct{}
	if r.round != nil {
		published = r.round.done // nothing is requested before
	} else if until := r.planner.wake(); until < now+wire.Instant(wait/time.Microsecond) {
		wait = time.Duration(until-now) * time.Microsecond
	}
	if r.planner.idle {
		wait = min(wait, laneEvery)
	}
	if !again.IsZero() {
		wait = min(wait, again.Sub(r.opts.Clock.Now()))
	}
	var ready <-chan struct{}
	if !r.fan.Full() {
		ready = r.reader.Ready()
	}
	var written <-chan struct{}
	if w := r.saver.writing; w != nil && w.frozen != nil {
		wait = 0
	} else if w != nil {
		written = w.done
	} else if r.saver.changed > 0 && r.opts.Snapshots != nil && r.fan.Settled() {
		wait = min(wait, max(r.saver.snapshotDue(r.timers.Size()).Sub(now.Time()), time.Millisecond))
	}
	fires := r.opts.Clock.After(max(wait, 0))
	r.signals.Rested.Send(r.rest(now))
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ready:
	case <-r.fan.Changes():
	case <-published:
	case <-r.changed:
	case <-written:
	case <-fires:
	}
	return nil
}

// rest is what the run waits with.
func (r *run) rest(now wire.Instant) rest {
	p := r.planner
	quiet := r.round == nil && p.inFlight == [classes]int{} && p.wake() > now && !p.ready() && r.fan.Settled() && r.saver.writing == nil
	return rest{now, r.reader.Sequence(), p.settings, r.round != nil, quiet}
}
