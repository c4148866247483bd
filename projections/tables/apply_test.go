package tables

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func tryCommit(pool Beginner, b *Batch, apply func(context.Context, pgx.Tx, *Batch) ([]Parked, error)) ([]Parked, error) {
	ctx := context.Background()
	tx, err := Begin(ctx, pool)
	if err != nil {
		return nil, err
	}
	parked, err := apply(ctx, tx, b)
	if err != nil {
		return nil, errors.Join(err, tx.Rollback(ctx))
	}
	return parked, tx.Commit(ctx)
}

const (
	campaigns  = "SELECT campaign, status, codes, claimed, redeemed, expired, voided FROM scrip.campaign ORDER BY 1"
	coupons    = "SELECT campaign, n, code, customer_id, status, claimed_at, expires_at, redeemed_count, redeemed_at FROM scrip.coupon ORDER BY 1, 2"
	tasks      = "SELECT campaign, due_at, pending, redeemed, expired, state FROM scrip.expiry_task ORDER BY 1, 2"
	subscribed = "SELECT campaign, customer_id, kind, due_at, state, r, n, settled_at FROM scrip_tables.reminder ORDER BY 1, r"
	stats      = "SELECT campaign, day, attribute, value, claimed, redeemed, rolled_back, voided FROM scrip.campaign_stats ORDER BY 1, 2, 3, 4"
	refusals   = "SELECT campaign, day, reason, refused FROM scrip.refusal_stats ORDER BY 1, 2, 3"
	letters    = "SELECT stream, lane, sequence, line, reason, payload, at FROM scrip_tables.dead_letter ORDER BY event_sequence, event_line"
)

// summer is a campaign that ends at minute 60, with two coupons claimed.
const summer = `
{"type":"campaign.created","campaign":"summer","at":"@1","id":"x","number":4,"codes":10,"per_customer":1,"expires_at":"@60","max_redemptions":1,"priority":"normal"}
{"type":"coupon.claimed","campaign":"summer","at":"@2","id":"a","n":1,"code":"AAAA","customer_id":"ann"} + {"type":"coupon.claimed","campaign":"summer","at":"@2","id":"b","n":2,"code":"BBBB","customer_id":"bob"}
`

