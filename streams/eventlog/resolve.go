package eventlog

import (
	"context"
	"errors"
	"fmt"
)

// Outcome is what became of a publish.
type Outcome uint8

// The outcomes of a publish whose answer did not come.
const (
	// Landed: the very message stands where it was meant to.
	Landed Outcome = iota + 1
	// Unchanged: the stream still ends where the publish expected. The message may be on its way yet, so publish the
	// same bytes with the same fence again: of the two, one can land.
	Unchanged
	// Lost: the stream went on without it, or ends earlier. The writer has lost the lane: drop state, reload.
	Lost
)

func (o Outcome) String() string {
	switch o {
	case Landed:
		return "landed"
	case Unchanged:
		return "unchanged"
	case Lost:
		return "lost"
	}
	return "unknown"
}

// Resolve finds out what became of an attempt. Whether the message in its place is the attempted one is decided by the
// digest over all Scrip- headers and the payload: nonce, command range and bytes alike. A publish behind it that is
// unresolved too is resolved after it, with the same call.
//
// An error means that the leader could not be asked; nothing is decided then.
func (s Stream) Resolve(ctx context.Context, attempt Attempt) (Outcome, error) {
	bounds, err := s.Bounds(ctx)
	if err != nil {
		return 0, fmt.Errorf("resolving a write behind %d: %w", attempt.Expected, err)
	}
	if bounds.Last <= attempt.Expected {
		return attempt.Judge(bounds.Last, nil), nil
	}
	raw, err := s.Get(ctx, attempt.Expected+1)
	switch {
	case errors.Is(err, ErrLostTail), errors.Is(err, ErrTrimmed), errors.Is(err, ErrHole):
		return attempt.Judge(bounds.Last, nil), nil
	case err != nil:
		return 0, fmt.Errorf("resolving a write behind %d: %w", attempt.Expected, err)
	}
	return attempt.Judge(bounds.Last, &raw), nil
}

// Judge says what became of the attempt in a stream that ends at last. placed is the message right behind Expected; nil
// if there is none.
func (a Attempt) Judge(last uint64, placed *Raw) Outcome {
	switch {
	case last == a.Expected:
		return Unchanged
	case last < a.Expected || placed == nil:
		return Lost
	case Digest(placed.Header, placed.Data) == Digest(a.Header, a.Payload):
		return Landed
	}
	return Lost
}
