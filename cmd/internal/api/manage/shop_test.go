package manage_test

import (
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api/apitest"
)

// TestShop: a coupon from its claim to its rollback, over HTTP alone, with what repeats and what is refused.
func TestShop(t *testing.T) {
	r := apitest.Serve(t)
	c := r.Campaign(t, map[string]any{"codes": 1, "benefit": map[string]any{"off": 5}})
	r.Key(t, "producer")
	r.Key(t, "producer+public")
	r.Key(t, "producer+"+r.Campaign(t, map[string]any{"codes": 1}))
	claim := map[string]any{"customer_id": "ann", "attributes": map[string]any{"shop": "bonn"}}
	made := r.Ask(t, "producer", "POST", "/v1/campaigns/"+c+"/claims", claim, "Idempotency-Key", "cart-77").Want(t, 201)
	again := r.Ask(t, "producer", "POST", "/v1/campaigns/"+c+"/claims", claim, "Idempotency-Key", "cart-77").Want(t, 200)
	code := made.Object(t)["code"].(string)
	if again.Object(t)["code"] != code || again.Header.Get("Idempotency-Replayed") != "true" || again.Header.Get("Scrip-Command-Id") != made.Header.Get("Scrip-Command-Id") {
		t.Errorf("%s, then %s %v", made.Body, again.Body, again.Header)
	}
	r.Ask(t, "producer", "POST", "/v1/campaigns/"+c+"/claims", map[string]any{"customer_id": "bob"}, "Idempotency-Key", "cart-77").Problem(t, 422, "idempotency_key_reused", "")
	r.Ask(t, "producer+public", "POST", "/v1/campaigns/"+c+"/claims", map[string]any{"customer_id": "bob"}).Problem(t, 409, "sold_out", "")
	r.Ask(t, "producer", "POST", "/v1/campaigns/none/claims", claim).Problem(t, 404, "campaign_not_found", "")
	r.Ask(t, "producer", "POST", "/v1/campaigns/"+c+"/claims", map[string]any{"customer_id": ""}).Problem(t, 422, "invalid", "body.customer_id")
	r.Ask(t, "producer", "POST", "/v1/campaigns/"+c+"/claims", map[string]any{"customer_id": "x", "code": "y"}).Problem(t, 400, "malformed", "body.code")

	use := map[string]any{"code": strings.ToLower(code), "order_id": "o1"}
	if v := r.Ask(t, "producer", "POST", "/v1/validations", use).Want(t, 200).Object(t); v["status"] != "redeemed" {
		t.Errorf("%v", v)
	}
	r.Ask(t, "producer+public", "POST", "/v1/validations", use).Problem(t, 403, "forbidden", "")
	for _, status := range []int{201, 200} {
		if v := r.Ask(t, "producer", "POST", "/v1/redemptions", use).Want(t, status).Object(t); v["benefit"] == nil || v["order_id"] != "o1" {
			t.Errorf("%v", v)
		}
	}
	r.Ask(t, "producer", "POST", "/v1/redemptions", map[string]any{"code": code, "order_id": "o2"}).Problem(t, 409, "already_redeemed", "")
	r.Ask(t, "producer", "POST", "/v1/validations", map[string]any{"code": "AAAA-AAAA-AAAA"}).Problem(t, 404, "code_not_found", "")
	for _, status := range []int{201, 200} {
		r.Ask(t, "producer", "POST", "/v1/rollbacks", use).Want(t, status)
	}
	// A key of another campaign: the code does not exist for it.
	for name := range r.Keys {
		if name != "producer" && name != "producer+public" {
			r.Ask(t, name, "POST", "/v1/redemptions", use).Problem(t, 404, "code_not_found", "")
		}
	}
}
