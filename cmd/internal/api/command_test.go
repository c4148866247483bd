package api_test

import (
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
)

// TestRequestsOfCommands: what routes of commands take and refuse, right and wrong, in this order. TestBadRequests has what no
// command takes.
func TestRequestsOfCommands(t *testing.T) {
	r := apitest.Shared(t)
	r.Key(t, "producer")
	r.Key(t, "producer+public")
	campaign, code := r.Campaign(t, map[string]any{"codes": 4, "benefit": map[string]any{"off": 5, "text": "a<b & ü \u2028"}}), ""
	limited := "producer+" + campaign
	r.Key(t, limited)
	long := strings.Repeat("x", 129)
	claims, redeem, rollback := "/v1/campaigns/CAMPAIGN/claims", "/v1/redemptions", "/v1/rollbacks"
	for _, c := range []struct {
		as, path, body string
		header         []string
		status         int
	}{
		{"producer", claims, `{"customer_id":"ann","attributes":{"shop":"bonn","n":1.50,"new":true}}`, []string{"Idempotency-Key", "cart 77"}, 201},
		{"producer", claims, `{"customer_id":"ann","attributes":{"shop":"bonn","n":1.50,"new":true}}`, []string{"Idempotency-Key", "cart 77"}, 200},
		{"producer", claims, `{"customer_id":"bob"}`, []string{"Idempotency-Key", "cart 77"}, 422},
		{"producer", claims, ` { "customer_id" : "b\u006fb\n" } `, nil, 422},
		{"limited", claims, `{"customer_id":"bob ü"}`, []string{"Content-Type", "application/json; charset=utf-8"}, 201},
		{"producer+public", claims, ` { "customer_id" : "e\u0076e" } `, nil, 201},
		{"producer+public", claims, `{"customer_id":"eve"}`, nil, 200},
		{"", claims, `{"customer_id":"nullable"}`, nil, 201},
		{"producer", claims, `{"customer_id":"late"}`, nil, 409},
		{"producer", "/v1/campaigns/none/claims", `{"customer_id":"ann"}`, nil, 404},
		{"limited", "/v1/campaigns/none/claims", `{"customer_id":"ann"}`, nil, 403},
		{"producer", "/v1/campaigns/a%20b/claims", `{"customer_id":"ann"}`, nil, 422},
		{"producer", claims + "?colour=red", `{"customer_id":"ann"}`, nil, 400},
		{"-", claims, `{"customer_id":"ann"}`, nil, 401},
		{"producer", claims, `{"customer_id":""}`, nil, 422},
		{"producer", claims, `{"customer_id":"` + long + `"}`, nil, 422},
		{"producer", claims, `{"customer_id":null}`, nil, 422},
		{"producer", claims, `{"customer_id":"ann","attributes":null}`, nil, 422},
		{"producer", claims, `{"customer_id":"ann","attributes":{"a":{}}}`, nil, 422},
		{"producer", claims, `{"customer_id":"ann","customer_id":"ann"}`, nil, 400},
		{"producer", claims, `{"customer_id":"ann","Customer_ID":"ann"}`, nil, 400},
		{"producer", claims, `{"customer_id":"ann","campaign":"CAMPAIGN"}`, nil, 400},
		{"producer", claims, `{"customer_id":"ann","type":"claim"}`, nil, 400},
		{"producer", claims, `{"customer_id":"ann","code":"x"}`, nil, 400},
		{"producer", claims, `{"customer_id":"ann"} {}`, nil, 400},
		{"producer", claims, "{\"customer_id\":\"\xff\"}", nil, 400},
		{"producer", claims, `{"customer_id":"\ud800"}`, nil, 422},

		{"producer+public", redeem, `{"code":"CODE","order_id":"o1"}`, nil, 403},
		{"producer", redeem, `{"code":"CODE","order_id":"o1"}`, []string{"Idempotency-Key", "order"}, 201},
		{"producer", redeem, `{"code":"CODE","order_id":"o1"}`, []string{"Idempotency-Key", "order"}, 200},
		{"limited", redeem, `{"code":"CODE","order_id":"o1"}`, nil, 200},
		{"limited", redeem, ` { "code" : "LOWER", "order_id":"o1","campaign":"CAMPAIGN"}`, nil, 200},
		{"limited", redeem, `{"code":"CODE","order_id":"o1","campaign":"none"}`, nil, 403},
		{"producer", redeem, `{"code":"CODE","order_id":"o1","campaign":"none"}`, nil, 404},
		{"producer", redeem, `{"code":"CODE","order_id":"o2"}`, nil, 409},
		{"producer", redeem, `{"code":"CODE","order_id":"o1","customer_id":"bob"}`, nil, 403},
		{"producer", redeem, `{"code":"AAAA-AAAA-AAAA","order_id":"o1"}`, nil, 404},
		{"producer", redeem, `{"code":"?","order_id":"o1"}`, nil, 404},
		{"producer", redeem, `{"code":"CODE","order_id":"o1","reason":"x"}`, nil, 400},
		{"producer", "/v1/validations", `{"code":"CODE","order_id":"o1"}`, nil, 200},
		{"producer", "/v1/validations", `{"code":"CODE","order_id":"o2"}`, nil, 200},
		{"producer", rollback, `{"code":"CODE","order_id":"o9"}`, nil, 409},
		{"", rollback, `{"code":"CODE","order_id":"o1"}`, nil, 201},
		{"producer", rollback, `{"code":"CODE","order_id":"o1"}`, nil, 200},
		{"producer", rollback, `{"code":"CODE","order_id":"o1","campaign":null}`, nil, 422},
	} {
		fill, as := strings.NewReplacer("CAMPAIGN", campaign, "CODE", code, "LOWER", strings.ToLower(code)), c.as
		if as == "limited" {
			as = limited
		}
		got := r.Ask(t, as, "POST", fill.Replace(c.path), fill.Replace(c.body), c.header...).Want(t, c.status)
		if code == "" {
			code = got.Object(t)["code"].(string)
		}
		if v := string(got.Body); c.path == redeem && got.Status < 300 && (!strings.Contains(v, `"benefit":{"off":5,`) || !strings.Contains(v, `"order_id":"o1"`)) {
			t.Errorf("%s: %s", got.What, v)
		}
		if replayed := got.Header.Get("Idempotency-Replayed"); c.path != "/v1/validations" && got.Status < 300 && (replayed == "true") != (got.Status == 200) || got.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s: %d %v", got.What, c.body, got.Status, got.Header)
		}
	}
}
