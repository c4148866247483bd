package contract

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestRequestsMakeTheirIDs: the type is implied, the id optional.
func TestRequestsMakeTheirIDs(t *testing.T) {
	r := server(t)
	c := r.name()
	match(t, r.request(t, "scrip.campaign.create", `{"campaign":"`+c+`","codes":3,"opens_at":"2020-01-01T00:00:00Z"}`), `{"id":"~uuid7","status":"created","campaign":"`+c+`"}`)
	first := r.request(t, "scrip.claim."+c, `{"customer_id":"ann"}`)
	match(t, first, `{"id":"~uuid7","status":"claimed","campaign":"`+c+`","n":1,"code":"~code","?customer_id":"ann"}`)
	again := r.request(t, "scrip.claim."+c, `{"customer_id":"ann"}`) // the same customer, whatever the id
	match(t, again, `{"id":"~uuid7","status":"claimed","campaign":"`+c+`","n":1,"code":"~code","?customer_id":"ann","repeat":true}`)
	if a, b := parse(t, first), parse(t, again); a["id"] == b["id"] || a["code"] != b["code"] {
		t.Errorf("%s, then %s: want other ids and the same code", first, again)
	}
	// The type may be given, if it is the right one; refusals also have a generated id.
	match(t, r.request(t, "scrip.claim."+c, `{"type":"claim","campaign":"`+c+`","customer_id":"bob"}`), `{"id":"~uuid7","status":"claimed","campaign":"`+c+`","n":2,"code":"~code","?customer_id":"bob"}`)
	match(t, r.request(t, "scrip.claim.absent", `{"customer_id":"ann"}`), `{"id":"~uuid7","status":"refused","refusal":"campaign_not_found","message":"~has:absent","campaign":"absent"}`)
	match(t, r.request(t, "scrip.remind."+c, `{"customer_id":"ann","kind":"opens","before":"1m"}`), `{"id":"~uuid7","status":"refused","refusal":"too_late","message":"~text","campaign":"`+c+`"}`)
	match(t, r.request(t, "scrip.unremind."+c, `{"customer_id":"cleo","kind":"expires","before":"1m"}`), `{"id":"~uuid7","status":"refused","refusal":"not_holder","message":"~text","campaign":"`+c+`"}`)
}

// TestShowAndList answer {"data":…}; history comes from the tables.
func TestShowAndList(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":3,"expires_at":"2031-01-01T00:00:00Z","category":"food","valid_for":null`)
	customer := "customer-of-" + c
	code := r.claim(t, c, customer)
	r.request(t, "scrip.redeem", `{"code":"`+code+`","order_id":"the-order"}`)
	r.caught(t)
	data := func(subject, body string) (map[string]any, []any, map[string]any) {
		t.Helper()
		answer := parse(t, r.request(t, subject, body))
		object, _ := answer["data"].(map[string]any)
		list, _ := answer["data"].([]any)
		if object == nil && list == nil {
			t.Fatalf("%s %s has no data: %v", subject, body, answer)
		}
		return object, list, answer
	}
	campaign, _, _ := data("scrip.campaign.show", `{"campaign":"`+c+`"}`)
	for name, want := range map[string]any{"campaign": c, "status": "active", "codes": json.Number("3"), "claimed": json.Number("1"), "redeemed": json.Number("1"),
		"category": "food", "per_customer": json.Number("1"), "max_redemptions": json.Number("1"), "expires_at": "2031-01-01T00:00:00Z", "priority": "normal"} {
		if campaign[name] != want {
			t.Errorf("campaign.show: %s is %v, want %v", name, campaign[name], want)
		}
	}
	coupon, _, whole := data("scrip.coupon.show", `{"code":"`+code+`"}`)
	for name, want := range map[string]any{"campaign": c, "n": json.Number("1"), "code": code, "status": "redeemed", "redeemed_count": json.Number("1"), "expires_at": "2031-01-01T00:00:00Z"} {
		if coupon[name] != want {
			t.Errorf("coupon.show: %s is %v, want %v", name, coupon[name], want)
		}
	}
	if text := fmt.Sprint(whole["history"]); !strings.Contains(text, customer) || !strings.Contains(text, "the-order") {
		t.Errorf("coupon.show has no history: %v", whole)
	}
	_, coupons, whole := data("scrip.customer.show", `{"customer_id":"`+customer+`"}`)
	if len(coupons) != 1 || coupons[0].(map[string]any)["code"] != code {
		t.Errorf("customer.show: %v", coupons)
	}
	if text := fmt.Sprint(whole["history"]); !strings.Contains(text, "the-order") {
		t.Errorf("customer.show has no history: %v", whole)
	}
	if _, none, _ := data("scrip.customer.show", `{"customer_id":"nobody-`+c+`"}`); len(none) != 0 {
		t.Errorf("customer.show of nobody: %v", none)
	}
	for _, body := range []string{``, `{}`} {
		_, all, _ := data("scrip.campaign.list", body)
		var listed []string
		for _, one := range all {
			listed = append(listed, one.(map[string]any)["campaign"].(string))
		}
		if !slices.Contains(listed, c) || !slices.IsSorted(listed) {
			t.Errorf("campaign.list %q: %v", body, listed)
		}
	}
	match(t, r.request(t, "scrip.campaign.show", `{"campaign":"absent"}`), `{"status":"refused","refusal":"campaign_not_found","message":"~has:absent","campaign":"absent"}`)
}
