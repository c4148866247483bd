package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Lanes sends commands to lanes through a batcher.
type Lanes struct {
	lines *command.Batcher
	log   topology.Log
	codec *code.Codec
}

// NewLanes returns a Sender. The batcher runs elsewhere; codec decodes the codes of the log's key.
func NewLanes(lines *command.Batcher, log topology.Log, codec *code.Codec) *Lanes {
	return &Lanes{lines, log, codec.Clone()}
}

// Send implements Sender. A code that is no generated one, without a campaign, is refused here: it has no lane.
func (l *Lanes) Send(ctx context.Context, cmd *wire.Command, by string, fn func(wire.Outcome, error)) error {
	until, ok := ctx.Deadline()
	if !ok {
		until = time.Now().Add(commandWait)
	}
	return l.Line(ctx, cmd, by, until, outcomeOf{cmd.ID, fn})
}

// Line implements Sender.
func (l *Lanes) Line(ctx context.Context, cmd *wire.Command, by string, until time.Time, to command.Receiver) error {
	lane := 0
	if cmd.Campaign != "" {
		lane = topology.LaneOf(cmd.Campaign, l.log.Lanes)
	} else {
		number, _, ok := l.codec.Decode(cmd.Code)
		if !ok {
			return refuse(to, wire.Outcome{ID: cmd.ID, Refusal: wire.CodeNotFound, Message: "no generated code has this form; an imported code needs its campaign"})
		}
		lane = int(number) % l.log.Lanes
	}
	buf := lineBuffers.Get().(*[]byte)
	defer lineBuffers.Put(buf)
	line := command.Line{ID: cmd.ID, JSON: cmd.AppendJSON((*buf)[:0]), By: by, Deadline: until, To: to}
	*buf = line.JSON[:0]
	if len(line.JSON) > wire.MaxLine {
		return refuse(to, wire.Outcome{ID: cmd.ID, Refusal: wire.Invalid, Campaign: cmd.Campaign, Message: "the command is too long as a line of the log; split it"})
	}
	_, err := l.lines.TrySend(lane, line)
	if errors.Is(err, command.ErrFull) {
		ctx, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		_, err = l.lines.Send(ctx, lane, line)
	}
	return err
}

// lineBuffers are for lines, which the batcher copies.
var lineBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}

// refuse answers a command that has no lane.
func refuse(to command.Receiver, out wire.Outcome) error {
	out.Status = wire.StatusRefused
	to.Answer(out.AppendJSON(nil), nil)
	return nil
}

// outcomeOf receives the outcome of a command.
type outcomeOf struct {
	id string
	fn func(wire.Outcome, error)
}

// Answer implements command.Receiver.
func (o outcomeOf) Answer(line []byte, err error) {
	if err != nil {
		o.fn(wire.Outcome{}, err)
		return
	}
	out, err := wire.ParseOutcome(line)
	if err != nil {
		err = &command.UnknownError{ID: o.id, Cause: err}
	}
	o.fn(out, err)
}
