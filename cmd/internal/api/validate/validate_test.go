package validate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api/apitest"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
)

func TestMain(m *testing.M) { os.Exit(projtest.Main(m)) }

// document is what the server serves.
func document(t *testing.T, r *apitest.Rig, path string) []byte {
	t.Helper()
	return r.Ask(t, "-", "GET", path, nil).Want(t, 200).Body
}

func validate(t *testing.T, raw []byte) validator.Validator {
	t.Helper()
	doc, err := libopenapi.NewDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	v, errs := validator.NewValidator(doc)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return v
}

// closed is the document with answers that may have the fields it lists and no others.
func closed(t *testing.T, raw []byte) []byte {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	for name, schema := range doc["components"].(map[string]any)["schemas"].(map[string]any) {
		s := schema.(map[string]any)
		if _, object := s["properties"]; object && name != "EventLine" { // whose fields depend on its type
			s["additionalProperties"] = false
		}
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// call is one request of the journey.
type call struct {
	id, as, method, path string
	body                 any
	header               []string
	status               int
}

// TestAnswersMatchTheDocument sends a request of every operation, and some that are refused, and validates document, requests
// and answers.
func TestAnswersMatchTheDocument(t *testing.T) {
	r := apitest.Serve(t)
	raw := document(t, r, "/v1/openapi.json")
	strict, loose := validate(t, closed(t, raw)), validate(t, raw)
	if ok, errs := loose.ValidateDocument(); !ok {
		for _, e := range errs {
			t.Errorf("the document: %s: %s %v", e.Message, e.Reason, e.SchemaValidationErrors)
		}
	}
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct{ OperationID string }
	}
	if err := json.Unmarshal(raw, &doc); err != nil || doc.OpenAPI != "3.1.0" {
		t.Fatal(doc.OpenAPI, err)
	}

	generated := r.Campaign(t, map[string]any{"codes": 9, "benefit": map[string]any{"off": 5}})
	imported := r.Campaign(t, map[string]any{"codes": 0})
	waiting := r.Campaign(t, map[string]any{"codes": 9, "opens_at": "2098-01-01T00:00:00Z"})
	codes := []string{r.Claim(t, generated, "ann"), r.Claim(t, generated, "bob")}
	r.Redeem(t, codes[0], "o1")
	if err := r.Shop.Conn().Publish("scrip.cmd."+generated, []byte(`{"id":"bad-1","type":"claim","customer":"ann"}`)); err != nil {
		t.Fatal(err)
	}
	letter := ""
	apitest.Until(t, "the tables have all", func() bool {
		var list struct{ Dead_Letters []struct{ ID string } }
		r.Ask(t, "", "GET", "/v1/dead-letters", nil).Want(t, 200).Into(t, &list)
		if len(list.Dead_Letters) == 0 {
			return false
		}
		letter = list.Dead_Letters[0].ID
		return strings.Contains(string(r.Ask(t, "", "GET", "/v1/coupons?order=o1", nil).Body), codes[0])
	})
	etag := r.Ask(t, "", "GET", "/v1/campaigns/"+generated, nil).Header.Get("ETag")
	of := "/v1/campaigns/" + generated
	r.Key(t, "producer")
	// Its address is inside, so nothing leaves this machine.
	endpoint := map[string]any{"url": "https://127.0.0.1/", "types": []string{"reminder.due"}}
	var hook struct{ Webhook struct{ ID string } }
	made := r.Ask(t, "", "POST", "/v1/webhooks", endpoint).Want(t, 201)
	made.Into(t, &hook)
	hooks := "/v1/webhooks/" + hook.Webhook.ID

	calls := []call{
		{"listCampaigns", "", "GET", "/v1/campaigns?limit=1", nil, nil, 200},
		{"createCampaign", "", "POST", "/v1/campaigns", map[string]any{"campaign": "made", "codes": 3, "valid_for": "720h", "priority": "high"}, []string{"Idempotency-Key", "c"}, 201},
		{"createCampaign", "", "POST", "/v1/campaigns", map[string]any{"campaign": "made", "codes": 3, "valid_for": "720h", "priority": "high"}, []string{"Idempotency-Key", "c"}, 200},
		{"getCampaign", "", "GET", of, nil, nil, 200},
		{"getCampaign", "", "GET", "/v1/campaigns/none", nil, nil, 404},
		{"updateCampaign", "", "PATCH", of, map[string]any{"category": "food", "late_after": "1h"}, []string{"If-Match", etag}, 200},
		{"updateCampaign", "", "PATCH", of, map[string]any{"category": "toys"}, []string{"If-Match", etag}, 412},
		{"pauseCampaign", "", "POST", of + "/pause", nil, nil, 200},
		{"resumeCampaign", "", "POST", of + "/resume", nil, nil, 200},
		{"endCampaign", "", "POST", "/v1/campaigns/made/end", nil, nil, 200},
		{"listCoupons", "", "GET", "/v1/coupons?customer=ann", nil, nil, 200},
		{"listCoupons", "", "GET", "/v1/coupons?order=o1", nil, nil, 200},
		{"searchCoupons", "", "POST", "/v1/coupons/search", map[string]any{"code": codes[0]}, nil, 200},
		{"voidCoupon", "", "POST", "/v1/coupons/void", map[string]any{"code": codes[1], "reason": "stolen"}, nil, 200},
		{"extendCoupon", "", "POST", "/v1/coupons/extend", map[string]any{"code": codes[0], "expires_at": "2099-01-01T00:00:00Z"}, nil, 200},
		{"getCustomer", "", "GET", "/v1/customers/ann", nil, nil, 200},
		{"setReminder", "", "PUT", "/v1/campaigns/" + waiting + "/reminders/ann?kind=opens&before=24h", nil, nil, 200},
		{"cancelReminder", "", "DELETE", "/v1/campaigns/" + waiting + "/reminders/ann?kind=opens&before=24h", nil, nil, 200},
		{"importCodes", "", "POST", "/v1/campaigns/" + imported + "/codes", "code\nAAAA\nx\nBBBB\n", []string{"Content-Type", "text/csv"}, 200},
		{"exportCoupons", "", "GET", of + "/coupons.csv?csv=excel", nil, nil, 200},
		{"readEvents", "", "GET", "/v1/events?types=coupon.claimed", nil, nil, 200},
		{"getStatus", "", "GET", "/v1/status", nil, nil, 200},
		{"getSettings", "", "GET", "/v1/settings", nil, nil, 200},
		{"changeSettings", "", "PATCH", "/v1/settings", map[string]any{"reminder.batch": "100"}, nil, 200},
		{"listDeadLetters", "", "GET", "/v1/dead-letters?state=all", nil, nil, 200},
		{"retryDeadLetter", "", "POST", "/v1/dead-letters/retry", map[string]any{"id": letter, "lines": []string{`{"id":"bad-1","type":"claim","campaign":"` + generated + `","customer_id":"cy"}`}}, nil, 200},
		{"retryDeadLetter", "", "POST", "/v1/dead-letters/retry", map[string]any{"id": "SCRIP_CMD_0/9999/1"}, nil, 404},
		{"createKey", "", "POST", "/v1/keys", map[string]any{"name": "journey", "role": "support"}, nil, 201},
		{"rotateKey", "", "POST", "/v1/keys/journey/rotate", map[string]any{}, nil, 201},
		{"listKeys", "", "GET", "/v1/keys", nil, nil, 200},
		{"revokeKey", "", "DELETE", "/v1/keys/journey", nil, nil, 200},
		{"createWebhook", "", "POST", "/v1/webhooks", map[string]any{"url": "https://127.0.0.1/", "types": []string{"campaign.*"}, "campaigns": []string{generated}, "codes": true}, nil, 201},
		{"createWebhook", "", "POST", "/v1/webhooks", map[string]any{"url": "ftp://x", "types": []string{"coupon.*"}}, nil, 422},
		{"listWebhooks", "", "GET", "/v1/webhooks", nil, nil, 200},
		{"getWebhook", "", "GET", hooks, nil, nil, 200},
		{"updateWebhook", "", "PATCH", hooks, map[string]any{"rate": 9, "campaigns": []string{}}, []string{"If-Match", made.Header.Get("ETag")}, 200},
		{"updateWebhook", "", "PATCH", hooks, map[string]any{"rate": 9}, []string{"If-Match", made.Header.Get("ETag")}, 412},
		{"testWebhook", "", "POST", hooks + "/test", nil, nil, 200},
		{"pauseWebhook", "", "POST", hooks + "/pause", nil, nil, 200},
		{"resumeWebhook", "", "POST", hooks + "/resume", nil, nil, 200},
		{"rotateWebhook", "", "POST", hooks + "/rotate", nil, nil, 200},
		{"replayWebhook", "", "POST", hooks + "/replay", map[string]any{"from": "2026-01-01T00:00:00Z"}, nil, 200},
		{"listWebhookDeadLetters", "", "GET", hooks + "/dead-letters", nil, nil, 200},
		{"retryWebhookDeadLetters", "", "POST", hooks + "/dead-letters/retry", nil, nil, 200},
		{"deleteWebhook", "", "DELETE", hooks, nil, nil, 200},
		{"readAudit", "", "GET", "/v1/audit", nil, nil, 200},
		{"readPage", "-", "GET", "/v1", nil, nil, 200},
		{"readDocument", "-", "GET", "/v1/openapi.json", nil, nil, 200},
		{"readDocumentYAML", "-", "GET", "/v1/openapi.yaml", nil, nil, 200},
		{"readOlderDocument", "-", "GET", "/v1/openapi-3.0.json", nil, nil, 200},
		{"getStatus", "-", "GET", "/v1/status", nil, nil, 401},
		{"getStatus", "producer", "GET", "/v1/status", nil, nil, 403},
	}
	calls = append(calls,
		call{"claim", "", "POST", of + "/claims", map[string]any{"customer_id": "dee", "attributes": map[string]any{"shop": "bonn"}}, []string{"Idempotency-Key", "d"}, 201},
		call{"claim", "", "POST", of + "/claims", map[string]any{"customer_id": "dee", "attributes": map[string]any{"shop": "bonn"}}, []string{"Idempotency-Key", "d"}, 200},
		call{"claim", "", "POST", "/v1/campaigns/none/claims", map[string]any{"customer_id": "dee"}, nil, 404},
		call{"rollback", "", "POST", "/v1/rollbacks", map[string]any{"code": codes[0], "order_id": "o1"}, nil, 201},
		call{"sendCommands", "", "POST", "/v1/commands", `{"id":"l1","type":"claim","campaign":"` + generated + `","customer_id":"eve"}` + "\n", []string{"Content-Type", "application/x-ndjson"}, 200},
		call{"validate", "", "POST", "/v1/validations", map[string]any{"code": codes[0]}, nil, 200},
		call{"redeem", "", "POST", "/v1/redemptions", map[string]any{"code": codes[0], "order_id": "o2"}, nil, 201},
		call{"redeem", "", "POST", "/v1/redemptions", map[string]any{"code": codes[0], "order_id": "o3"}, nil, 409},
	)
	called := map[string]bool{}
	for _, c := range calls {
		called[c.id] = true
		c.check(t, r, loose, strict)
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if !called[op.OperationID] {
				t.Errorf("%s %s (%s) is not called here", strings.ToUpper(method), path, op.OperationID)
			}
		}
	}
}

