package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Do sends a command and waits for its outcome. A command without ID gets a new one; it is in the outcome and in the
// errors. When ctx ends first the error is an *UnknownError, or a *NotSentError if the command was never sent; if its deadline
// passes and the log was reachable but could not store anything all the time, the outcome is the refusal not_durable.
func (c *Client) Do(ctx context.Context, cmd wire.Command) (wire.Outcome, error) {
	w := waiters.Get().(*waiter)
	ticket, refused, err := c.send(ctx, &cmd, time.Time{}, w)
	if err != nil || refused.Refused() {
		waiters.Put(w)
		return refused, err
	}
	var a answer
	select {
	case a = <-w.answers:
	case <-ctx.Done():
		if err, ok := ticket.GiveUp(ctx.Err()); ok {
			waiters.Put(w)
			var unsent *NotSentError
			if errors.As(err, &unsent) && unsent.Reached && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return unsent.Outcome(), nil
			}
			return wire.Outcome{}, err
		}
		a = <-w.answers // being delivered already
	}
	waiters.Put(w)
	return a.outcome(cmd.ID)
}

// DoAsync sends a command and returns; many can be in flight from one goroutine. fn is called once with the outcome,
// unless DoAsync itself returns an error, which means that the command had no effect. It waits only while MaxPending
// commands of the lane are in flight, or for the first description of the log; ctx ends that wait. The deadline of ctx, or
// Options.Timeout if it has none, is also the command's; cancelling ctx later changes nothing.
//
// fn must return at once: it runs on the goroutine that reads all answers. It may send the next command while fewer
// than MaxPending commands are in flight.
func (c *Client) DoAsync(ctx context.Context, cmd wire.Command, fn func(wire.Outcome, error)) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(c.opts.Timeout)
	}
	f := &callback{fn: fn}
	// The id is fixed here: the callback may run before send returns.
	c.name(&cmd)
	f.id = cmd.ID
	_, refused, err := c.send(ctx, &cmd, deadline, f)
	if err != nil {
		return err
	}
	if refused.Refused() {
		fn(refused, nil)
	}
	return nil
}

// send checks, encodes and sends a command. A refusal means that the command is invalid: nothing was sent.
func (c *Client) send(ctx context.Context, cmd *wire.Command, deadline time.Time, to command.Receiver) (command.Ticket, wire.Outcome, error) {
	c.name(cmd)
	if c.dead.Load() {
		return command.Ticket{}, wire.Outcome{}, &NotSentError{ID: cmd.ID, Cause: ErrClosed}
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	line, err := encode((*buf)[:0], cmd)
	*buf = line[:0]
	if err != nil {
		return command.Ticket{}, invalid(cmd, err), nil
	}
	l := command.Line{ID: cmd.ID, JSON: line, Deadline: deadline, To: to}
	if subject := endpoint(cmd.Type); subject != "" {
		l.By = c.opts.By
		ticket, err := c.lines.Request(ctx, subject, l)
		return ticket, wire.Outcome{}, err
	}
	log, err := c.finder.log(ctx)
	if err != nil {
		return command.Ticket{}, wire.Outcome{}, &NotSentError{ID: cmd.ID, Cause: err}
	}
	if subject := cmd.Type.Spec().Endpoint; log.requests && subject != "" {
		if !wire.ValidCampaignName(cmd.Campaign) { // it would be another subject
			return command.Ticket{}, invalid(cmd, fmt.Errorf("campaign: must be 1 to %d of A-Z a-z 0-9 _ -", wire.MaxCampaignName)), nil
		}
		ticket, err := c.lines.Request(ctx, "scrip."+strings.TrimSuffix(subject, "*")+cmd.Campaign, l)
		return ticket, wire.Outcome{}, err
	}
	ticket, err := c.lines.Send(ctx, topology.LaneOf(cmd.Campaign, log.lanes), l)
	return ticket, wire.Outcome{}, err
}

// endpoint returns the micro service's subject for a command that is not published to a lane directly: commands with a code,
// because the service knows the lane of a code, and those of operators, because the right to publish on the subject for
// commands of many campaigns includes an operator's rights.
func endpoint(t wire.CommandType) string {
	if spec := t.Spec(); spec.Endpoint != "" && !spec.NamesCampaign() {
		return "scrip." + spec.Endpoint
	}
	return ""
}

func (c *Client) name(cmd *wire.Command) {
	if cmd.ID == "" {
		cmd.ID = uuid.Must(uuid.NewV7()).String() // fails only without a source of randomness
	}
}

// encode appends the command's line. The lane checks most of it; here a command is rejected if it could not be answered (an
// id that no outcome can carry) or would be changed: bytes that are not UTF-8, which JSON cannot hold, and raw JSON with line
// breaks, which would become several commands.
func encode(dst []byte, cmd *wire.Command) ([]byte, error) {
	raw := len(cmd.Attributes) > 0 || cmd.Type == wire.CreateCampaign || cmd.Type == wire.UpdateCampaign || len(cmd.Codes) > 0
	if !raw && plain(cmd.ID, wire.MaxCommandID) {
		for _, s := range [...]string{cmd.Campaign, cmd.CustomerID, cmd.Code, cmd.OrderID, cmd.Reason, cmd.Kind, cmd.IfVersion} {
			if !utf8.ValidString(s) {
				return dst, fmt.Errorf("%q is not valid UTF-8", s)
			}
		}
		if dst = cmd.AppendJSON(dst); len(dst) <= wire.MaxLine {
			return dst, nil
		}
	} else {
		dst = cmd.AppendJSON(dst)
	}
	var parsed wire.Command
	if err := wire.ParseCommand(dst, wire.Defaults{}, &parsed); err != nil {
		return dst, err
	}
	if bytes.IndexByte(dst, '\n') >= 0 {
		dst = parsed.AppendJSON(dst[:0]) // attributes and benefit are compact now
	}
	return dst, nil
}

// plain reports whether s is 1 to most bytes of printable ASCII.
func plain(s string, most int) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) > 0 && len(s) <= most
}

func invalid(cmd *wire.Command, err error) wire.Outcome {
	return wire.Outcome{
		ID: cmd.ID, Status: wire.StatusRefused, Refusal: wire.Invalid, Campaign: cmd.Campaign, Message: err.Error(),
	}
}

type answer struct {
	line []byte
	err  error
}

// outcome parses an answer. It runs in the caller's goroutine, to keep the one that reads answers free.
func (a answer) outcome(id string) (wire.Outcome, error) {
	if a.err != nil {
		return wire.Outcome{}, a.err
	}
	out, err := wire.ParseOutcome(a.line)
	if err != nil {
		return wire.Outcome{}, &UnknownError{ID: id, Cause: err}
	}
	return out, nil
}

// waiter receives the answer of a call that waits. It is reused: each use ends with its one answer received, or with a
// GiveUp after which none is sent.
type waiter struct{ answers chan answer }

func (w *waiter) Answer(line []byte, err error) { w.answers <- answer{line, err} }

var (
	waiters = sync.Pool{New: func() any { return &waiter{answers: make(chan answer, 1)} }}
	buffers = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}
)

// callback receives the answer of an asynchronous call.
type callback struct {
	fn func(wire.Outcome, error)
	id string
}

func (f *callback) Answer(line []byte, err error) { f.fn(answer{line, err}.outcome(f.id)) }
