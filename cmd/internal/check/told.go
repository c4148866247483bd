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

// toldLine is a line of SCRIP_RMD as it is compared.
func toldLine(campaign, kind string, due domain.Instant, customer string) string {
	return fmt.Sprintf("%s %s %s %s", campaign, kind, due, customer)
}

// reminders reads the stream of fired reminders of a lane.
func reminders(ctx context.Context, js jetstream.JetStream, log topology.Log, lane int) (told []string, err error) {
	start := eventlog.Position{Log: log.UUID, Lane: lane}
	reader, err := eventlog.Reminders(js, lane).Open(ctx, log.UUID, start, eventlog.ReaderOptions{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	err = reader.CatchUp(ctx, func(batch []eventlog.Message) error {
		for i := range batch {
			for n, line := range eventlog.Lines(batch[i].Payload) {
				var ev domain.Event
				if err := domain.ParseEvent(line, &ev); err != nil {
					return fmt.Errorf("message %d, line %d: %w", batch[i].Sequence, n+1, err)
				}
				told = append(told, toldLine(ev.Campaign, ev.Kind, ev.DueAt, ev.CustomerID))
			}
		}
		return nil
	})
	return told, err
}

// told holds what a lane's stream of fired reminders says against what its events owe: the same lines in the same order,
// each once. It may end earlier, when the scheduler has not come that far.
func (f *Fold) told(told []string) {
	owed := f.owed[f.lane]
	for i, line := range told {
		switch {
		case i >= len(owed):
			f.blame("lane %d, reminder %d: %s is told, but did not fire, or was told before", f.lane, i+1, line)
			return
		case line != owed[i]:
			f.blame("lane %d, reminder %d: %s is told, it is %s's turn", f.lane, i+1, line, owed[i])
			return
		}
	}
	f.Untold += len(owed) - len(told)
}
