package command

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Call is how a command is sent, and who gets its outcome.
type Call struct {
	// By is the person who sends it, see wire.ValidBy; "" = no person. The lines of a message have one By.
	By string
	// Deadline is when To gets an UnknownError or NotSentError instead of an outcome. Zero = never.
	Deadline time.Time
	// NoWait: while MaxPending lines of the lane wait, the error is a *NotSentError of kind ErrFull.
	NoWait bool
	// To gets the outcome.
	To Receiver
}

// Receiver gets the outcome of one command: exactly once, or never after Ticket.GiveUp or an error of Send.
type Receiver interface {
	// Answer is called by the goroutine that reads answers, by Run, or by the caller of Send for a command that is refused
	// without a lane: it must return at once. outcome is the outcome line without newline and may be kept. err is nil, a
	// *UnknownError or a *NotSentError.
	Answer(outcome []byte, err error)
}

// EnsureID gives a command that has no id a new one.
func EnsureID(cmd *wire.Command) {
	if cmd.ID == "" {
		cmd.ID = uuid.Must(uuid.NewV7()).String() // fails only without a source of randomness
	}
}

// Of returns the lane of a command or query: by the campaign's name, else by the campaign number in a generated code. That number may
// belong to no campaign; the lane checks it.
func (l *Lanes) Of(campaign, code string) (lane int, ok bool) {
	if campaign != "" {
		return topology.LaneOf(campaign, l.opts.Count), true
	}
	number, _, ok := l.codec.Decode(code)
	return int(number) % l.opts.Count, ok
}

// NoLane is the refusal of a command or query without a campaign, whose code no lane has.
func NoLane(id string) wire.Outcome {
	return wire.Outcome{ID: id, Status: wire.StatusRefused, Refusal: wire.CodeNotFound,
		Message: "no generated code has this form; an imported code needs its campaign in the field campaign"}
}

// Send sends a command that has an id to its lane; Options has Count and Codec. It waits while MaxPending lines of the lane are
// waiting; ctx or the deadline ends that wait. The error is a *NotSentError, after which call.To gets nothing. The command is
// not kept, but for its id.
func (l *Lanes) Send(ctx context.Context, cmd *wire.Command, call Call) (Ticket, error) {
	lane, ok := l.Of(cmd.Campaign, cmd.Code)
	if !ok {
		return refuse(call, NoLane(cmd.ID))
	}
	return l.SendTo(ctx, lane, cmd, call)
}

// SendTo is Send to a lane that the caller has found.
func (l *Lanes) SendTo(ctx context.Context, lane int, cmd *wire.Command, call Call) (Ticket, error) {
	return l.encode(ctx, lane, "", cmd, call)
}

// Request sends a command to the micro service's endpoint at subject, alone. Otherwise it is like Send.
func (l *Lanes) Request(ctx context.Context, subject string, cmd *wire.Command, call Call) (Ticket, error) {
	return l.encode(ctx, directRoute, subject, cmd, call)
}

// lineBuffers are for encoded lines, which add copies.
var lineBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}

func (l *Lanes) encode(ctx context.Context, lane int, subject string, cmd *wire.Command, call Call) (Ticket, error) {
	buf := lineBuffers.Get().(*[]byte)
	defer lineBuffers.Put(buf)
	json := cmd.AppendJSON((*buf)[:0])
	*buf = json[:0]
	if len(json) > wire.MaxLine {
		// Type, id and campaign may have been added to a request that was just short enough.
		return refuse(call, wire.Outcome{ID: cmd.ID, Status: wire.StatusRefused, Refusal: wire.Invalid, Campaign: cmd.Campaign,
			Message: fmt.Sprintf("the command has %d bytes as a line of the log, at most %d are allowed; split it", len(json), wire.MaxLine)})
	}
	return l.add(ctx, lane, subject, line{id: cmd.ID, json: json, Call: call})
}

// refuse answers a command that goes no further: it has no effect and needs no record in the log.
func refuse(call Call, out wire.Outcome) (Ticket, error) {
	call.To.Answer(out.AppendJSON(nil), nil)
	return Ticket{}, nil
}

// line is one encoded command.
type line struct {
	id   string
	json []byte // without newline; copied
	Call
}

// add adds a line to a lane's route, or one for subject to that of requests.
func (l *Lanes) add(ctx context.Context, lane int, subject string, line line) (Ticket, error) {
	r, err := l.route(lane)
	if err == nil {
		err = r.acquire(ctx, &line)
	}
	if err != nil {
		return Ticket{}, &NotSentError{ID: line.id, Cause: err}
	}
	return r.add(line, subject)
}

// acquire takes a line's room.
func (r *route) acquire(ctx context.Context, line *line) error {
	n := weight(line.json)
	switch err := ctx.Err(); {
	case err != nil:
		return err
	case r.room.TryAcquire(n):
		return nil
	case line.NoWait:
		return fmt.Errorf("%w: at most %d of a lane", ErrFull, r.lanes.opts.maxPending)
	}
	if !line.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, line.Deadline)
		defer cancel()
	}
	return r.room.Acquire(ctx, n)
}
