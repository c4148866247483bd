package api_test

import (
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
)

// TestRequestIDs: the one that a client sends is in the answer, in the events that the request caused, in the history and in the
// audit stream. Without one the answer has that of the command, and events have none.
func TestRequestIDs(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 9})
	r.Key(t, "producer")
	send := func(path, body string, header ...string) *apitest.Response {
		return r.Ask(t, "producer", "POST", path, body, header...)
	}
	claims := "/v1/campaigns/" + c + "/claims"
	own := send(claims, `{"customer_id":"ann"}`, "X-Request-Id", "page 1").Want(t, 201)
	none := send(claims, `{"customer_id":"bob"}`).Want(t, 201)
	if own.Header.Get("X-Request-Id") != "page 1" || none.Header.Get("X-Request-Id") != none.Header.Get("Scrip-Command-Id") {
		t.Errorf("%v, %v", own.Header, none.Header)
	}
	send("/v1/commands", `{"id":"`+c+`1","type":"claim","campaign":"`+c+`","customer_id":"cy"}`+"\n"+`{"id":"`+c+`2","type":"claim","campaign":"`+c+`","customer_id":"dee","request_id":"its own"}`,
		"X-Request-Id", "page 2", "Content-Type", "application/x-ndjson").Want(t, 200)
	send(claims, `{"customer_id":"eve","request_id":"x"}`).Problem(t, 400, "malformed", "body.request_id")
	refused := send("/v1/redemptions", `{"campaign":"`+c+`","code":"AAAA-AAAA-AAAA","order_id":"o"}`, "X-Request-Id", "page 3")
	if refused.Want(t, 404); refused.Object(t)["request_id"] != "page 3" {
		t.Errorf("%s", refused.Body)
	}
	found := map[string]string{}
	apitest.Until(t, "all claims are read", func() bool {
		lines, _ := events(t, r, "", "campaign="+c+"&types=coupon.claimed")
		for _, l := range lines {
			found[l.Customer_ID] = l.Request_ID
		}
		return len(lines) == 4
	})
	if found["ann"] != "page 1" || found["bob"] != "" || found["cy"] != "page 2" || found["dee"] != "its own" {
		t.Errorf("events have %v", found)
	}
	apitest.Until(t, "the history has it", func() bool {
		return strings.Contains(string(r.Ask(t, "", "GET", "/v1/customers/ann?history=1&limit=1000", nil).Want(t, 200).Body), `"request_id":"page 1"`)
	})
	made := r.Ask(t, "", "POST", "/v1/keys", map[string]any{"name": c, "role": "sender"}).Want(t, 201).Header.Get("X-Request-Id")
	if audit := string(r.Ask(t, "", "GET", "/v1/audit?kind=keys&limit=10", nil).Want(t, 200).Body); !strings.Contains(audit, `"request_id":"`+made+`"`) {
		t.Errorf("%s is not in %s", made, audit)
	}
}
