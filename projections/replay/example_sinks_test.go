package replay_test

import (
	"context"
	"log"
	"log/slog"
	"os"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/replay"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Events as NDJSON on standard output. The same with File writes a file completely or not at all.
func ExampleStream() {
	ctx := context.Background()
	js, _, stop := shop() // yours: jetstream.New(nc)
	defer stop()
	theLog, _, err := topology.Inspect(ctx, js)
	if err != nil {
		log.Fatal(err)
	}
	_, err = replay.Run(ctx, js, theLog, replay.Stream(os.Stdout, replay.NDJSON), replay.Options{
		Filter: replay.Filter{Types: []wire.EventType{wire.CampaignCreated}},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}

	// Output:
	// {"lane":0,"sequence":1,"line":1,"type":"campaign.created","campaign":"summer","at":"2026-11-27T00:00:00Z","id":"1","number":0,"codes":100,"per_customer":1,"max_redemptions":1,"priority":"normal"}
}
