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
// commands without gap or overlap is checked on the way.
func Log(ctx context.Context, js jetstream.JetStream, log topology.Log) (*Fold, []uint64, error) {
	f := NewFold()
	ends := make([]uint64, log.Lanes)
	for lane := range log.Lanes {
		var err error
		if ends[lane], err = f.lane(ctx, js, log, lane); err != nil {
			return nil, nil, fmt.Errorf("reading lane %d: %w", lane, err)
		}
	}
	return f, ends, nil
}

func (f *Fold) lane(ctx context.Context, js jetstream.JetStream, log topology.Log, lane int) (uint64, error) {
	start := eventlog.Position{Log: log.UUID, Lane: lane}
	reader, err := eventlog.Events(js, lane).Open(ctx, log.UUID, start, eventlog.ReaderOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return 0, err
	}
	defer reader.Close()
	var previous *eventlog.Message
	err = reader.CatchUp(ctx, func(batch []eventlog.Message) error {
		for i := range batch {
			m := batch[i]
			if previous != nil && !previous.Follows(&m) {
				f.blame("lane %d, message %d: does not follow the commands of message %d", lane, m.Sequence, previous.Sequence)
			}
			previous = &m
			for n, line := range eventlog.Lines(m.Payload) {
				var ev domain.Event
				if err := domain.ParseEvent(line, &ev); err != nil {
					return fmt.Errorf("message %d, line %d: %w", m.Sequence, n+1, err)
				}
				f.Apply(fmt.Sprintf("lane %d, message %d, line %d", lane, m.Sequence, n+1), &ev)
			}
		}
		return nil
	})
	return reader.Sequence(), err
}
