package eventlog

import (
	"context"
	"errors"
	"fmt"
)

// Outcome is the result of a publish.
type Outcome uint8

// The outcomes of a publish without an answer.
const (
	// Landed: this very message is stored at the expected sequence.
	Landed Outcome = iota + 1
	// Unchanged: the stream still ends where the publish expected. The message may still be in flight, so publish the same
	// bytes with the same fence again: of the two, only one can be stored.
	Unchanged
	// Lost: the stream continued without it, or ends earlier. The writer has lost the lane: drop state, reload.
	Lost
)

// Resolve finds the result of an attempt. The digest over all Scrip- headers and the payload decides whether the stored
// message is the attempted one: nonce, command range and bytes alike. A later publish that is unresolved too is resolved
// after it, with the same call.
//
// An error means that the leader did not answer; there is no result then.
func (s Stream) Resolve(ctx context.Context, attempt Attempt) (Outcome, error) {
	bounds, err := s.Bounds(ctx)
	if err != nil {
		return 0, fmt.Errorf("resolving a write after %d: %w", attempt.Expected, err)
	}
	if bounds.Last <= attempt.Expected {
		return attempt.Judge(bounds.Last, nil), nil
	}
	raw, err := s.Get(ctx, attempt.Expected+1)
	switch {
	case errors.Is(err, ErrLostTail), errors.Is(err, ErrTrimmed), errors.Is(err, ErrHole):
		return attempt.Judge(bounds.Last, nil), nil
	case err != nil:
		return 0, fmt.Errorf("resolving a write after %d: %w", attempt.Expected, err)
	}
	return attempt.Judge(bounds.Last, &raw), nil
}

// Judge returns the result of the attempt in a stream that ends at last. placed is the message directly after Expected; nil
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
