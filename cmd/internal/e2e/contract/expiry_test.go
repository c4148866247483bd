package contract

import (
	"fmt"
	"testing"
	"time"
)

// TestExpiryAtTheInstant: whoever redeems before the instant succeeds, whoever redeems at or after it is refused, to
// the microsecond of the log's own timestamps; nobody has to announce anything for that.
func TestExpiryAtTheInstant(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":9,"max_redemptions":1000000,"expires_at":"`+farAway+`"`)
	code := r.claim(t, c, "ann")
	js, err := r.nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	r.wantStatus(t, "scrip.redeem", `{"id":"r0","code":"`+code+`","order_id":"o0"}`, "redeemed")
	ends := r.soon(t, c, "expires_at", time.Second)
	before, after := 1, 0
	eventually(t, "redemptions before and after the end", func() bool {
		i := before + after
		ack, outcomes := r.post(t, "scrip.cmd."+c, fmt.Sprintf(`{"id":"r%d","type":"redeem","code":"%s","order_id":"o%d"}`, i, code, i))
		stored, err := js.GetMsg(ack.Stream, ack.Seq)
		if err != nil {
			t.Fatal(err)
		}
		if stored.Time.Truncate(time.Microsecond).Before(instant(ends)) {
			before++
			match(t, outcomes[0], fill(fmt.Sprintf(`{"id":"r%d","status":"redeemed","campaign":"$c","n":1,"code":"$1","expires_at":"$t","?order_id":"o%[1]d","redeemed_count":%[2]d}`, i, before),
				"$c", c, "$1", code, "$t", ends))
		} else {
			after++
			match(t, outcomes[0], fill(fmt.Sprintf(`{"id":"r%d","status":"refused","refusal":"expired","message":"~has:$t","campaign":"$c"}`, i), "$c", c, "$t", ends))
		}
		return after >= 10
	})
	match(t, r.request(t, "scrip.coupon.validate", `{"id":"v","code":"`+code+`"}`), `{"id":"v","status":"refused","refusal":"expired","message":"~text","campaign":"`+c+`"}`)
	match(t, r.request(t, "scrip.claim."+c, `{"id":"late","customer_id":"bob"}`), `{"id":"late","status":"refused","refusal":"claim_closed","message":"~text","campaign":"`+c+`"}`)
}

