package contract

import (
	"fmt"
	"testing"
	"time"
)

// wantStatus sends a request and compares its status or refusal.
func (r *rig) wantStatus(t *testing.T, subject, body, want string) map[string]any {
	t.Helper()
	answer := parse(t, r.request(t, subject, body))
	got := fmt.Sprint(answer["status"])
	if answer["refusal"] != nil {
		got = fmt.Sprint(answer["refusal"])
	}
	if answer["repeat"] == true {
		got += " repeat"
	}
	if got != want {
		t.Errorf("%s %s: %v, want %s", subject, body, answer, want)
	}
	return answer
}

func (r *rig) claims(t *testing.T, campaign, customer, want string) map[string]any {
	t.Helper()
	return r.wantStatus(t, "scrip.claim."+campaign, `{"customer_id":"`+customer+`"}`, want)
}

func (r *rig) turns(t *testing.T, campaign, verb, settings string) {
	t.Helper()
	answer := parse(t, r.request(t, "scrip.campaign."+verb, `{"campaign":"`+campaign+`"`+more(settings)+`}`))
	if answer["status"] == "refused" {
		t.Fatalf("%s %s: %v", verb, campaign, answer)
	}
}

// farAway is when nothing is due yet, for as long as a test may take.
const farAway = "2031-01-01T00:00:00Z"

// soon moves a time of a campaign to d from now and returns it. Tests set everything up before that, so that no limit of time
// is on their steps. An update that is decided later than d is refused, and repeated.
func (r *rig) soon(t *testing.T, campaign, field string, d time.Duration) (at string) {
	t.Helper()
	eventually(t, field+" is moved", func() bool {
		at = in(d)
		answer := parse(t, r.request(t, "scrip.campaign.update", fmt.Sprintf(`{"campaign":"%s","%s":"%s"}`, campaign, field, at)))
		return answer["status"] == "updated"
	})
	return at
}

// extendSoon is soon for the end of one coupon.
func (r *rig) extendSoon(t *testing.T, code string, d time.Duration) (at string) {
	t.Helper()
	eventually(t, "the coupon is extended", func() bool {
		at = in(d)
		answer := parse(t, r.request(t, "scrip.extend", fmt.Sprintf(`{"code":"%s","expires_at":"%s"}`, code, at)))
		return answer["status"] == "extended"
	})
	return at
}

// TestOrderOfChecksOfAClaim: where several things are wrong, the first of the list is the answer.
func TestOrderOfChecksOfAClaim(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":2,"per_customer":2`)
	r.claims(t, "absent", "ann", "campaign_not_found")
	r.wantStatus(t, "scrip.claim.absent", `{"customer_id":""}`, "invalid")
	r.wantStatus(t, "scrip.claim."+c, `{"id":"ann-1","customer_id":"ann"}`, "claimed")
	r.claims(t, c, "ann", "claimed")
	r.claims(t, c, "bob", "sold_out")
	r.claims(t, c, "ann", "claim_limit_reached") // before sold_out
	r.soon(t, c, "closes_at", 300*time.Millisecond)
	eventually(t, "claims are closed", func() bool {
		return parse(t, r.request(t, "scrip.claim."+c, `{"customer_id":"ann"}`))["refusal"] == "claim_closed" // before claim_limit_reached
	})
	r.claims(t, c, "bob", "claim_closed") // before sold_out
	r.turns(t, c, "update", `"opens_at":"2031-01-01T00:00:00Z","closes_at":null`)
	r.claims(t, c, "bob", "claim_not_open")
	r.turns(t, c, "pause", "")
	r.claims(t, c, "bob", "campaign_paused") // before claim_not_open
	r.turns(t, c, "end", "")
	r.claims(t, c, "bob", "campaign_ended")
	r.wantStatus(t, "scrip.claim."+c, `{"id":"ann-1","customer_id":"ann"}`, "claimed repeat") // its id was seen
	r.claims(t, c, "ann", "campaign_ended")
	r.wantStatus(t, "scrip.claim."+c, `{"id":"ann-1","customer_id":"bob"}`, "idempotency_key_reused")

	one := r.campaign(t, `"codes":1`)
	r.claims(t, one, "ann", "claimed")
	r.turns(t, one, "end", "")
	r.claims(t, one, "ann", "claimed repeat") // has one, where one is allowed
	r.wantStatus(t, "scrip.campaign.update", `{"campaign":"`+one+`","codes":7}`, "campaign_ended")
	r.wantStatus(t, "scrip.campaign.resume", `{"campaign":"`+one+`"}`, "campaign_ended")
	r.wantStatus(t, "scrip.campaign.pause", `{"campaign":"absent"}`, "campaign_not_found")
}

