package check

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Log folds every lane of a log up to where it ends now, and returns the last sequence of each. That steps cover the
// commands without gap or overlap, that lane time does not run back, and that SCRIP_RMD says of each fired reminder once,
// is checked on the way: see [Fold.Violations] and [Fold.Untold].
func Log(ctx context.Context, js jetstream.JetStream, log topology.Log) (*Fold, []uint64, error) {
	f := NewFold()
	ends, err := f.CatchUp(ctx, js, log)
	return f, ends, err
}

// lane is how far a lane has been folded.
type lane struct {
	number   int
	clock    wire.Instant      // of its newest event
	previous *eventlog.Message // without its payload
	events   eventlog.Position // of the last event message
	told     eventlog.Position // of the last message of SCRIP_RMD

	step   *step  // the message being folded
	line   int    // within it
	owed   []owed // what SCRIP_RMD must still say, in order
	astray bool   // it said something else: what follows is not compared
}

// step is an event message that reminders fired in.
type step struct {
	sequence uint64
	digest   string
}

// begin goes to a lane.
func (f *Fold) begin(number int) {
	if f.lanes[number] == nil {
		f.lanes[number] = &lane{number: number}
	}
	f.lane = f.lanes[number]
}

// CatchUp folds what the log holds beyond what has been folded, up to where each lane ends now, and returns where that
// is. A log of millions of lines can so be followed while it is written.
func (f *Fold) CatchUp(ctx context.Context, js jetstream.JetStream, log topology.Log) ([]uint64, error) {
	ends := make([]uint64, log.Lanes)
	f.Untold = 0
	for number := range log.Lanes {
		f.begin(number)
		// Where the reminders end is asked first: what they tell of must be in the events then.
		told, err := eventlog.Reminders(js, number).Bounds(ctx)
		if err != nil {
			return nil, err
		}
		if ends[number], err = f.readEvents(ctx, js, log); err != nil {
			return nil, fmt.Errorf("reading lane %d: %w", number, err)
		}
		if err := f.readTold(ctx, js, log, told.Last); err != nil {
			return nil, fmt.Errorf("reading the reminders of lane %d: %w", number, err)
		}
		f.Untold += len(f.owed)
	}
	f.balance()
	return ends, nil
}

var quiet = eventlog.ReaderOptions{Logger: slog.New(slog.DiscardHandler)}

func (f *Fold) readEvents(ctx context.Context, js jetstream.JetStream, log topology.Log) (uint64, error) {
	if f.events.Log == "" {
		f.events = eventlog.Position{Log: log.UUID, Lane: f.number}
	}
	reader, err := eventlog.Events(js, f.number).In(log).Open(ctx, log.UUID, f.events, quiet)
	if err != nil {
		return 0, err
	}
	defer reader.Close()
	var ev wire.Event
	err = reader.CatchUp(ctx, func(batch []eventlog.Message) error {
		for i := range batch {
			m := batch[i]
			f.follows(&m)
			before := len(f.owed)
			f.step = &step{sequence: m.Sequence}
			for n, line := range eventlog.Lines(m.Payload) {
				if err := wire.ParseEvent(line, &ev); err != nil {
					return fmt.Errorf("message %d, line %d: %w", m.Sequence, n+1, err)
				}
				f.line = n + 1
				where := place{f.number, m.Sequence, n + 1}
				if ev.Campaign != "" && ev.Type != wire.CommandRejected && topology.LaneOf(ev.Campaign, log.Lanes) != f.number {
					f.blame("%s: %s lives on lane %d", where, ev.Campaign, topology.LaneOf(ev.Campaign, log.Lanes))
				}
				f.Apply(where, &ev)
			}
			if len(f.owed) > before {
				f.step.digest = m.Digest()
			}
			if at := wire.At(m.LaneTime); at < f.clock {
				f.blame("lane %d, message %d: of %s, with an event of %s", f.number, m.Sequence, at, f.clock)
			} else {
				f.clock = at
			}
			if i == len(batch)-1 {
				f.events = m.Position(log.UUID, f.number)
			}
		}
		return nil
	})
	return reader.Sequence(), err
}

// place is where in the log a line stands. It is only written out when the line breaks a promise.
type place struct {
	lane     int
	sequence uint64
	line     int
}

func (p place) String() string {
	return fmt.Sprintf("lane %d, message %d, line %d", p.lane, p.sequence, p.line)
}

// follows checks that a message goes on where the one before it ended; the first begins at the first command.
func (f *Fold) follows(m *eventlog.Message) {
	switch {
	case f.previous == nil && m.Rebase == 0 && m.Commands[0] != 1:
		f.blame("lane %d, message %d: the first one covers commands from %d", f.number, m.Sequence, m.Commands[0])
	case f.previous != nil && !f.previous.Follows(m):
		f.blame("lane %d, message %d: does not follow the commands of message %d", f.number, m.Sequence, f.previous.Sequence)
	}
	f.previous = &eventlog.Message{Header: m.Header, Sequence: m.Sequence}
}
