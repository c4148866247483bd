package readmodel

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// blocked runs a function when a statement of a connection was ended for the locks of others.
type blocked struct{ then func() }

func (blocked) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (b blocked) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if schema.Blocked(data.Err) {
		b.then()
	}
}

// TestReadsMeetExchanges: each read is tried once more when an exchange had locked the views, and no more than once.
func TestReadsMeetExchanges(t *testing.T) {
	db := database(t)
	exec(t, db, aCampaign("a"))
	config := db.Config()
	config.ConnConfig.RuntimeParams["lock_timeout"] = "5"
	var exchange pgx.Tx
	met, going := 0, false
	config.ConnConfig.Tracer = blocked{func() {
		if met++; !going {
			streamtest.Must(t, exchange.Rollback(t.Context()))
		}
	}}
	reader, err := pgxpool.NewWithConfig(t.Context(), config)
	streamtest.Must(t, err)
	t.Cleanup(reader.Close)
	views, err := schema.Collect(t.Context(), db, pgx.RowTo[string], "SELECT oid::regclass::text FROM pg_class WHERE relnamespace IN ('scrip'::regnamespace, 'scrip_tables'::regnamespace) AND relkind = 'v'")
	streamtest.Must(t, err)
	coupons, history, letters := NewCoupons(reader), NewHistory(reader, nil), NewLetters(reader)
	paging := ops.Paging{Limit: 5}
	for name, read := range map[string]func(context.Context) error{
		"coupons of a campaign": func(ctx context.Context) error {
			_, err := coupons.List(ctx, ops.ListCoupons{Campaign: "a", Paging: paging}, nil)
			return err
		},
		"coupons of a customer": func(ctx context.Context) error {
			_, err := coupons.List(ctx, ops.ListCoupons{CustomerID: "x", Paging: paging}, nil)
			return err
		},
		"days": func(ctx context.Context) error {
			_, err := coupons.Days(ctx, ops.ListDays{Campaign: "a", Paging: paging})
			return err
		},
		"one coupon": func(ctx context.Context) error { _, err := coupons.One(ctx, "a", 1); return err },
		"a coupon":   func(ctx context.Context) error { _, err := history.Coupon(ctx, "a", 1, 0, ""); return err },
		"a customer": func(ctx context.Context) error { _, err := history.Customer(ctx, "x", 0, ""); return err },
		"changes": func(ctx context.Context) error {
			_, err := history.Changes(ctx, ops.ListChangesOf{Campaign: "a", Paging: paging})
			return err
		},
		"reminders": func(ctx context.Context) error {
			_, err := history.Reminders(ctx, ops.ListReminders{Campaign: "a", Paging: paging})
			return err
		},
		"letters":         func(ctx context.Context) error { _, _, _, err := letters.List(ctx, LetterFilter{}); return err },
		"letters counted": func(ctx context.Context) error { _, err := letters.Open(ctx); return err },
		"letters grouped": func(ctx context.Context) error { _, err := letters.Groups(ctx, ""); return err },
	} {
		for _, going = range []bool{false, true} {
			met = 0
			exchange, err = db.Begin(t.Context())
			streamtest.Must(t, err)
			for _, view := range views {
				_, err = exchange.Exec(t.Context(), "ALTER VIEW "+view+" RESET (security_barrier)")
				streamtest.Must(t, err)
			}
			err := read(t.Context())
			_ = exchange.Rollback(t.Context())
			switch {
			case !going && (err != nil || met != 1):
				t.Errorf("%s, beside an exchange: %v, met %d times", name, err, met)
			case going && (!schema.Blocked(err) || met != 2):
				t.Errorf("%s, beside one that does not end: %v, met %d times", name, err, met)
			}
		}
	}
}
