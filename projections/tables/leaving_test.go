package tables

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// many is a campaign with coupons, each of which was redeemed, rolled back and redeemed again, and has a reminder.
func many(coupons int) string {
	var log strings.Builder
	log.WriteString(`{"type":"campaign.created","campaign":"many","at":"@0","number":1,"codes":1000,"max_redemptions":1,"expires_at":"@1440"}` + "\n")
	var lines []string
	for n := 1; n <= coupons; n++ {
		lines = append(lines,
			fmt.Sprintf(`{"type":"coupon.claimed","campaign":"many","at":"@10","n":%d,"code":"x%[1]d","customer_id":"ann"}`, n),
			fmt.Sprintf(`{"type":"coupon.redeemed","campaign":"many","at":"@10","n":%d,"code":"x","order_id":"o","redeemed_count":1}`, n),
			fmt.Sprintf(`{"type":"coupon.rolled_back","campaign":"many","at":"@10","n":%d,"code":"x","order_id":"o","redeemed_count":0}`, n),
			fmt.Sprintf(`{"type":"coupon.redeemed","campaign":"many","at":"@10","n":%d,"code":"x","order_id":"p","redeemed_count":1}`, n),
			fmt.Sprintf(`{"type":"reminder.set","campaign":"many","at":"@10","r":%d,"customer_id":"ann","kind":"expires","before":"1h","due_at":"@1380","n":%[1]d}`, n))
	}
	log.WriteString(strings.Join(lines, " + ") + "\n")
	log.WriteString(`{"type":"coupons.allotted","campaign":"many","at":"@11","batch":"b","from_n":901,"through_n":950}
		{"type":"coupon.redeemed","campaign":"many","at":"@12","n":901,"code":"p","customer_id":"ann","order_id":"o","redeemed_count":1}
		{"type":"coupons.expired","campaign":"many","at":"@1440","through":"@1440","count":49}
		{"type":"campaign.created","campaign":"other","at":"@57600","number":3,"codes":10,"max_redemptions":1}
		{"type":"campaign.updated","campaign":"many","at":"@57700","number":1,"codes":1000,"max_redemptions":1,"expires_at":"@100800"}
		{"type":"coupon.claimed","campaign":"many","at":"@57701","n":951,"code":"y","customer_id":"bob"} + ` +
		`{"type":"coupon.redeemed","campaign":"many","at":"@57701","n":951,"code":"y","order_id":"q","redeemed_count":1} + ` +
		fmt.Sprintf(`{"type":"reminder.set","campaign":"many","at":"@57701","r":%d,"customer_id":"bob","kind":"expires","before":"1h","due_at":"@100740","n":951}`, coupons+1) + `
		{"type":"campaign.updated","campaign":"many","at":"@57710","number":1,"codes":1000,"max_redemptions":2,"expires_at":"@100800"}`)
	return log.String()
}

