package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane/protocol"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// flight is a write without a result yet.
type flight struct {
	pending *eventlog.Pending
	began   time.Time
}

// publish sends the collected step, unless a write is in flight. Nothing is answered yet.
func (o *owner) publish() {
	if w := o.Publish(); w != nil {
		attempt := w.Attempt
		attempt.Wait = min(firstLook, o.opt.WriteTimeout)
		o.inFlight = &flight{o.appender.PublishAsync(attempt), o.opt.Now()}
	}
}

// landed handles the result of the write in flight. Only here are answers sent.
func (o *owner) landed(ctx context.Context) error {
	f := o.inFlight
	sequence, err := f.pending.Result()
	if err != nil {
		if sequence, err = o.resolve(ctx, f.pending.Attempt, err); err != nil {
			return err
		}
	}
	o.inFlight = nil
	w := o.acked(sequence)
	// Publish the next write first: the disk works while this one is answered.
	o.publish()
	o.send(w.Answers)
	o.lane.processed.Add(uint64(w.Commands))
	m, label := o.opt.Metrics, o.lane.label
	m.steps.WithLabelValues(label).Inc()
	m.commands.WithLabelValues(label).Add(float64(w.Commands))
	m.size.WithLabelValues(label).Observe(float64(w.Commands))
	m.write.WithLabelValues(label).Observe(o.opt.Now().Sub(f.began).Seconds())
	return nil
}

// acked records that the write in flight is durable.
func (o *owner) acked(sequence uint64) *protocol.Write {
	w := o.Acked(sequence)
	o.confirmation.since = time.Now()
	o.opt.Mover.Answered()
	o.durable.Store(o.Covered())
	return w
}

const (
	// firstLook is how long an acknowledgement is waited for before the stream is checked for the write. Each further publish
	// of the same bytes waits twice as long, up to Options.WriteTimeout. A check is safe at any time: of two publishes with
	// one fence only one can be stored.
	firstLook = 500 * time.Millisecond
	// lookFor bounds one check, so that a stream that does not answer is reported. The pause between checks is resolvePause,
	// doubled up to resolvePauses while checks fail.
	lookFor       = 3 * time.Second
	resolvePause  = 50 * time.Millisecond
	resolvePauses = 250 * time.Millisecond
	fullPause     = 250 * time.Millisecond
	// unknownAfter is how many checks or publishes in a row must fail before the lane reports its event log as unreachable.
	unknownAfter = 2
)

// resolve finds the result of a write without a positive acknowledgement, and publishes the same bytes again as long as
// the stream has not changed. It returns the step's sequence, or errLost.
func (o *owner) resolve(ctx context.Context, attempt eventlog.Attempt, problem error) (uint64, error) {
	warned := false
	failed, pauseFor := 0, resolvePause
	warn := func(state State, text string) {
		o.lane.report(func(s *Status) { s.State, s.Error = state, text+": "+problem.Error() })
		if !warned {
			warned = true
			o.opt.Logger.ErrorContext(ctx, text+"; nothing is answered until it does", "err", problem)
		}
	}
	attempt.Wait = min(firstLook, o.opt.WriteTimeout)
	for {
		if errors.Is(problem, eventlog.ErrTooLarge) {
			return 0, fmt.Errorf("%w: %w; raise the server's max_payload to at least 1 MiB", ErrStopped, problem)
		}
		o.opt.Metrics.unknown.WithLabelValues(o.lane.label).Inc()
		wait := pauseFor
		switch {
		case errors.Is(problem, eventlog.ErrNotDurable):
			wait = max(wait, fullPause)
			warn(StateFull, "the event log accepts no writes, free disk space")
		case failed >= unknownAfter:
			warn(StateUnknown, "the event log does not answer")
		}
		if err := topology.Pause(ctx, wait); err != nil {
			return 0, err
		}
		look, done := context.WithTimeout(ctx, lookFor)
		outcome, err := o.stream.Resolve(look, attempt)
		done()
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case err != nil:
			o.opt.Mover.Unanswered()
			problem = err
			failed, pauseFor = failed+1, min(2*pauseFor, resolvePauses)
			continue
		}
		switch o.Resolved(outcome) {
		case protocol.Durable:
			o.written(ctx, warned)
			return attempt.Expected + 1, nil
		case protocol.Fenced:
			return 0, fmt.Errorf("%w: %w", errLost, problem)
		case protocol.Again:
		}
		attempt.Wait = min(2*attempt.Wait, o.opt.WriteTimeout)
		var sequence uint64
		if sequence, problem = o.appender.Publish(ctx, attempt); problem == nil {
			o.written(ctx, warned)
			return sequence, nil
		}
		failed++
	}
}

// written ends the alarm that the event log does not answer.
func (o *owner) written(ctx context.Context, warned bool) {
	if warned {
		o.opt.Logger.InfoContext(ctx, "the event log accepts writes again")
	}
	o.report(StateOwner)
}

// send publishes answers. They are core messages: after a lost one the client retries under the same id, and is answered
// from the state.
func (o *owner) send(answers []protocol.Answer) {
	nc := o.opt.JetStream.Conn()
	for _, a := range answers {
		if err := nc.PublishMsg(&nats.Msg{Subject: a.Subject, Data: a.Payload}); err != nil {
			// The client retries.
			o.opt.Logger.Warn("outcome not sent", "err", err)
			if !errors.Is(err, nats.ErrMaxPayload) {
				return // the connection is closing
			}
		}
	}
}

// settle waits, when the loop ends, for the write in flight: if it was stored, its answers are sent. It does not start
// another one.
func (o *owner) settle() {
	if o.inFlight != nil {
		// At the latest after the appender's wait for acknowledgements.
		if sequence, err := o.inFlight.pending.Result(); err == nil {
			o.send(o.acked(sequence).Answers)
		}
	}
	o.Abandon()
}