func TestEventsToRows(t *testing.T) {
	cases := []struct {
		name string
		log  string
		want map[string]string // query → rows
	}{
		{"campaign created with everything", `
			{"type":"campaign.created","campaign":"all","at":"@1","number":7,"codes":10,"per_customer":2,"opens_at":"@5","closes_at":"@50","expires_at":"@60","max_redemptions":3,"prefix":"ALL","category":"food","priority":"high","benefit":{"off":"\u0000"}}
			{"type":"campaign.created","campaign":"few","at":"@2","number":8,"codes":0,"per_customer":0,"valid_for":"72h","max_redemptions":1,"priority":"normal"}`,
			map[string]string{
				"SELECT campaign, status, category, codes, opens_at, closes_at, expires_at, created_at FROM scrip.campaign ORDER BY 1":              "all active food 10 @5 @50 @60 @1\nfew active - 0 @2 - - @2",
				"SELECT number, lane, per_customer, max_redemptions, valid_for_us, prefix, priority, benefit FROM scrip_tables.campaign ORDER BY 1": `7 0 2 3 - ALL high {"off":"\u0000"}` + "\n8 0 0 1 259200000000 - normal -",
			}},
		{"of those due at one instant, only what announces the past is dropped", `
			{"type":"campaign.created","campaign":"c","at":"@1","number":4,"codes":10,"max_redemptions":1}
			{"type":"coupon.claimed","campaign":"c","at":"@2","n":1,"code":"A","customer_id":"ann","expires_at":"@40"}
			{"type":"coupon.claimed","campaign":"c","at":"@2","n":2,"code":"B","customer_id":"bob","expires_at":"@60"}
			{"type":"reminder.set","campaign":"c","at":"@3","r":1,"customer_id":"ann","kind":"expires","before":"10m","due_at":"@30","n":1}
			{"type":"reminder.set","campaign":"c","at":"@3","r":2,"customer_id":"bob","kind":"expires","before":"30m","due_at":"@30","n":2}
			{"type":"reminder.set","campaign":"c","at":"@3","r":3,"customer_id":"ann","kind":"expires","before":"10m","due_at":"@30","n":1} + {"type":"reminders.due","campaign":"c","at":"@50","kind":"expires","due_at":"@30","from_r":1,"through_r":3,"fired":0,"dropped":2,"passed":"@50"} + {"type":"reminders.due","campaign":"c","at":"@50","kind":"expires","due_at":"@30","from_r":2,"through_r":2,"fired":1,"dropped":0}`,
			map[string]string{subscribed: "c ann expires @30 dropped 1 1 @50\nc bob expires @30 fired 2 2 @50\nc ann expires @30 dropped 3 1 @50"}},
		{"reminders without an anchor are due never, and again when there is one", `
			{"type":"campaign.created","campaign":"c","at":"@1","number":4,"codes":10,"opens_at":"@20","expires_at":"@60"}
			{"type":"reminder.set","campaign":"c","at":"@2","r":1,"customer_id":"ann","kind":"opens","before":"5m","due_at":"@15"}
			{"type":"reminder.set","campaign":"c","at":"@2","r":2,"customer_id":"bob","kind":"opens","before":"5m","due_at":"@15"}
			{"type":"campaign.updated","campaign":"c","at":"@3","number":4,"codes":10,"expires_at":"@60"}
			{"type":"reminders.due","campaign":"c","at":"@15","kind":"opens","due_at":"@15","from_r":1,"through_r":2,"fired":2,"dropped":0}
			{"type":"reminder.cancelled","campaign":"c","at":"@16","r":2}`,
			map[string]string{subscribed: "c ann opens - pending 1 - -\nc bob opens - cancelled 2 - @16", "SELECT opens_at FROM scrip.campaign": "@1"}},
		{"moved away and fired in one batch", `
			{"type":"campaign.created","campaign":"c","at":"@1","number":4,"codes":10,"opens_at":"@20"}
			{"type":"reminder.set","campaign":"c","at":"@2","r":1,"customer_id":"ann","kind":"opens","before":"5m","due_at":"@15"} + {"type":"campaign.updated","campaign":"c","at":"@3","number":4,"codes":10,"opens_at":"@30"} + {"type":"campaign.updated","campaign":"c","at":"@3","number":4,"codes":10,"opens_at":"@40"} + {"type":"reminder.set","campaign":"c","at":"@4","r":2,"customer_id":"bob","kind":"opens","before":"1m0s","due_at":"@39"} + {"type":"reminders.due","campaign":"c","at":"@35","kind":"opens","due_at":"@35","from_r":1,"through_r":1,"fired":1,"dropped":0} + {"type":"reminder.cancelled","campaign":"c","at":"@36","r":2}`,
			map[string]string{subscribed: "c ann opens @35 fired 1 - @35\nc bob opens @39 cancelled 2 - @36"}},
		{"stats by day and attribute", `
			{"type":"campaign.created","campaign":"c","at":"@1","number":4,"codes":10,"max_redemptions":1}
			{"type":"coupon.claimed","campaign":"c","at":"@2","n":1,"code":"A","customer_id":"ann","attributes":{"shop":"berlin","vip":true,"age":30,"":"x"}}
			{"type":"coupon.claimed","campaign":"c","at":"@3","n":2,"code":"B","customer_id":"bob","attributes":{"shop":"be\u0000n"}}
			{"type":"coupon.redeemed","campaign":"c","at":"@1440","n":1,"code":"A","order_id":"o","redeemed_count":1}`,
			map[string]string{stats: "c @0   2 0 0 0\nc @0 age 30 1 0 0 0\nc @0 shop berlin 1 0 0 0\nc @0 shop be\uFFFDn 1 0 0 0\nc @0 vip true 1 0 0 0\n" +
				"c @1440   0 1 0 0\nc @1440 age 30 0 1 0 0\nc @1440 shop berlin 0 1 0 0\nc @1440 vip true 0 1 0 0",
				"SELECT n, attributes FROM scrip.coupon ORDER BY 1": `1 {"shop":"berlin","vip":true,"age":30,"":"x"}` + "\n" + `2 {"shop":"be\u0000n"}`}},
		{"of a claim's attributes eight count, the first by name", `
			{"type":"campaign.created","campaign":"c","at":"@1","number":4,"codes":10,"max_redemptions":1}
			{"type":"coupon.claimed","campaign":"c","at":"@2","n":1,"code":"A","customer_id":"ann","attributes":{"j":1,"i":1,"h":1,"g":1,"f":1,"e":1,"d":1,"c":1,"b":1,"a":1}}
			{"type":"coupon.redeemed","campaign":"c","at":"@3","n":1,"code":"A","order_id":"o","redeemed_count":1}`,
			map[string]string{"SELECT string_agg(attribute, '' ORDER BY attribute) FROM scrip.campaign_stats WHERE attribute <> ''": "abcdefgh",
				"SELECT attributes::json->>'j' FROM scrip.coupon": "1"}},
		{"who changed coupons and campaigns", `
			{"type":"campaign.created","campaign":"c","at":"@1","number":4,"codes":10,"max_redemptions":1,"by":"ann"}
			{"type":"coupon.claimed","campaign":"c","at":"@2","n":1,"code":"A","customer_id":"ann"}
			{"type":"coupon.redeemed","campaign":"c","at":"@3","n":1,"code":"A","order_id":"o","redeemed_count":1} + {"type":"coupon.rolled_back","campaign":"c","at":"@4","n":1,"code":"A","order_id":"o","redeemed_count":0,"status":"claimed"}
			{"type":"coupon.extended","campaign":"c","at":"@5","n":1,"code":"A","expires_at":"@90","status":"claimed","by":"bob\u0000"} + {"type":"campaign.updated","campaign":"c","at":"@6","number":4,"codes":20,"max_redemptions":1,"by":"bob"}
			{"type":"coupon.voided","campaign":"c","at":"@7","n":1,"code":"A","reason":"fraud","status":"voided","by":"local:ann@ops1"} + {"type":"campaign.paused","campaign":"c","at":"@8"}`,
			map[string]string{
				"SELECT n, at, what, by, order_id, reason, expires_at FROM scrip.coupon_event ORDER BY at": "1 @4 rolled_back - o - -\n1 @5 extended bob\uFFFD - - @90\n1 @7 voided local:ann@ops1 - fraud -",
				"SELECT at, type, by FROM scrip.campaign_event ORDER BY at":                                "@1 campaign.created ann\n@6 campaign.updated bob\n@8 campaign.paused -",
			}},
		{"refused and rejected commands", `
			{"type":"commands.refused","campaign":"c","at":"@1","counts":{"sold_out":1000000,"claim_closed":1}}
			{"type":"commands.refused","at":"@2","counts":{"code_not_found":2}} + {"type":"commands.refused","campaign":"c","at":"@2","counts":{"sold_out":5}}
			{"type":"command.rejected","at":"@3","sequence":77,"line":2,"reason":"customer_id: is missing","payload":"{\"type\":\"claim\u0000"}
			{"type":"command.rejected","campaign":"c","at":"@4","sequence":78,"reason":"too many lines","payload":"x"}`,
			map[string]string{
				refusals: " @0 code_not_found 2\n @0 invalid 1\nc @0 claim_closed 1\nc @0 invalid 1\nc @0 sold_out 1000005",
				letters:  "SCRIP_CMD_0 0 77 2 customer_id: is missing {\"type\":\"claim\uFFFD @3\nSCRIP_CMD_0 0 78 0 too many lines x @4",
			}},
		{"lines that cannot be applied are parked, the others are not held up", `
			{"type":"campaign.created","campaign":"c","at":"@1","number":4,"codes":10}
			{"type":"coupon.melted","campaign":"c","at":"@2"} + {"type":"coupon.claimed","campaign":"c","at":"@2","n":1,"code":"A","customer_id":"ann"}
			{"type":"coupon.claimed","campaign":"c"
			{"type":"coupon.redeemed","campaign":"c","at":"@3","n":9,"code":"X","order_id":"o","redeemed_count":1}
			{"type":"coupon.claimed","campaign":"nowhere","at":"@4","n":1,"code":"A","customer_id":"ann"}
			{"type":"coupon.claimed","campaign":"c","n":5,"code":"A","customer_id":"ann"}
			{"type":"campaign.created","campaign":"c","at":"@5","number":9,"codes":1}`,
			map[string]string{
				campaigns: "c active 10 1 0 0 0",
				"SELECT stream, sequence, line, event_sequence, event_line, reason FROM scrip_tables.dead_letter ORDER BY 2": "" +
					`SCRIP_EVT_0 2 1 2 1 the event's type: "coupon.melted" is not known to this version` + "\n" +
					`SCRIP_EVT_0 3 1 3 1 the event line is not valid JSON: it ends too early` + "\n" +
					`SCRIP_EVT_0 4 1 4 1 coupon.redeemed of coupon 9, which is not in the tables` + "\n" +
					`SCRIP_EVT_0 5 1 5 1 coupon.claimed of a campaign that is not in the tables` + "\n" +
					`SCRIP_EVT_0 6 1 6 1 the event line has no at` + "\n" +
					`SCRIP_EVT_0 7 1 7 1 the row is there already (campaign_key)`,
			}},
	}
	whole, single := open(t), open(t)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			truncate(t, whole)
			truncate(t, single)
			log := script(c.log)
			commit(t, whole, new(reader).batch(log))
			one := new(reader)
			for i := range log {
				commit(t, single, one.batch(log[i:i+1]))
			}
			for query, want := range c.want {
				if got := rows(t, whole, query); got != want {
					t.Errorf("%s\n got %s\nwant %s", query, got, want)
				}
			}
			streamtest.Equal(t, "digests in one batch, and message by message", projtest.Digest(t, whole), projtest.Digest(t, single))
		})
	}
}

