package contract

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// farAway is when nothing is due yet, for as long as a test may take.
const farAway = "2031-01-01T00:00:00Z"

// soon moves a time of a campaign to d from now and returns it. Tests set everything up before that, so that no limit of time
// is on their steps. An update that is decided later than d is refused, and repeated.
func (r *rig) soon(t *testing.T, campaign, field string, d time.Duration) (at string) {
	t.Helper()
	streamtest.Eventually(t, field+" is moved", func() bool {
		at = time.Now().Add(d).UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano)
		answer := parse(t, r.request(t, "scrip.campaign.update", fmt.Sprintf(`{"campaign":"%s","%s":"%s"}`, campaign, field, at)))
		return answer["status"] == "updated"
	})
	return at
}

// TestExpiryAtTheInstant: a redemption before the instant succeeds, one at or after it is refused, to the microsecond of the
// log's own timestamps, announced or not. One event announces all that fall, and the tables show it.
func TestExpiryAtTheInstant(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":9,"max_redemptions":1000000,"expires_at":"`+farAway+`"`)
	code := r.claim(t, c, "ann")
	r.claim(t, c, "bob")
	js, err := r.nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	r.wantStatus(t, "scrip.redeem", `{"id":"r0","code":"`+code+`","order_id":"o0"}`, "redeemed")
	ends := r.soon(t, c, "expires_at", time.Second)
	before, after := 1, 0
	streamtest.Eventually(t, "redemptions before and after the end", func() bool {
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
	match(t, r.request(t, "scrip.coupon.validate", `{"id":"v","code":"`+code+`"}`), `{"id":"v","status":"refused","refusal":"expired","message":"~text","campaign":"`+c+`","n":1,"code":"`+code+`","expires_at":"`+ends+`","redeemed_count":`+fmt.Sprint(before)+`,"coupon_status":"expired"}`)
	match(t, r.request(t, "scrip.claim."+c, `{"id":"late","customer_id":"cleo"}`), `{"id":"late","status":"refused","refusal":"claim_closed","message":"~text","campaign":"`+c+`"}`)
	announced := r.events(t, c, "coupons.expired", 1)[0]
	match(t, announced, `{"type":"coupons.expired","campaign":"`+c+`","at":"~time","id":"~text","through":"~time","count":2}`)
	event := parse(t, announced)
	if through := instant(event["through"].(string)); through.Before(instant(ends)) || through.After(instant(event["at"].(string))) {
		t.Errorf("announced through %s what ends at %s, at %s", event["through"], ends, event["at"])
	}
	matchRows(t, r.rows(t, `SELECT customer_id, status FROM scrip.coupon WHERE campaign = $1 ORDER BY n`, c),
		`{"customer_id":"ann","status":"expired"}`, `{"customer_id":"bob","status":"expired"}`)
	matchRows(t, r.rows(t, `SELECT due_at, pending, expired, state FROM scrip.expiry_task WHERE campaign = $1 AND pending + expired > 0`, c),
		`{"due_at":"~at:`+ends+`","pending":0,"expired":2,"state":"processed"}`)
}
