package manage

import (
	"context"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/batcher"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Lanes sends commands to lanes through a batcher.
type Lanes struct {
	lines *batcher.Batcher
	log   topology.Log
	codec *code.Codec
}

// NewLanes returns a Sender. The batcher runs elsewhere; codec decodes the codes of the log's key.
func NewLanes(lines *batcher.Batcher, log topology.Log, codec *code.Codec) *Lanes {
	return &Lanes{lines, log, codec.Clone()}
}

// Send implements Sender. A code that is no generated one, without a campaign, is refused here: it has no lane.
func (l *Lanes) Send(ctx context.Context, cmd *wire.Command, by string, fn func(wire.Outcome, error)) error {
	lane := 0
	if cmd.Campaign != "" {
		lane = topology.LaneOf(cmd.Campaign, l.log.Lanes)
	} else {
		number, _, ok := l.codec.Decode(cmd.Code)
		if !ok {
			fn(wire.Outcome{ID: cmd.ID, Status: wire.StatusRefused, Refusal: wire.CodeNotFound,
				Message: "no generated code has this form; an imported code needs its campaign"}, nil)
			return nil
		}
		lane = int(number) % l.log.Lanes
	}
	line := cmd.AppendJSON(nil)
	if len(line) > wire.MaxLine {
		fn(wire.Outcome{ID: cmd.ID, Status: wire.StatusRefused, Refusal: wire.Invalid, Campaign: cmd.Campaign, Message: "the command is too long as a line of the log; split it"}, nil)
		return nil
	}
	until, ok := ctx.Deadline()
	if !ok {
		until = time.Now().Add(commandWait)
	}
	_, err := l.lines.Send(ctx, lane, batcher.Line{ID: cmd.ID, JSON: line, By: by, Deadline: until, To: outcomeOf{cmd.ID, fn}})
	return err
}

// outcomeOf receives the outcome of a command.
type outcomeOf struct {
	id string
	fn func(wire.Outcome, error)
}

// Answer implements batcher.Receiver.
func (o outcomeOf) Answer(line []byte, err error) {
	if err != nil {
		o.fn(wire.Outcome{}, err)
		return
	}
	out, err := wire.ParseOutcome(line)
	if err != nil {
		err = &batcher.UnknownError{ID: o.id, Cause: err}
	}
	o.fn(out, err)
}
