package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// flight is a step whose write is not acknowledged yet.
type flight struct {
	pending  *eventlog.Pending
	header   eventlog.Header
	answers  []answer
	lines    int
	commands int
	began    time.Time
}

// publish sends what has been collected behind the fence. Nothing is answered yet.
func (o *owner) publish(ctx context.Context) {
	s := o.next
	o.next, o.crowded = nil, false
	s.Close()
	header := eventlog.Header{
		Commands:    [2]uint64{s.first, s.last},
		CommandTime: s.stamped,
		LaneTime:    o.state.Clock().Time(),
		Owner:       o.nonce,
	}
	f := &flight{header: header, answers: s.answers, lines: s.Lines, commands: s.Commands, began: o.opt.Now()}
	// A crash after this line, before the acknowledgement: the step is in the log or it is not, and whoever loads the
	// lane sees which. Nobody was told anything.
	f.pending = o.appender.PublishAsync(eventlog.Attempt{Expected: o.sequence, Header: header.Encode(), Payload: s.Events})
	o.flying = f
}

// landed is called when the flying step has a result. Only here do answers leave.
func (o *owner) landed(ctx context.Context) error {
	f := o.flying
	sequence, err := f.pending.Result()
	if err != nil {
		if sequence, err = o.resolve(ctx, f.pending.Attempt, err); err != nil {
			return err
		}
	}
	o.flying = nil
	o.advance(sequence, f.header, eventlog.Digest(f.pending.Attempt.Header, f.pending.Attempt.Payload), f.lines)
	// The next write first: the disk works while we answer.
	if o.next != nil {
		o.publish(ctx)
	}
	o.send(f.answers)
	m, label := o.opt.Metrics, o.lane.label
	m.steps.WithLabelValues(label).Inc()
	m.commands.WithLabelValues(label).Add(float64(f.commands))
	m.size.WithLabelValues(label).Observe(float64(f.commands))
	m.write.WithLabelValues(label).Observe(o.opt.Now().Sub(f.began).Seconds())
	return nil
}

// advance notes that a step is durable.
func (o *owner) advance(sequence uint64, h eventlog.Header, digest string, lines int) {
	o.sequence, o.covered, o.stamped = sequence, h.Commands[1], h.CommandTime
	o.position = eventlog.Position{Log: o.opt.Log.UUID, Lane: o.opt.Lane, Sequence: sequence, Digest: digest}
	o.fresh += lines
	o.durable.Store(o.covered)
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
		if err := o.sleep(ctx, wait); err != nil {
			return 0, err
		}
		outcome, err := o.stream.Resolve(ctx, attempt)
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case err != nil:
			problem = err
			continue
		case outcome == eventlog.Landed:
			return attempt.Expected + 1, nil
		case outcome == eventlog.Lost:
			return 0, fmt.Errorf("%w: %w", errLost, problem)
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

func (o *owner) sleep(ctx context.Context, d time.Duration) error {
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
func (o *owner) send(answers []answer) {
	nc := o.opt.JetStream.Conn()
	for _, a := range answers {
		if err := nc.PublishMsg(&nats.Msg{Subject: a.subject, Data: a.payload}); err != nil {
			// Too large for the server or the connection is closing: the asker asks again.
			o.opt.Logger.Warn("outcome not sent", "err", err)
			return
		}
	}
}

// settle waits, when the loop ends, for the write in flight: if it lands, its answers are owed. It does not start
// another one.
func (o *owner) settle() {
	// What was decided but not published is void: the state is ahead of the log then and must not be saved.
	o.void = o.next != nil
	if o.flying == nil {
		return
	}
	f := o.flying
	o.flying = nil
	// At the latest after the appender's wait for acknowledgements.
	if sequence, err := f.pending.Result(); err == nil {
		o.advance(sequence, f.header, eventlog.Digest(f.pending.Attempt.Header, f.pending.Attempt.Payload), f.lines)
		o.send(f.answers)
		return
	}
	o.void = true
}
