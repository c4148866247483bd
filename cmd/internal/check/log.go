package check

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Log folds every lane of a log up to where it ends now, and returns the last sequence of each. That steps cover the
// commands without gap or overlap, that lane time does not run back, and that SCRIP_RMD says of each fired reminder once,
// is checked on the way: see [Fold.Violations] and [Fold.Untold].
func Log(ctx context.Context, js jetstream.JetStream, log topology.Log) (*Fold, []uint64, error) {
	f := NewFold()
	ends := make([]uint64, log.Lanes)
	for lane := range log.Lanes {
		// The reminders first: what they tell of must be in the events then.
		told, err := reminders(ctx, js, log, lane)
		if err != nil {
			return nil, nil, fmt.Errorf("reading the reminders of lane %d: %w", lane, err)
		}
		if ends[lane], err = f.read(ctx, js, log, lane); err != nil {
			return nil, nil, fmt.Errorf("reading lane %d: %w", lane, err)
		}
		f.told(told)
	}
	return f, ends, nil
}

func (f *Fold) read(ctx context.Context, js jetstream.JetStream, log topology.Log, lane int) (uint64, error) {
	start := eventlog.Position{Log: log.UUID, Lane: lane}
	reader, err := eventlog.Events(js, lane).Open(ctx, log.UUID, start, eventlog.ReaderOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return 0, err
	}
	defer reader.Close()
	f.begin(lane)
	var previous *eventlog.Message
	err = reader.CatchUp(ctx, func(batch []eventlog.Message) error {
		for i := range batch {
			m := batch[i]
			f.follows(previous, &m)
			previous = &m
			for n, line := range eventlog.Lines(m.Payload) {
				var ev domain.Event
				if err := domain.ParseEvent(line, &ev); err != nil {
					return fmt.Errorf("message %d, line %d: %w", m.Sequence, n+1, err)
				}
				where := fmt.Sprintf("lane %d, message %d, line %d", lane, m.Sequence, n+1)
				if ev.Campaign != "" && ev.Type != domain.CommandRejected && topology.LaneOf(ev.Campaign, log.Lanes) != lane {
					f.blame("%s: %s lives on lane %d", where, ev.Campaign, topology.LaneOf(ev.Campaign, log.Lanes))
				}
				f.Apply(where, &ev)
			}
			if at := domain.At(m.LaneTime); at < f.clock {
				f.blame("lane %d, message %d: of %s, with an event of %s", lane, m.Sequence, at, f.clock)
			} else {
				f.clock = at
			}
		}
		return nil
	})
	return reader.Sequence(), err
}

// begin starts with the next lane.
func (f *Fold) begin(lane int) { f.lane, f.clock = lane, 0 }

// follows checks that a message goes on where the one before it ended; the first begins at the first command.
func (f *Fold) follows(previous, m *eventlog.Message) {
	switch {
	case previous == nil && m.Rebase == 0 && m.Commands[0] != 1:
		f.blame("lane %d, message %d: the first one covers commands from %d", f.lane, m.Sequence, m.Commands[0])
	case previous != nil && !previous.Follows(m):
		f.blame("lane %d, message %d: does not follow the commands of message %d", f.lane, m.Sequence, previous.Sequence)
	}
}