func TestProcessedTasksAreCleanedUpByLogTime(t *testing.T) {
	const day = 24 * 60
	pool := open(t)
	log := script(summer + `{"type":"coupons.expired","campaign":"summer","at":"@61","through":"@60","count":2}`)
	r := new(reader)
	commit(t, pool, r.batch(log))
	for _, step := range []struct {
		minute int
		want   string
	}{
		{30 * day, "summer @60 0 0 2 processed"},
		{31*day - 1, "summer @60 0 0 2 processed"}, // no midnight crossed
		{31 * day, ""},
	} {
		commit(t, pool, r.batch([]message{{at: minute(step.minute)}}))
		if got := rows(t, pool, tasks); got != step.want {
			t.Fatalf("at minute %d: tasks %q, want %q", step.minute, got, step.want)
		}
	}
}

func TestLineThatPostgreSQLRejectsBecomesADeadLetter(t *testing.T) {
	pool := open(t)
	r := new(reader)
	remind := `{"type":"reminder.set","campaign":"summer","at":"@2","r":1,"customer_id":"zoe","kind":"expires","before":"5m","due_at":"@55"}`
	commit(t, pool, r.batch(script(summer+"\n"+remind)))
	// Reminder 1 exists, which the fold does not look up; the lines beside the bad one are good.
	log := script(`{"type":"coupon.claimed","campaign":"summer","at":"@3","n":3,"code":"C","customer_id":"cid"} + ` +
		remind + ` + ` +
		`{"type":"coupon.redeemed","campaign":"summer","at":"@4","n":3,"code":"C","order_id":"o","redeemed_count":1}`)
	b := r.batch(log)
	_, err := tryCommit(pool, b, Apply)
	if _, refused := Refused(err); !refused {
		t.Fatalf("Apply: %v, want a refusal", err)
	}
	parked, err := tryCommit(pool, b, ApplyOneByOne)
	streamtest.Must(t, err)
	if len(parked) != 1 || parked[0].Sequence != 4 || parked[0].Line != 2 || !strings.Contains(parked[0].Reason, "there already (reminder_key)") {
		t.Errorf("parked %+v", parked)
	}
	want := "summer 1 AAAA ann claimed @2 @60 0 -\nsummer 2 BBBB bob claimed @2 @60 0 -\nsummer 3 C cid redeemed @3 @60 1 @4"
	streamtest.Equal(t, "coupons", rows(t, pool, coupons), want)
}

