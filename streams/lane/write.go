package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane/protocol"
)

// flight is a write without a result yet.
type flight struct {
	pending *eventlog.Pending
	began   time.Time
}

// publish sends what has been collected, unless a write is in flight. Nothing is answered yet.
func (o *owner) publish() {
	if w := o.Publish(); w != nil {
		o.flying = &flight{o.appender.PublishAsync(w.Attempt), o.opt.Now()}
	}
}

// landed is called when the write in flight has a result. Only here do answers leave.
func (o *owner) landed(ctx context.Context) error {
	f := o.flying
	sequence, err := f.pending.Result()
	if err != nil {
		if sequence, err = o.resolve(ctx, f.pending.Attempt, err); err != nil {
			return err
		}
	}
	o.flying = nil
	w := o.acked(sequence)
	// The next write first: the disk works while we answer.
	o.publish()
	o.send(w.Answers)
	o.lane.answered.Add(uint64(w.Commands))
	m, label := o.opt.Metrics, o.lane.label
	m.steps.WithLabelValues(label).Inc()
	m.commands.WithLabelValues(label).Add(float64(w.Commands))
	m.size.WithLabelValues(label).Observe(float64(w.Commands))
	m.write.WithLabelValues(label).Observe(o.opt.Now().Sub(f.began).Seconds())
	return nil
}

// acked notes that the write in flight is durable.
func (o *owner) acked(sequence uint64) *protocol.Write {
	w := o.Acked(sequence)
	o.confirmation.since = time.Now()
	o.durable.Store(o.Covered())
	return w
}

const (
	resolvePause = 50 * time.Millisecond
	fullPause    = 250 * time.Millisecond
)

// resolve finds out what became of a write that was not plainly acknowledged, publishing the same bytes again as long
// as the stream has not changed. It returns the step's sequence, or errLost.
func (o *owner) resolve(ctx context.Context, attempt eventlog.Attempt, problem error) (uint64, error) {
	warned := false
	for {
		if errors.Is(problem, eventlog.ErrTooLarge) {
			return 0, fmt.Errorf("%w: %w; raise the server's max_payload to at least 1 MiB", ErrStopped, problem)
		}
		o.opt.Metrics.unknown.WithLabelValues(o.lane.label).Inc()
		wait := resolvePause
		if errors.Is(problem, eventlog.ErrNotDurable) {
			wait = fullPause
			o.lane.report(func(s *Status) { s.State, s.Error = StateFull, problem.Error() })
			if !warned {
				warned = true
				o.opt.Logger.ErrorContext(ctx, "the event log takes no writes; nothing is answered until it does. Free disk space", "err", problem)
			}
		}
		if err := sleep(ctx, wait); err != nil {
			return 0, err
		}
		outcome, err := o.stream.Resolve(ctx, attempt)
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case err != nil:
			problem = err
			continue
		}
		switch o.Resolved(outcome) {
		case protocol.Durable:
			return attempt.Expected + 1, nil
		case protocol.Fenced:
			return 0, fmt.Errorf("%w: %w", errLost, problem)
		case protocol.Again:
		}
		var sequence uint64
		if sequence, problem = o.appender.Publish(ctx, attempt); problem == nil {
			if warned {
				o.opt.Logger.InfoContext(ctx, "the event log takes writes again")
			}
			o.report(StateOwner)
			return sequence, nil
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// send hands answers to the connection. They are core messages: one that gets lost is asked for again, under the same
// id, and answered from the state.
func (o *owner) send(answers []protocol.Answer) {
	nc := o.opt.JetStream.Conn()
	for _, a := range answers {
		if err := nc.PublishMsg(&nats.Msg{Subject: a.Subject, Data: a.Payload}); err != nil {
			// The asker asks again.
			o.opt.Logger.Warn("outcome not sent", "err", err)
			if !errors.Is(err, nats.ErrMaxPayload) {
				return // the connection is closing
			}
		}
	}
}

// settle waits, when the loop ends, for the write in flight: if it lands, its answers are owed. It does not start
// another one.
func (o *owner) settle() {
	if o.flying != nil {
		// At the latest after the appender's wait for acknowledgements.
		if sequence, err := o.flying.pending.Result(); err == nil {
			o.send(o.acked(sequence).Answers)
		}
	}
	o.Abandon()
}
