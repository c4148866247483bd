package lane

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// How an owner knows that it still is one. Tests wait less long.
var (
	// confirmEvery is how long after the last proof that no other owner has written the event stream is asked.
	confirmEvery = 5 * time.Second
	// queriesFor is how long after the last proof queries are answered. A leader that was cut off together with this owner
	// can vouch for it for 10 s more; so what an owner that was replaced answers is at most 25 s old.
	queriesFor = 15 * time.Second
)

// confirmation is what is known of other owners: nothing has been written by any up to since. Each step that is
// acknowledged proves that, by its fence; a lane without steps asks.
type confirmation struct {
	since time.Time // by our monotonic clock
	asked time.Time // zero = no question is under way
	told  chan confirmed
}

// confirmed is the answer to a question that was asked when the event stream was thought to end at fence.
type confirmed struct {
	fence  uint64
	bounds eventlog.Bounds
	err    error
}

// considerConfirming asks where the event stream ends if nothing else has proved lately that it ends here. It does so
// beside the loop: a server that does not answer must not hold it.
func (o *owner) considerConfirming(ctx context.Context) {
	now := time.Now()
	if !o.confirmation.asked.IsZero() || o.flying != nil || now.Sub(o.confirmation.since) < confirmEvery {
		return
	}
	o.confirmation.asked = now
	fence, told := o.Sequence(), o.confirmation.told
	go func() {
		bounds, err := o.stream.Bounds(ctx)
		told <- confirmed{fence, bounds, err}
	}()
}

// confirm takes the answer in. An event stream that went on without this owner is another's: errLost. Without it an
// owner that was replaced while it was stopped, and has no command to decide, would go on answering queries.
func (o *owner) confirm(c confirmed) error {
	asked := o.confirmation.asked
	o.confirmation.asked = time.Time{}
	switch {
	case c.err != nil || c.fence != o.Sequence() || o.flying != nil:
		return nil // not known, or steps say it since
	case c.bounds.Last > c.fence:
		return fmt.Errorf("%w: the event stream goes on to %d, behind our last step %d", errLost, c.bounds.Last, c.fence)
	case c.bounds.Last == c.fence:
		o.confirmation.since = asked
	}
	return nil
}

// mayAnswer says whether queries may be answered: not by an owner that may have been replaced without knowing. Whoever
// asks such a one gets no answer from it, and asks again.
func (o *owner) mayAnswer() bool { return time.Since(o.confirmation.since) < queriesFor }
