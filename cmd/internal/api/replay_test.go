package api_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
)

// unsafe are requests of each route that changes something, but of actions, in an order in which each has what it needs.
const unsafe = `
POST /v1/campaigns {"campaign":"$c","codes":9}
PATCH /v1/campaigns/{campaign} {"category":"x"}
POST /v1/campaigns/{campaign}/pause
POST /v1/campaigns/{campaign}/resume
POST /v1/campaigns/{campaign}/claims {"customer_id":"ann"}
POST /v1/redemptions {"campaign":"$c","n":1,"order_id":"o"}
POST /v1/rollbacks {"campaign":"$c","n":1,"order_id":"o"}
POST /v1/coupons/extend {"campaign":"$c","n":1,"expires_at":"2099-01-01T00:00:00Z"}
POST /v1/campaigns/{campaign}/reminders {"customer_id":"ann","kind":"expires","before":"1h"}
DELETE /v1/campaigns/{campaign}/reminders/{customer_id}/{kind}/{before}
POST /v1/coupons/void {"campaign":"$c","n":1}
POST /v1/campaigns/{campaign}/allotments {"count":1,"batch":"b"}
POST /v1/commands {"id":"$c-1","type":"claim","campaign":"$c","customer_id":"bob"}
POST /v1/campaigns/{campaign}/end
`

// TestEveryUnsafeRouteReplays: the same request with the same Idempotency-Key again has no second effect, and the answer has
// Idempotency-Replayed. That of actions is in TestEveryActionThroughEveryDoor.
func TestEveryUnsafeRouteReplays(t *testing.T) {
	r := apitest.Shared(t)
	c, used := apitest.Name("again"), map[string]bool{"POST /v1/campaigns/{campaign}/codes": true} // whose answer is a stream
	for line := range strings.Lines(strings.TrimSpace(unsafe)) {
		part := append(strings.Fields(line), "")
		used[part[0]+" "+part[1]] = true
		path := strings.NewReplacer("{campaign}", c, "{customer_id}", "ann", "{kind}", "expires", "{before}", "1h").Replace(part[1])
		header := []string{"Idempotency-Key", c + line}
		if header[1] = strings.TrimSpace(header[1]); part[0] == "PATCH" {
			header = append(header, "If-Match", "*")
		}
		if path == "/v1/commands" {
			header = append(header, "Content-Type", "application/x-ndjson")
		}
		var body any
		if part[2] != "" {
			body = strings.ReplaceAll(part[2], "$c", c)
		}
		first := r.Ask(t, "", part[0], path, body, header...).Want(t, 200, 201)
		again := r.Ask(t, "", part[0], path, body, header...).Want(t, 200)
		strip := func(b []byte) []byte { return bytes.Replace(b, []byte(`,"repeat":true`), nil, 1) }
		if again.Header.Get("Idempotency-Replayed") != "true" || !bytes.Equal(strip(again.Body), strip(first.Body)) {
			t.Errorf("%s again: %v %s, want %s", line, again.Header, again.Body, first.Body)
		}
	}
	other := map[string]any{"name": apitest.Name("x"), "role": "sender"}
	r.Ask(t, "", "POST", "/v1/keys", other, "Idempotency-Key", "x").Want(t, 201)
	other["role"] = "support"
	r.Ask(t, "", "POST", "/v1/keys", other, "Idempotency-Key", "x").Problem(t, 422, "idempotency_key_reused", "")
	for _, route := range api.New(http.NewServeMux(), api.Options{}).Routes() {
		if route.Unsafe() && route.Action == "" && !used[route.Method+" "+route.Path] {
			t.Errorf("the table above has no request of %s %s", route.Method, route.Path)
		}
	}
}
