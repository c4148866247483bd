package tables

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// everything that happens in campaigns, one % each; minute 40 lies behind the last of it.
const everything = `
{"type":"campaign.created","campaign":"%","at":"@1","number":1,"codes":10,"opens_at":"@20","expires_at":"@60","max_redemptions":1}
{"type":"reminder.set","campaign":"%","at":"@1","r":1,"customer_id":"ann","kind":"opens","before":"5m0s","due_at":"@15"}
{"type":"campaign.updated","campaign":"%","at":"@2","number":1,"codes":10,"opens_at":"@10","expires_at":"@70","max_redemptions":1}
{"type":"reminders.due","campaign":"%","at":"@5","kind":"opens","due_at":"@5","from_r":1,"through_r":1,"fired":1,"dropped":0}
{"type":"coupon.claimed","campaign":"%","at":"@11","n":1,"code":"%-1","customer_id":"ann","attributes":{"shop":"bonn"}}
{"type":"coupon.claimed","campaign":"%","at":"@11","n":2,"code":"%-2","customer_id":"bob"}
{"type":"coupon.claimed","campaign":"%","at":"@11","n":3,"code":"%-3","customer_id":"cid","expires_at":"@30"}
{"type":"commands.refused","campaign":"%","at":"@11","counts":{"sold_out":3}}
{"type":"reminder.set","campaign":"%","at":"@12","r":2,"customer_id":"ann","kind":"expires","before":"10m0s","due_at":"@60","n":1}
{"type":"reminder.set","campaign":"%","at":"@12","r":3,"customer_id":"bob","kind":"expires","before":"10m0s","due_at":"@60","n":2}
{"type":"coupon.redeemed","campaign":"%","at":"@13","n":1,"code":"%-1","order_id":"o1","redeemed_count":1}
{"type":"coupon.rolled_back","campaign":"%","at":"@14","n":1,"code":"%-1","order_id":"o1","status":"claimed"}
{"type":"campaign.updated","campaign":"%","at":"@15","number":1,"codes":10,"opens_at":"@10","expires_at":"@70","max_redemptions":2}
{"type":"coupon.redeemed","campaign":"%","at":"@16","n":1,"code":"%-1","order_id":"o2","redeemed_count":1} + {"type":"coupon.redeemed","campaign":"%","at":"@16","n":1,"code":"%-1","order_id":"o3","redeemed_count":2}
{"type":"coupon.rolled_back","campaign":"%","at":"@17","n":1,"code":"%-1","order_id":"o2","redeemed_count":1,"status":"claimed"}
{"type":"coupon.extended","campaign":"%","at":"@18","n":2,"code":"%-2","expires_at":"@90","status":"claimed"}
{"type":"reminder.cancelled","campaign":"%","at":"@19","r":3}
{"type":"coupon.voided","campaign":"%","at":"@20","n":2,"code":"%-2","reason":"because","status":"voided"}
{"type":"coupons.expired","campaign":"%","at":"@40","through":"@40","count":1}`

// A batch costs the same however much else is in the tables: none of its statements reads a table from end to end,
// neither those planned while the tables were empty nor later ones.
func TestBatchesReadOnlyWhatTheyName(t *testing.T) {
	pool := open(t)
	conn, err := pool.Acquire(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	read := func() string {
		if _, err := conn.Exec(context.Background(), "SELECT pg_stat_force_next_flush()"); err != nil {
			t.Fatal(err)
		}
		return rows(t, pool, "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE schemaname = 'scrip' ORDER BY 1")
	}
	before := read()
	same := func() {
		t.Helper()
		if got := read(); got != before {
			t.Errorf("tables were read from end to end (before, after):\n%s\n\n%s", before, got)
		}
	}
	r := new(reader)
	for i := range 20 { // after five, PostgreSQL would choose plans to keep
		name := fmt.Sprintf("c%d", i)
		for _, m := range script(strings.ReplaceAll(everything, "%", name)) {
			if parked := commit(t, conn, r.batch([]message{m})); len(parked) > 0 {
				t.Fatalf("parked %+v", parked)
			}
		}
		if i == 10 {
			same()
			if _, err := conn.Exec(context.Background(), "VACUUM ANALYZE scrip.campaign, scrip.expiry_task, scrip.reminder"); err != nil {
				t.Fatal(err)
			}
			before = read() // vacuum reads them all
		}
	}
	same()
	recounts(t, pool)
}
