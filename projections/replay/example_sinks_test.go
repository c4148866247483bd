package replay_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5"

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

// A projection in SQL: the section create makes its tables, the section fold adds a batch, which is the table events.
// scrip replay does the same with a file.
func ExampleParseSQL() {
	ctx := context.Background()
	js, postgresURL, stop := shop()
	defer stop()
	file, err := replay.ParseSQL("claims_of_customers.sql", []byte(`
-- scrip: create
		CREATE TABLE claims (customer_id text PRIMARY KEY, claims bigint NOT NULL);
-- scrip: fold
		INSERT INTO claims SELECT customer_id, count(*) FROM events WHERE type = 'coupon.claimed' GROUP BY customer_id
			ON CONFLICT (customer_id) DO UPDATE SET claims = claims.claims + excluded.claims;`))
	if err != nil {
		log.Fatal(err)
	}
	theLog, _, err := topology.Inspect(ctx, js)
	if err != nil {
		log.Fatal(err)
	}
	sink := replay.Postgres(postgresURL, file.Definition(), false)
	if _, err := replay.Run(ctx, js, theLog, sink, replay.Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		log.Fatal(err)
	}
	db, err := pgx.Connect(ctx, postgresURL)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(ctx) //nolint:errcheck // nothing was written
	var customers int
	if err := db.QueryRow(ctx, "SELECT count(*) FROM claims_of_customers.claims").Scan(&customers); err != nil {
		log.Fatal(err)
	}
	fmt.Println(customers, "customers")

	// Output:
	// 6 customers
}