// What has left is in no view from the midnight on, which deletes no row. Rows are deleted later, at most so many in a transaction,
// whatever fails in between; new rows of a campaign that was revived stay.
func TestLeavingByPieces(t *testing.T) {
	const coupons, piece = 120, 50
	before := LeavePiece
	LeavePiece = piece
	t.Cleanup(func() { LeavePiece = before })
	pool, r := open(t), &reader{}
	keep(t, pool, 30)
	for _, m := range script(many(coupons)) {
		if parked := commit(t, pool, r.batch([]message{m})); len(parked) > 0 {
			t.Fatal(parked)
		}
	}
	const shown = `SELECT (SELECT count(*) FROM scrip.coupon), (SELECT count(*) FROM scrip.redemption), (SELECT count(*) FROM scrip_tables.coupon_event),
		(SELECT count(*) FROM scrip.reminder), (SELECT count(*) FROM scrip.allotment), (SELECT count(*) FROM scrip_tables.expiry_event)`
	const inTables = `SELECT (SELECT count(*) FROM scrip_1.coupon_state), (SELECT count(*) FROM scrip_1.redemption_row), (SELECT count(*) FROM scrip_1.coupon_event),
		(SELECT count(*) FROM scrip_1.reminder), (SELECT count(*) FROM scrip_1.allotment), (SELECT count(*) FROM scrip_1.expiry_event)`
	streamtest.Equal(t, "shown", rows(t, pool, shown), "1 1 0 1 0 0")
	streamtest.Equal(t, "stored", rows(t, pool, inTables), fmt.Sprintf("%d %d %d %d 1 1", coupons+2, 2*coupons+2, coupons, coupons+1))
	streamtest.Equal(t, "counts", rows(t, pool, "SELECT claimed, redeemed, expired FROM scrip.campaign WHERE campaign = 'many'"), fmt.Sprintf("%d %d %d", coupons+51, coupons+1, 49))
	digest := projtest.Digest(t, pool)
	var leaving Leaving
	for try, more := 0, true; more; try++ {
		tx, err := pool.Begin(t.Context())
		streamtest.Must(t, err)
		had := stored(t, tx)
		more, err = leaving.Next(t.Context(), tx, "scrip_1")
		streamtest.Must(t, err)
		if n := had - stored(t, tx); n > piece {
			t.Errorf("%d rows in one transaction", n)
		}
		if try%3 == 1 { // it is lost
			streamtest.Must(t, tx.Rollback(t.Context()))
			leaving, more = Leaving{}, true
			continue
		}
		streamtest.Must(t, tx.Commit(t.Context()))
		streamtest.Equal(t, "digest while rows are deleted", projtest.Digest(t, pool), digest)
		if try > 100 {
			t.Fatal("it does not end")
		}
	}
	streamtest.Equal(t, "shown at the end", rows(t, pool, shown), "1 1 0 1 0 0")
	streamtest.Equal(t, "stored at the end", rows(t, pool, inTables), "1 1 0 1 0 0")
	streamtest.Equal(t, "left to delete", rows(t, pool, "SELECT count(*) FROM scrip_1.leaving"), "0")
	streamtest.Equal(t, "printed coupons", rows(t, pool, "SELECT count(*) FROM scrip_1.coupon_claim WHERE n = 901"), "0")
}

// What a repair has taken off the list between two pieces stays, whatever the former piece read.
func TestLeavingEnds(t *testing.T) {
	const coupons, piece, through = 120, 20, 70
	before := LeavePiece
	LeavePiece = piece
	t.Cleanup(func() { LeavePiece = before })
	pool, r := open(t), &reader{}
	keep(t, pool, 30)
	commit(t, pool, r.batch(script(many(coupons))))
	var leaving Leaving
	next := func() (more bool) {
		streamtest.Must(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
			more, err = leaving.Next(t.Context(), tx, "scrip_1")
			return err
		}))
		return more
	}
	for _, c := range []struct{ change, least string }{
		{fmt.Sprintf("UPDATE scrip_1.leaving SET through = %d", through), fmt.Sprint(through + 1)},
		{"DELETE FROM scrip_1.leaving", fmt.Sprint(through + piece + 1)},
	} {
		next()
		_, err := pool.Exec(t.Context(), c.change)
		streamtest.Must(t, err)
		for next() {
		}
		streamtest.Equal(t, "coupons after "+c.change, rows(t, pool, "SELECT min(n) FROM scrip_1.coupon_claim_0 WHERE n <= 120"), c.least)
		streamtest.Equal(t, "left to delete", rows(t, pool, "SELECT count(*) FROM scrip_1.leaving"), "0")
		_, err = pool.Exec(t.Context(), fmt.Sprintf("INSERT INTO scrip_1.leaving (campaign, through) VALUES ('many', %d)", coupons))
		streamtest.Must(t, err)
	}
}

// The batch that has coupons leave deletes none of their rows.
func TestMidnightDeletesNothing(t *testing.T) {
	pool, r := open(t), &reader{}
	log := script(many(50))
	for i, m := range log[:6] {
		b := r.batch([]message{m})
		if i == 5 {
			keep(t, pool, 30) // late
			had := stored(t, pool)
			commit(t, pool, b)
			if now := stored(t, pool); now < had {
				t.Errorf("%d rows were deleted", had-now)
			}
			continue
		}
		commit(t, pool, b)
	}
	streamtest.Equal(t, "coupons", rows(t, pool, "SELECT count(*) FROM scrip.coupon"), "0")
}

// stored is how many rows there are in tables that rows leave.
func stored(t *testing.T, db schema.Querier) (n int) {
	t.Helper()
	streamtest.Must(t, db.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM scrip_1.coupon_claim_0) + (SELECT count(*) FROM scrip_1.coupon_state) + (SELECT count(*) FROM scrip_1.redemption_row)
		+ (SELECT count(*) FROM scrip_1.coupon_event) + (SELECT count(*) FROM scrip_1.reminder) + (SELECT count(*) FROM scrip_1.allotment) + (SELECT count(*) FROM scrip_1.expiry_event)`).Scan(&n))
	return n
}
