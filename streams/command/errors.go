package command

import (
	"errors"
	"fmt"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// UnknownError is the error of a command that was sent and whose result is not known: it may have had its effect or not.
// It is never a refusal. Retry with the same ID to learn the result.
type UnknownError struct {
	ID    string
	Cause error // why the wait ended
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("the result is not known (%v); retry with id %s", e.Cause, e.ID)
}

func (e *UnknownError) Unwrap() error { return e.Cause }

// NotSentError is the error of a command that was never sent, or that no server could have stored: it had no effect.
type NotSentError struct {
	ID    string
	Cause error
	// Reached is true if the log was reachable and could not store the command: a full disk, for example.
	Reached bool
}

// Outcome returns the refusal not_durable, which has the same meaning for a caller of a log that could not store the command.
func (e *NotSentError) Outcome() wire.Outcome {
	return wire.Outcome{ID: e.ID, Status: wire.StatusRefused, Refusal: wire.NotDurable, Message: "the log could not store the command; try again later"}
}

func (e *NotSentError) Error() string {
	return fmt.Sprintf("the command was not delivered (%v) and had no effect; retry with id %s", e.Cause, e.ID)
}

func (e *NotSentError) Unwrap() error { return e.Cause }

// DeniedError is the cause of a NotSentError, or an error by itself, of a request that this client may not make.
type DeniedError struct{ Why string }

func (e *DeniedError) Error() string { return "not allowed: " + e.Why }

// Causes of the errors above, and errors of Send.
var (
	// ErrClosed: Run has returned.
	ErrClosed = errors.New("closed")
	// ErrDeadline: the line's deadline passed.
	ErrDeadline = errors.New("no answer in time")
	// ErrFull: MaxPending lines are waiting; only with Call.NoWait.
	ErrFull = errors.New("too many commands are waiting for an answer")
)
