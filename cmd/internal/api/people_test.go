package api_test

import (
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
)

// TestPeopleSeeTheCodesTheyMay: whatever an operator without the right to see codes sends, no answer has one, by whatever key it was claimed.
// With the right, codes are in clear, and a person who sees one without an event that names them is in the audit stream.
func TestPeopleSeeTheCodesTheyMay(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 3})
	code := r.Claim(t, c, "ann")
	for as, sees := range map[string]bool{"operator": false, "operator+clear": true} {
		r.Key(t, as)
		for _, ask := range []struct {
			path, kind string
			body       any
		}{
			{"/v1/campaigns/" + c + "/claims", "application/json", map[string]any{"customer_id": "ann"}},
			{"/v1/redemptions", "application/json", map[string]any{"code": code, "order_id": "o"}},
			{"/v1/validations", "application/json", map[string]any{"code": code, "order_id": "o"}},
			{"/v1/rollbacks", "application/json", map[string]any{"code": code, "order_id": "o"}},
			{"/v1/commands", "application/x-ndjson", `{"id":"` + as + `","type":"claim","campaign":"` + c + `","customer_id":"ann"}`},
		} {
			got := r.Ask(t, as, "POST", ask.path, ask.body, "Content-Type", ask.kind, "Idempotency-Key", as+ask.path)
			if body := string(got.Body); got.Status >= 300 || strings.Contains(body, code) != sees || strings.Contains(body, `"code":"****-****-`+code[10:]+`"`) == sees {
				t.Errorf("%s: %s: %d %s", as, ask.path, got.Status, body)
			}
		}
		entries := string(r.Ask(t, "", "GET", "/v1/audit?kind=lookup&actor="+r.IDs[as], nil).Want(t, 200).Body)
		for _, action := range []string{"claim", "coupon.validate", "commands"} {
			if strings.Contains(entries, `"action":"`+action+`"`) != sees {
				t.Errorf("%s: %s: %s", as, action, entries)
			}
		}
	}
}
