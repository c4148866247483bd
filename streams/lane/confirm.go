package lane

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
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