// TestExpiryIsAnnounced by one event for all that fall, and shows in the tables: statuses by their precedence, the task,
// the campaign's counts. An expired coupon that is extended lives again, and falls again.
func TestExpiryIsAnnounced(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":9,"expires_at":"`+farAway+`"`)
	codes := map[string]string{}
	for _, who := range []string{"claimed", "redeemed", "voided", "extended", "both"} {
		codes[who] = r.claim(t, c, who)
	}
	r.wantStatus(t, "scrip.redeem", `{"id":"r","code":"`+codes["redeemed"]+`","order_id":"o"}`, "redeemed")
	r.wantStatus(t, "scrip.redeem", `{"id":"b","code":"`+codes["both"]+`","order_id":"o2"}`, "redeemed")
	r.wantStatus(t, "scrip.void", `{"code":"`+codes["voided"]+`"}`, "voided")
	r.wantStatus(t, "scrip.void", `{"code":"`+codes["both"]+`"}`, "voided")
	statuses := func(patterns ...string) {
		t.Helper()
		matchRows(t, r.rows(t, `SELECT customer_id, status FROM scrip.coupon WHERE campaign = $1 ORDER BY n`, c), patterns...)
	}
	const task = `SELECT due_at, pending, redeemed, expired, state FROM scrip.expiry_task WHERE campaign = $1 ORDER BY due_at`
	matchRows(t, r.rows(t, task, c), `{"due_at":"~at:`+farAway+`","pending":2,"redeemed":1,"expired":0,"state":"pending"}`)
	statuses(`{"customer_id":"claimed","status":"claimed"}`, `{"customer_id":"redeemed","status":"redeemed"}`, `{"customer_id":"voided","status":"voided"}`,
		`{"customer_id":"extended","status":"claimed"}`, `{"customer_id":"both","status":"voided"}`)

	ends := r.soon(t, c, "expires_at", time.Second)
	received := r.eventsOf(t, c, "coupons.expired", 1)
	match(t, received[0], `{"type":"coupons.expired","campaign":"`+c+`","at":"~time","id":"~text","through":"~time","count":2}`)
	event := parse(t, received[0])
	if through := instant(event["through"].(string)); through.Before(instant(ends)) || through.After(instant(event["at"].(string))) {
		t.Errorf("announced through %s what ends at %s, at %s", event["through"], ends, event["at"])
	}
	statuses(`{"customer_id":"claimed","status":"expired"}`, `{"customer_id":"redeemed","status":"redeemed"}`, `{"customer_id":"voided","status":"voided"}`,
		`{"customer_id":"extended","status":"expired"}`, `{"customer_id":"both","status":"voided"}`)
	matchRows(t, r.rows(t, task, c), `{"due_at":"~at:`+ends+`","pending":0,"redeemed":1,"expired":2,"state":"processed"}`)
	matchRows(t, r.rows(t, `SELECT claimed, redeemed, expired, voided FROM scrip.campaign WHERE campaign = $1`, c), `{"claimed":5,"redeemed":1,"expired":2,"voided":2}`)

	// A redemption that is taken back now leaves an expired coupon.
	r.wantStatus(t, "scrip.rollback", `{"code":"`+codes["redeemed"]+`","order_id":"o"}`, "rolled_back")
	if event := parse(t, r.eventsOf(t, c, "coupon.rolled_back", 1)[0]); event["status"] != "expired" {
		t.Errorf("taken back after the end: %v", event)
	}
	match(t, r.request(t, "scrip.extend", `{"id":"x","code":"`+codes["extended"]+`","expires_at":"`+farAway+`"}`),
		fill(`{"id":"x","status":"extended","campaign":"$c","n":4,"code":"$1","expires_at":"$t"}`, "$c", c, "$1", codes["extended"], "$t", farAway))
	statuses(`{"customer_id":"claimed","status":"expired"}`, `{"customer_id":"redeemed","status":"expired"}`, `{"customer_id":"voided","status":"voided"}`,
		`{"customer_id":"extended","status":"claimed"}`, `{"customer_id":"both","status":"voided"}`)
	again := r.extendSoon(t, codes["extended"], time.Second)
	eventually(t, "the extended coupon fell", func() bool {
		fell := r.subscriber.lines("scrip.evt.", c)
		last := parse(t, fell[len(fell)-1])
		return last["type"] == "coupons.expired" && !instant(last["through"].(string)).Before(instant(again))
	})
	statuses(`{"customer_id":"claimed","status":"expired"}`, `{"customer_id":"redeemed","status":"expired"}`, `{"customer_id":"voided","status":"voided"}`,
		`{"customer_id":"extended","status":"expired"}`, `{"customer_id":"both","status":"voided"}`)
	matchRows(t, r.rows(t, `SELECT claimed, redeemed, expired, voided FROM scrip.campaign WHERE campaign = $1`, c), `{"claimed":5,"redeemed":0,"expired":3,"voided":2}`)
	matchRows(t, r.rows(t, `SELECT sum(pending)::bigint p, sum(redeemed)::bigint r, sum(expired)::bigint e FROM scrip.expiry_task WHERE campaign = $1`, c), `{"p":0,"r":0,"e":3}`)
	// Nothing that has fallen may be brought back by moving the end behind what was announced.
	r.wantStatus(t, "scrip.campaign.update", `{"campaign":"`+c+`","expires_at":"`+ends+`"}`, "updated repeat")
	r.wantStatus(t, "scrip.campaign.update", `{"campaign":"`+c+`","expires_at":"`+again+`"}`, "invalid")
	r.wantStatus(t, "scrip.campaign.update", `{"campaign":"`+c+`","expires_at":"2031-01-01T00:00:00Z"}`, "updated")
	statuses(`{"customer_id":"claimed","status":"claimed"}`, `{"customer_id":"redeemed","status":"claimed"}`, `{"customer_id":"voided","status":"voided"}`,
		`{"customer_id":"extended","status":"expired"}`, `{"customer_id":"both","status":"voided"}`)
}
