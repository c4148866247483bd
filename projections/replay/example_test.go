package replay_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/replay"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Popular coupons by the channel their customers came through: a projection in Go, with tables of its own. The
// checkpoint is in the same transaction as what Fold writes, so it can be killed and run again at any time; with
// Options.Follow it stays up to date.
func Example() {
	ctx := context.Background()
	js, postgresURL, stop := shop() // yours: jetstream.New(nc) and the URL of your database
	defer stop()

	channels := replay.Definition{
		Name:    "channels", // the schema
		Version: "1",
		Create: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `CREATE TABLE channel (campaign text, channel text, claims bigint NOT NULL, PRIMARY KEY (campaign, channel))`)
			return err
		},
		Fold: func(ctx context.Context, tx pgx.Tx, b *replay.Batch) error {
			type key struct{ campaign, channel string }
			claims := map[key]int{}
			for _, e := range b.Events {
				if e.Type == wire.CouponClaimed {
					claims[key{e.Campaign, channelOf(e.Attributes)}]++
				}
			}
			batch := &pgx.Batch{}
			for k, n := range claims {
				batch.Queue(`INSERT INTO channel VALUES ($1, $2, $3)
					ON CONFLICT (campaign, channel) DO UPDATE SET claims = channel.claims + excluded.claims`, k.campaign, k.channel, n)
			}
			return tx.SendBatch(ctx, batch).Close()
		},
	}

	theLog, _, err := topology.Inspect(ctx, js)
	if err != nil {
		log.Fatal(err)
	}
	sink := replay.Postgres(postgresURL, channels, false)
	sum, err := replay.Run(ctx, js, theLog, sink, replay.Options{
		Filter: replay.Filter{Types: []wire.EventType{wire.CouponClaimed}},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum.Events, "claims")

	db, err := pgx.Connect(ctx, postgresURL)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(ctx) //nolint:errcheck // nothing was written
	rows, err := db.Query(ctx, `SELECT channel, claims FROM channels.channel WHERE campaign = 'summer' ORDER BY claims DESC`)
	if err != nil {
		log.Fatal(err)
	}
	var channel string
	var claims int
	if _, err := pgx.ForEachRow(rows, []any{&channel, &claims}, func() error {
		fmt.Println(channel, claims)
		return nil
	}); err != nil {
		log.Fatal(err)
	}

	// Output:
	// 6 claims
	// app 3
	// web 2
	// unknown 1
}