// check sends the request and validates both ways: the request and the answer by the document, and the answer by the strict
// one, where the answer is JSON.
func (c *call) check(t *testing.T, r *apitest.Rig, loose, strict validator.Validator) {
	t.Helper()
	if c.as == "" {
		c.as = "operator+codes"
		r.Key(t, c.as)
	}
	got := r.Ask(t, c.as, c.method, c.path, c.body, c.header...)
	what := fmt.Sprintf("%s (%s)", got.What, c.id)
	if got.Status != c.status {
		t.Errorf("%s: %d, want %d: %s", what, got.Status, c.status, got.Body)
		return
	}
	req := r.Request(t, c.as, c.method, c.path, c.body, c.header...)
	media := got.Header.Get("Content-Type")
	bodies := [][]byte{got.Body}
	if strings.HasPrefix(media, "application/x-ndjson") { // the schema is of each line
		bodies = bytes.Split(bytes.TrimSpace(got.Body), []byte("\n"))
	}
	for _, body := range bodies {
		for name, v := range map[string]validator.Validator{"the document": loose, "its listed fields": strict} {
			resp := &http.Response{StatusCode: got.Status, Header: got.Header.Clone(), Body: io.NopCloser(bytes.NewReader(body)), Request: req}
			if len(bodies) > 1 {
				resp.Header.Set("Content-Type", "application/x-ndjson")
			}
			if ok, errs := v.ValidateHttpResponse(req, resp); !ok {
				for _, e := range errs {
					t.Errorf("%s: the answer does not match %s: %s: %s %v\n%s", what, name, e.Message, e.Reason, e.SchemaValidationErrors, body)
				}
			}
		}
	}
	if c.status < 300 && c.as != "-" {
		if ok, errs := loose.ValidateHttpRequest(r.Request(t, c.as, c.method, c.path, c.body, c.header...)); !ok {
			for _, e := range errs {
				t.Errorf("%s: the request does not match the document: %s: %s %v", what, e.Message, e.Reason, e.SchemaValidationErrors)
			}
		}
	}
}