// TestOrderOfChecksOfARedemption, and of taking it back.
func TestOrderOfChecksOfARedemption(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":9,"per_customer":0`)
	code := r.claim(t, c, "ann")
	redeem := func(fields, want string) {
		t.Helper()
		r.wantStatus(t, "scrip.redeem", `{"code":"`+code+`",`+fields+`}`, want)
	}
	redeem(`"id":"first","order_id":"o1"`, "redeemed")
	redeem(`"id":"first","order_id":"o2"`, "idempotency_key_reused")
	redeem(`"order_id":"o1"`, "redeemed repeat") // the same code and order
	redeem(`"order_id":"o2"`, "already_redeemed")
	redeem(`"order_id":"o2","customer_id":"bob"`, "not_holder") // before already_redeemed
	r.turns(t, c, "pause", "")
	redeem(`"order_id":"o2"`, "campaign_paused") // before already_redeemed
	redeem(`"order_id":"o1"`, "redeemed repeat")
	r.wantStatus(t, "scrip.rollback", `{"code":"`+code+`","order_id":"o9"}`, "not_redeemed")
	r.wantStatus(t, "scrip.rollback", `{"code":"`+code+`","order_id":"o9","customer_id":"bob"}`, "not_holder")
	r.wantStatus(t, "scrip.rollback", `{"id":"back","code":"`+code+`","order_id":"o1"}`, "rolled_back")
	r.wantStatus(t, "scrip.rollback", `{"code":"`+code+`","order_id":"o1","customer_id":"bob"}`, "not_holder") // before the repeat
	r.wantStatus(t, "scrip.rollback", `{"code":"`+code+`","order_id":"o1"}`, "rolled_back repeat")
	r.wantStatus(t, "scrip.rollback", `{"id":"back","code":"`+code+`","order_id":"o2"}`, "idempotency_key_reused")
	redeem(`"order_id":"o1"`, "campaign_paused") // taken back, so no repeat any more
	r.wantStatus(t, "scrip.void", `{"code":"`+code+`","reason":"test"}`, "voided")
	r.wantStatus(t, "scrip.void", `{"code":"`+code+`","reason":"test"}`, "voided repeat")
	redeem(`"order_id":"o1"`, "voided") // before campaign_paused
	redeem(`"order_id":"o1","customer_id":"bob"`, "not_holder")
	redeem(`"id":"first","order_id":"o1"`, "redeemed repeat")
	r.wantStatus(t, "scrip.extend", `{"code":"`+code+`","expires_at":"2031-01-01T00:00:00Z"}`, "voided")
	r.wantStatus(t, "scrip.claim."+c, `{"id":"first","customer_id":"ann"}`, "idempotency_key_reused") // the same id with another type
	r.turns(t, c, "resume", "")
	many := r.claim(t, c, "cleo")
	r.turns(t, c, "update", `"max_redemptions":2`)
	for i, want := range []string{"redeemed", "redeemed", "redemption_limit_reached"} {
		r.wantStatus(t, "scrip.redeem", fmt.Sprintf(`{"code":"%s","order_id":"m%d"}`, many, i), want)
	}
}

// TestValidity: valid_for counts from the claim, and rounds up to the second, from an hour on to the minute; an update
// moves the end of the coupons that inherit it.
func TestValidity(t *testing.T) {
	r := server(t)
	for life, unit := range map[string]time.Duration{"90s": time.Second, "59m59s": time.Second, "1h": time.Minute, "72h": time.Minute, "1500ms": time.Second} {
		c := r.campaign(t, `"codes":3,"valid_for":"`+life+`"`)
		d, err := time.ParseDuration(life)
		if err != nil {
			t.Fatal(err)
		}
		answer := parse(t, r.request(t, "scrip.claim."+c, `{"id":"a","customer_id":"ann"}`))
		event := parse(t, r.eventsOf(t, c, "coupon.claimed", 1)[0])
		claimed, ends := instant(event["at"].(string)), instant(answer["expires_at"].(string))
		if answer["expires_at"] != event["expires_at"] || ends.Before(claimed.Add(d)) || ends.Sub(claimed.Add(d)) >= unit || !ends.Truncate(unit).Equal(ends) {
			t.Errorf("claimed at %s for %s: expires at %s", claimed, life, ends)
		}
		matchRows(t, r.rows(t, `SELECT expires_at FROM scrip.coupon WHERE campaign = $1`, c), `{"expires_at":"~at:`+answer["expires_at"].(string)+`"}`)
		matchRows(t, r.rows(t, `SELECT due_at, pending, redeemed, expired, state FROM scrip.expiry_task WHERE campaign = $1`, c),
			`{"due_at":"~at:`+answer["expires_at"].(string)+`","pending":1,"redeemed":0,"expired":0,"state":"pending"}`)
	}
	c := r.campaign(t, `"codes":3,"expires_at":"2031-01-01T00:00:00Z"`)
	code := r.claim(t, c, "ann")
	match(t, r.eventsOf(t, c, "coupon.claimed", 1)[0], fill(`{"type":"coupon.claimed","campaign":"$c","at":"~time","id":"~uuid7","n":1,"code":"$1","customer_id":"ann"}`, "$c", c, "$1", code))
	r.turns(t, c, "update", `"expires_at":"2032-01-01T00:00:00Z"`)
	match(t, r.request(t, "scrip.claim."+c, `{"id":"b","customer_id":"ann"}`), `{"id":"b","status":"claimed","campaign":"`+c+`","n":1,"code":"`+code+`","expires_at":"2032-01-01T00:00:00Z","?customer_id":"ann","repeat":true}`)
	matchRows(t, r.rows(t, `SELECT expires_at FROM scrip.coupon WHERE campaign = $1`, c), `{"expires_at":"~at:2032-01-01T00:00:00Z"}`)
	matchRows(t, r.rows(t, `SELECT due_at, pending, redeemed, expired, state FROM scrip.expiry_task WHERE campaign = $1`, c),
		`{"due_at":"~at:2032-01-01T00:00:00Z","pending":1,"redeemed":0,"expired":0,"state":"pending"}`)
}
