package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// How an owner checks that it still is the owner.
const (
	// confirmEvery is the time after the last proof of ownership when the end of the event stream is requested.
	confirmEvery = 5 * time.Second
	// queriesFor is how long after the last proof queries are answered. A leader that was cut off together with this owner
	// can confirm it for 10 s more; so an answer of an owner that was replaced is at most 25 s old.
	queriesFor = 15 * time.Second
)

// confirmation is the last proof of ownership: no other owner had written by since. Each acknowledged step proves that, by
// its fence; a lane without steps requests the end of its event stream.
type confirmation struct {
	since     time.Time
	requested time.Time // start of the request in flight; zero = none
	replies   chan confirmed
}

// confirmed is the reply to a request that was sent when the event stream was expected to end at fence.
type confirmed struct {
	fence  uint64
	bounds eventlog.Bounds
	err    error
}

// considerConfirming requests the end of the event stream if no step has proved ownership lately. It does so in a goroutine
// of its own: a server that does not answer must not block the loop.
func (o *owner) considerConfirming(ctx context.Context) {
	now := o.opt.Clock.Now()
	if !o.confirmation.requested.IsZero() || o.inFlight != nil || now.Sub(o.confirmation.since) < confirmEvery {
		return
	}
	o.confirmation.requested = now
	fence, replies := o.term.Sequence(), o.confirmation.replies
	go func() {
		bounds, err := o.stream.Bounds(ctx)
		replies <- confirmed{fence, bounds, err}
	}()
}

// confirm handles the reply. An event stream that continued without this owner belongs to another one: errLost. Without
// this check an owner that was replaced while it was stopped, and has no command to decide, would keep answering queries.
func (o *owner) confirm(c confirmed) error {
	requested := o.confirmation.requested
	o.confirmation.requested = time.Time{}
	switch {
	case c.err != nil || c.fence != o.term.Sequence() || o.inFlight != nil:
		return nil // not known, or steps prove it
	case c.bounds.Last > c.fence:
		return fmt.Errorf("%w: the event stream continues to %d, after our last step %d", errLost, c.bounds.Last, c.fence)
	case c.bounds.Last == c.fence:
		o.confirmation.since = requested
		o.lane.signals.Confirmed.Send(c.fence)
	}
	return nil
}

// mayAnswer reports whether queries may be answered. An owner that may have been replaced does not answer; the client then
// retries.
func (o *owner) mayAnswer() bool { return o.opt.Clock.Now().Sub(o.confirmation.since) < queriesFor }

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
		if err := natsx.Pause(ctx, wait); err != nil {
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
		switch outcome {
		case eventlog.Landed:
			o.written(ctx, warned)
			return attempt.Expected + 1, nil
		case eventlog.Lost:
			o.term.Abandon()
			return 0, fmt.Errorf("%w: %w", errLost, problem)
		case eventlog.Unchanged: // the same bytes again
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
