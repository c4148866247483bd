package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
)

// TestCloneAndDiff: a clone has the settings of its source but those that are given; the same request again is a repeat. That of an
// ended campaign, whose end has passed, works once its times are given.
func TestCloneAndDiff(t *testing.T) {
	r := apitest.Shared(t)
	ends := time.Now().Add(2 * time.Second)
	from := r.Campaign(t, map[string]any{"codes": 7, "prefix": "SUN", "benefit": map[string]any{"percent": 10}, "per_customer": 0, "expires_at": ends.UTC()})
	r.Ask(t, "", "POST", "/v1/campaigns/"+from+"/end", nil).Want(t, 200)
	clone := func(as, key string, body map[string]any) *apitest.Response {
		t.Helper()
		return r.Ask(t, as, "POST", "/v1/campaigns/"+from+"/clone", body, "Idempotency-Key", key)
	}
	to := apitest.Name("clone")
	apitest.Until(t, "the end of the source has passed", func() bool {
		return clone("", apitest.Name("k"), map[string]any{"to": apitest.Name("clone")}).Status == 422
	})
	clone("", "early", map[string]any{"to": to}).Problem(t, 422, "invalid", "body.expires_at")
	for i, key := range []string{"one", "one", "two"} {
		made := clone("", key, map[string]any{"to": to, "valid_for": "72h", "codes": 9}).Want(t, 201)
		if made.Header.Get("ETag") == "" || (made.Header.Get("Idempotency-Replayed") == "true") != (i > 0) || made.Header.Get("Location") != "/v1/campaigns/"+to {
			t.Errorf("made with %v", made.Header)
		}
		if v := made.Object(t); v["campaign"] != to || v["codes"] != 9.0 || v["prefix"] != "SUN" || v["per_customer"] != 0.0 || v["expires_at"] != nil || v["status"] != "active" {
			t.Errorf("made %s", made.Body)
		}
	}
	var diff struct {
		Items []struct {
			Setting        string
			Campaign, With json.RawMessage
		}
	}
	r.Ask(t, "", "GET", "/v1/campaigns/"+from+"/diff?with="+to, nil).Want(t, 200).Into(t, &diff)
	text := ""
	for _, d := range diff.Items {
		text += fmt.Sprintf("%s %s %s; ", d.Setting, string(d.Campaign), string(d.With))
	}
	if want := fmt.Sprintf(`codes 7 9; expires_at "%s" ; valid_for  "72h"; `, ends.UTC().Truncate(time.Microsecond).Format(time.RFC3339Nano)); strings.Replace(text, "72h0m0s", "72h", 1) != want {
		t.Errorf("they differ in %s, want %s", text, want)
	}

	r.Key(t, "operator+"+from)
	for _, bad := range []struct {
		as     string
		body   map[string]any
		status int
		code   string
		at     string
	}{
		{"", map[string]any{"to": to, "expires_at": "2099-01-01T00:00:00Z"}, 409, "campaign_exists", ""},
		{"", map[string]any{"to": "no name"}, 422, "invalid", "body.to"},
		{"", map[string]any{"to": to, "colour": "blue"}, 400, "malformed", "body.colour"},
		{"", map[string]any{"to": to, "codes": nil, "expires_at": nil}, 422, "invalid", "body.codes"},
		{"operator+" + from, map[string]any{"to": to}, 403, "forbidden", ""},
	} {
		clone(bad.as, apitest.Name("k"), bad.body).Problem(t, bad.status, bad.code, bad.at)
	}
	r.Ask(t, "operator+"+from, "GET", "/v1/campaigns/"+from+"/diff?with="+to, nil).Problem(t, 403, "forbidden", "")
	r.Ask(t, "", "GET", "/v1/campaigns/"+from+"/diff?with=none", nil).Problem(t, 404, "campaign_not_found", "")
}
