package readmodel

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// single is a pool of one connection, so that each read meets what the reads before prepared.
func single(t *testing.T, db *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	return projtest.Pool(t, db.Config().ConnString()+"&pool_max_conns=1")
}

const aCoupon = `INSERT INTO %s.coupon_claim (campaign, n, code, customer_id, claimed_at, claimed_place, segment) VALUES ('a', 1, '%s', 'ann', now(), 1048577, 0)`

// TestLookUpsArePlannedOnce: each statement of a look-up is prepared once for a connection, and no execution is planned for its
// arguments.
func TestLookUpsArePlannedOnce(t *testing.T) {
	db := database(t)
	exec(t, db, aCampaign("a"))
	exec(t, db, fmt.Sprintf(aCoupon, "scrip_1", "CODE"))
	one := single(t, db)
	history, coupons := NewHistory(one, nil), NewCoupons(one)
	const reads = 10
	for range reads {
		page, err := history.Coupon(t.Context(), "a", 1, 0, "")
		streamtest.Must(t, err)
		of, err := history.Customer(t.Context(), "ann", 0, "")
		streamtest.Must(t, err)
		coupon, err := coupons.One(t.Context(), "a", 1)
		if err != nil || coupon == nil || coupon.Code != "CODE" || coupon.Status != "claimed" || len(page.Entries) != 1 || len(of.Entries) != 1 {
			t.Fatalf("%+v, %v, %+v, %+v", coupon, err, page, of)
		}
	}
	if none, err := coupons.One(t.Context(), "a", 2); none != nil || err != nil {
		t.Errorf("a coupon that the tables do not have: %+v, %v", none, err)
	}
	got, err := schema.Collect(t.Context(), one, pgx.RowTo[string], "SELECT generic_plans || ' ' || custom_plans FROM pg_prepared_statements WHERE generic_plans + custom_plans > 1 ORDER BY generic_plans")
	streamtest.Must(t, err)
	streamtest.Equal(t, "executions by kept plans, and by others", fmt.Sprint(got), fmt.Sprintf("[%d 0 %[1]d 0 %d 0]", reads, reads+1))
}

// TestLookUpsAfterAnExchange: a connection reads the tables that are in use, whatever it prepared before.
func TestLookUpsAfterAnExchange(t *testing.T) {
	db := database(t)
	exec(t, db, aCampaign("a"))
	exec(t, db, fmt.Sprintf(aCoupon, "scrip_1", "OLD"))
	one := single(t, db)
	history, coupons := NewHistory(one, nil), NewCoupons(one)
	for _, want := range []string{"OLD", "NEW", "OLD"} {
		for range 2 {
			page, err := history.read(t.Context(), couponSQL, 0, "", "a", int64(1))
			streamtest.Must(t, err)
			of, err := history.read(t.Context(), customerSQL, 0, "", "ann")
			streamtest.Must(t, err)
			coupon, err := coupons.One(t.Context(), "a", 1)
			streamtest.Must(t, err)
			if len(page.entries) != 1 || len(of.entries) != 1 || coupon == nil || page.entries[0].Code != want || of.entries[0].Code != want || coupon.Code != want {
				t.Fatalf("want %s: %+v, %+v, %+v", want, page.entries, of.entries, coupon)
			}
		}
		now, err := schema.Current(t.Context(), db)
		streamtest.Must(t, err)
		streamtest.Must(t, pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
			next := now.Previous
			if next == "" {
				if next, err = schema.Make(t.Context(), tx); err != nil {
					return err
				}
				if _, err = tx.Exec(t.Context(), fmt.Sprintf(aCoupon, next, "NEW")+"; "+strings.Replace(aCampaign("a"), "scrip_tables.", next+".", 1)); err != nil {
					return err
				}
			}
			return schema.Use(t.Context(), tx, next, now, time.Minute)
		}))
	}
}

// TestViewsOfOtherTypes: after schema scrip was made by another program, PostgreSQL refuses to run what a connection prepared, once.
func TestViewsOfOtherTypes(t *testing.T) {
	db := database(t)
	exec(t, db, aCampaign("a")+`INSERT INTO scrip_tables.campaign_event (campaign, place, at, type) VALUES ('a', 1048577, now(), 'campaign.ended')`)
	history := NewHistory(single(t, db), func(context.Context, int, []uint64, func(uint64, eventlog.Raw, error)) {})
	for _, kind := range []string{"text", "varchar"} {
		exec(t, db, `DROP VIEW scrip_tables.campaign_event; CREATE VIEW scrip_tables.campaign_event AS SELECT place, at, campaign, type::`+kind+` FROM scrip_1.campaign_event`)
		for range 2 {
			page, err := history.Changes(t.Context(), ops.ListChangesOf{Campaign: "a", Paging: ops.Paging{Limit: 5}})
			if err != nil || len(page.Items) != 1 || page.Items[0].Type != "campaign.ended" {
				t.Errorf("%s: %+v, %v", kind, page, err)
			}
		}
	}
}
