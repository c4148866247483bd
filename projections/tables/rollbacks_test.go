package tables

import (
	"context"
	"fmt"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// redeemed and rolledBack are events of a coupon of campaign c.
func redeemed(minute, n int, order string, count int) string {
	return fmt.Sprintf(`{"type":"coupon.redeemed","campaign":"c","at":"@%d","n":%d,"code":"x","order_id":%q,"redeemed_count":%d}`, minute, n, order, count)
}

func rolledBack(minute, n int, order string, count int) string {
	return fmt.Sprintf(`{"type":"coupon.rolled_back","campaign":"c","at":"@%d","n":%d,"code":"x","order_id":%q,"redeemed_count":%d,"status":"claimed"}`,
		minute, n, order, count)
}

// A rollback reads few rows, however many redemptions its coupon has, or its order, and however many were rolled back before:
// with no statistics, and with those of tables that have all of them.
func TestRollbacksReadFewRows(t *testing.T) {
	pool := open(t)
	conn, err := pool.Acquire(context.Background())
	streamtest.Must(t, err)
	defer conn.Release()
	const many, limit = 20_000, 250
	r := new(reader)
	step := func(text string) {
		t.Helper()
		before := entriesRead(t, conn)
		if parked := commit(t, conn, r.batch(script(text))); len(parked) > 0 {
			t.Fatalf("parked %+v", parked)
		}
		if n := entriesRead(t, conn) - before; n > limit {
			t.Errorf("%d rows are read by %s", n, text)
		}
	}
	step(`{"type":"campaign.created","campaign":"c","at":"@1","number":1,"codes":9,"max_redemptions":1000000}`)
	for n := 1; n <= 3; n++ {
		step(fmt.Sprintf(`{"type":"coupon.claimed","campaign":"c","at":"@1","n":%d,"code":"%[1]d","customer_id":"ann"}`, n))
	}
	// Coupon 1 has redemptions, coupon 2 an old one and others that were rolled back, and one order redeemed many other coupons.
	for _, sql := range []string{
		`INSERT INTO scrip_tables.redemption_row (n, redeemed_at, rolled_back_at, sequence, line, campaign, code, customer_id, order_id, redeemed_count)
			SELECT n, '2026-01-01 00:02Z'::timestamptz + i * interval '1 ms', CASE WHEN n = 2 AND i > 1 THEN '2026-01-01 00:09Z'::timestamptz END,
				99 + i, 1, 'c', n, 'ann', n || '-' || i, CASE n WHEN 1 THEN i ELSE 2 END FROM generate_series(1, 2) n, generate_series(1, $1::int) i`,
		`INSERT INTO scrip_tables.redemption_row (n, redeemed_at, sequence, line, campaign, code, customer_id, order_id)
			SELECT i, '2026-01-01 00:02Z', 99 + i, 1, 'd', i, 'ann', 'same' FROM generate_series(1, $1) i`,
		`INSERT INTO scrip_1.coupon_state (campaign, n, redeemed_count, redeemed_at)
			SELECT 'c', n, CASE n WHEN 1 THEN $1::int ELSE 1 END, max(redeemed_at) FROM scrip_tables.redemption_row
			WHERE campaign = 'c' AND rolled_back_at IS NULL GROUP BY n`,
	} {
		if _, err := conn.Exec(t.Context(), sql, many); err != nil {
			t.Fatal(err)
		}
	}
	r.sequence = 2 * many
	left := many
	for round, analyzed := range []bool{false, true} {
		if analyzed {
			analyze(t, conn)
		}
		const each = 8
		for i := range each { // the oldest ones, and some between
			left -= 2
			step(rolledBack(10, 1, fmt.Sprint("1-", 1+round*each+i), left+1))
			step(rolledBack(10, 1, fmt.Sprint("1-", many/2+round*each+i), left))
		}
		for i := range each { // the newest first
			left--
			step(rolledBack(10, 1, fmt.Sprint("1-", many-round*each-i), left))
		}
		for i := range each {
			order := fmt.Sprint("again-", round, i)
			step(redeemed(10, 2, order, 2))
			step(rolledBack(10, 2, order, 1))
		}
		step(redeemed(10, 3, "same", 1))
		step(redeemed(10, 3, "other", 2))
		step(rolledBack(10, 3, "same", 1))
		step(rolledBack(10, 3, "other", 0))
	}
	got := rows(t, pool, `SELECT s.n, s.redeemed_count, s.redeemed_at IS NOT DISTINCT FROM max(x.redeemed_at) FILTER (WHERE x.rolled_back_at IS NULL),
		count(*) FILTER (WHERE x.rolled_back_at IS NULL) FROM scrip.coupon s JOIN scrip.redemption x USING (campaign, n) WHERE campaign = 'c' GROUP BY 1, 2, s.redeemed_at ORDER BY 1`)
	streamtest.Equal(t, "coupons, their uses, and their redemptions that count", got, fmt.Sprintf("1 %d true %[1]d\n2 1 true 1\n3 0 true 0", left))
}

// A coupon was last redeemed at its newest redemption that counts, also at one of the time when its campaign allowed one.
func TestLastRedeemed(t *testing.T) {
	pool := open(t)
	r := new(reader)
	for _, c := range []struct{ event, want string }{
		{`{"type":"campaign.created","campaign":"c","at":"@1","number":1,"codes":9,"max_redemptions":1}`, ""},
		{`{"type":"coupon.claimed","campaign":"c","at":"@2","n":1,"code":"x","customer_id":"ann"}`, "0 -"},
		{redeemed(3, 1, "a", 1), "1 @3"},
		{rolledBack(4, 1, "a", 0), "0 -"},
		{redeemed(5, 1, "a", 1), "1 @5"},
		{`{"type":"campaign.updated","campaign":"c","at":"@6","number":1,"codes":9,"max_redemptions":3}`, "1 @5"},
		{redeemed(7, 1, "b", 2), "2 @7"},
		{redeemed(8, 1, "c", 3), "3 @8"},
		{rolledBack(9, 1, "b", 2), "2 @8"},
		{rolledBack(10, 1, "c", 1), "1 @5"},
		{redeemed(11, 1, "b", 2), "2 @11"},
		{rolledBack(12, 1, "a", 1), "1 @11"},
		{redeemed(13, 1, "a", 2) + " + " + rolledBack(13, 1, "a", 1), "1 @11"},
		{redeemed(14, 1, "a", 2) + " + " + rolledBack(14, 1, "b", 1), "1 @14"},
	} {
		if parked := commit(t, pool, r.batch(script(c.event))); len(parked) > 0 {
			t.Fatalf("parked %+v", parked)
		}
		streamtest.Equal(t, "after "+c.event, rows(t, pool, "SELECT redeemed_count, redeemed_at FROM scrip.coupon"), c.want)
	}
	streamtest.Equal(t, "uses with each redemption", rows(t, pool, "SELECT order_id, redeemed_count, rolled_back_at FROM scrip_tables.redemption_row ORDER BY sequence, line"),
		"a - @4\na - @12\nb 2 @9\nc 3 @10\nb 2 @14\na 2 @13\na 2 -")
}
