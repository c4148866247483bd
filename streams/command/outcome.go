package command

import (
	"context"
	"errors"
	"fmt"
	"sync"

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

// reply is the answer to one command.
type reply struct {
	line []byte
	err  error
}

// outcome parses a reply.
func (r reply) outcome(id string) (wire.Outcome, error) {
	if r.err != nil {
		return wire.Outcome{}, r.err
	}
	out, err := wire.ParseOutcome(r.line)
	if err != nil {
		return wire.Outcome{}, &UnknownError{ID: id, Cause: err}
	}
	return out, nil
}

// Waiter is the Receiver of a caller that waits. It is reused: each use ends with its one answer received, or with a GiveUp after
// which none is sent.
type Waiter struct{ answers chan reply }

var waiters = sync.Pool{New: func() any { return &Waiter{make(chan reply, 1)} }}

// NewWaiter returns a Waiter for one command, whose Wait is to be called.
func NewWaiter() *Waiter { return waiters.Get().(*Waiter) }

// Answer implements Receiver.
func (w *Waiter) Answer(line []byte, err error) { w.answers <- reply{line, err} }

// Wait waits for the outcome of a command that was sent with the result of Send. The outcome is parsed here, to keep the goroutine free
// that reads answers. When ctx ends first the error is an *UnknownError, or a *NotSentError if the command was never sent; if its
// deadline passes and the log was reachable but could not store anything all the time, the outcome is the refusal not_durable.
func (w *Waiter) Wait(ctx context.Context, id string, ticket Ticket, err error) (wire.Outcome, error) {
	defer waiters.Put(w)
	if err != nil {
		return wire.Outcome{}, err
	}
	select {
	case r := <-w.answers:
		return r.outcome(id)
	case <-ctx.Done():
	}
	err, ok := ticket.GiveUp(ctx.Err())
	if !ok { // being delivered already
		r := <-w.answers
		return r.outcome(id)
	}
	var unsent *NotSentError
	if errors.As(err, &unsent) && unsent.Reached && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return unsent.Outcome(), nil
	}
	return wire.Outcome{}, err
}

// Func is a Receiver that calls Do with the outcome of the command with the id.
type Func struct {
	ID string
	Do func(wire.Outcome, error)
}

// Answer implements Receiver.
func (f *Func) Answer(line []byte, err error) { f.Do(reply{line, err}.outcome(f.ID)) }