// TestKeepIsSetLate: digests of live tables and of rebuilt ones, with setting tables.keep as it is now from the first
// event on, are equal from the next midnight on, although the coupons left in other steps.
func TestKeepIsSetLate(t *testing.T) {
	log := script(`
		{"type":"campaign.created","campaign":"revived","at":"@0","number":1,"codes":10,"max_redemptions":1,"expires_at":"@1440"}
		{"type":"coupon.claimed","campaign":"revived","at":"@10","n":1,"code":"x","customer_id":"ann"}
		{"type":"coupons.expired","campaign":"revived","at":"@1440","through":"@1440","count":1}
		{"type":"campaign.created","campaign":"other","at":"@57600","number":3,"codes":10,"max_redemptions":1}
		{"type":"campaign.updated","campaign":"revived","at":"@86400","number":1,"codes":10,"max_redemptions":1,"expires_at":"@100800"}
		{"type":"coupon.claimed","campaign":"revived","at":"@86410","n":2,"code":"y","customer_id":"bob"}
		{"type":"coupons.expired","campaign":"revived","at":"@100800","through":"@100800","count":2}
		{"type":"coupon.claimed","campaign":"other","at":"@201600","n":1,"code":"z","customer_id":"bob"}
		{"type":"coupon.claimed","campaign":"other","at":"@216000","n":2,"code":"zz","customer_id":"cid"}`)
	digest := func(from int) string {
		pool, r := open(t), &reader{}
		for i := range log {
			if i == from {
				keep(t, pool, 30)
			}
			if parked := commit(t, pool, r.batch(log[i:i+1])); len(parked) > 0 {
				t.Fatal(parked)
			}
		}
		streamtest.Equal(t, "coupons", rows(t, pool, "SELECT campaign, n FROM scrip.coupon ORDER BY 1, 2"), "other 1\nother 2")
		return projtest.Digest(t, pool)
	}
	streamtest.Equal(t, "tables live and rebuilt", digest(len(log)-1), digest(0))
}

// PostgreSQL may keep a list of tables that it made while a segment was attached. The coupons of that one are found by its
// name.
func TestCouponsOfAnUnlistedSegment(t *testing.T) {
	log := script(summer + `
		{"type":"coupon.redeemed","campaign":"summer","at":"@3","id":"c","n":2,"code":"BBBB","customer_id":"bob","order_id":"o-1","redeemed_count":1}`)
	pool := open(t)
	begin(t, pool, 2)
	r := &reader{}
	for i, m := range log {
		b := r.batch([]message{m})
		if b.Segment = -2; i == len(log)-1 {
			if _, err := pool.Exec(t.Context(), "ALTER TABLE scrip_1.coupon_claim DETACH PARTITION scrip_1.coupon_claim_2"); err != nil {
				t.Fatal(err)
			}
			b.Unlisted = []int32{-1, -2}
		}
		if parked := commit(t, pool, b); len(parked) > 0 {
			t.Errorf("parked: %+v", parked)
		}
	}
	streamtest.Equal(t, "redemptions", rows(t, pool, "SELECT n, customer_id, order_id FROM scrip.redemption"), "2 bob o-1")
}
