package push

import (
	"fmt"
	"time"
)

// Partial is the error of a Func that delivered to some customers and not to others: only the others are retried. It is a
// failed try of those, as Refused is.
type Partial struct {
	// Failed are the indexes in the batch of those that were not delivered. None at all, or one outside the batch, counts as
	// if none was delivered.
	Failed []int
	// Err is the reason.
	Err error
}

func (e *Partial) Error() string {
	return fmt.Sprintf("%d not delivered: %v", len(e.Failed), e.Err)
}

func (e *Partial) Unwrap() error { return e.Err }

// Refused is the error of a Func whose gateway works and does not take this batch. It is a failed try, also while nothing
// else is delivered.
type Refused struct{ Err error }

func (e *Refused) Error() string { return e.Err.Error() }

func (e *Refused) Unwrap() error { return e.Err }

// Away is the error of a Func whose gateway cannot be reached, or requests a pause. It is no failed try, and no more calls are
// made, but one probe at a time, until the gateway works.
type Away struct {
	Err error
	// RetryAfter is the pause that the gateway requested, 0 = none. More than 24 h count as 24 h.
	RetryAfter time.Duration
}

func (e *Away) Error() string { return e.Err.Error() }

func (e *Away) Unwrap() error { return e.Err }
