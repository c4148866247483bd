package coalesce

import (
	"errors"
	"fmt"

	"github.com/seed-4a2410e3/scrip/domain"
)

// UnknownError says that a command was sent and its result is not known: it may have had its effect or not. It is never
// a refusal. Ask again with the same ID to learn the result.
type UnknownError struct {
	ID    string
	Cause error // why nobody waits any longer
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("the result is not known (%v); ask again with id %s", e.Cause, e.ID)
}

func (e *UnknownError) Unwrap() error { return e.Cause }

// NotSentError says that a command never left, or reached nobody who could have kept it: it had no effect.
type NotSentError struct {
	ID    string
	Cause error
	// Asked says that the log was there to be asked and had nobody to keep the command: a full disk, for one.
	Asked bool
}

// Outcome is the refusal not_durable, which says the same to who asked a log that could not keep the command.
func (e *NotSentError) Outcome() domain.Outcome {
	return domain.Outcome{ID: e.ID, Status: domain.StatusRefused, Refusal: domain.NotDurable, Message: "the log could not keep the command; try again later"}
}

func (e *NotSentError) Error() string {
	return fmt.Sprintf("the command was not delivered (%v) and had no effect; ask again with id %s", e.Cause, e.ID)
}

func (e *NotSentError) Unwrap() error { return e.Cause }

// Causes of the errors above, and what Send answers itself.
var (
	// ErrClosed: the coalescer stopped.
	ErrClosed = errors.New("closed")
	// ErrDeadline: the line's deadline passed.
	ErrDeadline = errors.New("no answer in time")
	// ErrFull: as many lines are waiting as may; answered by TrySend only.
	ErrFull = errors.New("too many commands are waiting for an answer")
)
