package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// maxStepBytes is where a step stops taking messages: larger writes take longer than what they save. Before that, a
// message that might bring the step over domain.MaxStep waits for the next one.
const maxStepBytes = 256 << 10

// step is what is being collected: commands decided, nothing written yet.
type step struct {
	*domain.Step
	first, last uint64    // command messages
	stamped     time.Time // of the last
	answers     []answer
	began       time.Time
}

// answer is a message that leaves when the step is durable.
type answer struct {
	subject string
	payload []byte
}

// intakeBatch is how many command messages are taken from the feed at once.
const intakeBatch = 64

// loop is the heart. It takes what commands there are, decides them at once, writes one step at a time, and collects
// the next one while a write is in flight: under load a write carries what arrived during the one before it, and a
// lonely command waits for nothing.
func (o *owner) loop(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if o.full() {
			// Nothing to take in: wait for the write, or let what is collected go.
		} else if err := o.collect(ctx); err != nil {
			return err
		}
		if o.flying == nil && o.next != nil {
			o.publish(ctx)
		}
		if o.snapshotting && o.flying == nil && o.next == nil {
			o.snapshot(ctx)
		}
		var ready, acked <-chan struct{}
		if !o.full() {
			ready = o.feed.Ready()
		}
		if o.flying != nil {
			acked = o.flying.pending.Done()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ready:
			o.arrived = true
		case <-acked:
			if err := o.landed(ctx); err != nil {
				return err
			}
		case q := <-o.queries:
			o.query(q)
		case err := <-o.saved:
			o.snapshotDone(ctx, err)
		case <-tick.C:
			o.considerSnapshot()
			o.report(StateOwner)
		}
	}
}

// full reports whether no more commands are taken in: the step has its size, or a snapshot wants a quiet moment.
func (o *owner) full() bool {
	return o.next != nil && len(o.next.Events) >= maxStepBytes || o.crowded || o.snapshotting
}

// collect decides what has arrived, without waiting, until the step has its size.
func (o *owner) collect(ctx context.Context) error {
	for !o.full() {
		if len(o.backlog) == 0 {
			if !o.arrived {
				return nil
			}
			batch, err := o.feed.TryBatch(intakeBatch, o.buffer[:0])
			o.buffer = batch
			if len(batch) == 0 {
				o.arrived = false
				if err != nil {
					return o.feedBroke(err)
				}
				return nil
			}
			o.backlog = batch
		}
		if o.next != nil && !o.next.Fits(o.backlog[0].Data) {
			o.crowded = true
			return nil
		}
		c, err := o.lane.commandOf(&o.backlog[0])
		if err != nil {
			return err
		}
		o.backlog = o.backlog[1:]
		if err := o.take(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// feedBroke turns the end of the command feed into what it means: a stream that lost its tail or has a hole cannot be
// decided any further without an operator.
func (o *owner) feedBroke(err error) error {
	var gap *eventlog.GapError
	if errors.As(err, &gap) || errors.Is(err, eventlog.ErrLostTail) || errors.Is(err, eventlog.ErrDiverged) {
		return fmt.Errorf("%w: %w; %s", ErrStopped, err, o.rebaseHint())
	}
	return fmt.Errorf("reading commands: %w", err)
}

// take decides one command message.
func (o *owner) take(ctx context.Context, c command) error {
	if err := o.awaitClock(ctx, c.stamped); err != nil {
		return err
	}
	if o.next == nil {
		o.next = &step{Step: domain.NewStep(o.state), first: c.sequence, began: o.opt.Now()}
	}
	s := o.next
	s.last, s.stamped = c.sequence, c.stamped
	outcomes := s.Add(domain.Message{Sequence: c.sequence, Scope: c.scope, Campaign: c.campaign, Payload: c.payload}, domain.At(c.stamped), nil)
	if c.reply != "" {
		s.answers = append(s.answers, answer{c.reply, outcomes})
	}
	return nil
}

// awaitClock holds the lane while a command is stamped further in the future than clocks may differ: deciding it would
// expire coupons that are still good, and lane time never runs back.
func (o *owner) awaitClock(ctx context.Context, stamped time.Time) error {
	ahead := stamped.Sub(o.opt.Now())
	if ahead <= o.opt.MaxAhead {
		return nil
	}
	o.opt.Logger.ErrorContext(ctx, "a command is stamped in the future; the lane waits. Check the clocks of this machine and of the NATS servers", "ahead", ahead)
	o.opt.Metrics.waiting.WithLabelValues(o.lane.label).Set(1)
	defer o.opt.Metrics.waiting.WithLabelValues(o.lane.label).Set(0)
	o.lane.report(func(s *Status) {
		s.State, s.Error = StateWaiting, "a command is stamped "+ahead.Round(time.Millisecond).String()+" in the future; check the clocks of this machine and of the NATS servers"
	})
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for stamped.Sub(o.opt.Now()) > o.opt.MaxAhead {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
