package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
)

// TestCampaigns: a campaign from its creation to its end, with what repeats, and the ETag that only changes of settings and
// status change.
func TestCampaigns(t *testing.T) {
	r := apitest.Shared(t)
	c := apitest.Name("c")
	body := map[string]any{"campaign": c, "codes": 10, "category": "food", "expires_at": "2099-01-01T00:00:00Z"}
	made := r.Ask(t, "", "POST", "/v1/campaigns", body, "Idempotency-Key", "k1").Want(t, 201)
	if made.Header.Get("Location") != "/v1/campaigns/"+c || made.Header.Get("Idempotency-Replayed") != "" || made.Header.Get("Scrip-Command-Id") == "" || made.Header.Get("Cache-Control") != "no-store" {
		t.Error(made.Header)
	}
	again := r.Ask(t, "", "POST", "/v1/campaigns", body, "Idempotency-Key", "k1").Want(t, 200)
	if string(again.Body) != string(made.Body) || again.Header.Get("Idempotency-Replayed") != "true" || again.Header.Get("Scrip-Command-Id") != made.Header.Get("Scrip-Command-Id") {
		t.Errorf("%s, %v", again.Body, again.Header)
	}
	body["codes"] = 11
	r.Ask(t, "", "POST", "/v1/campaigns", body, "Idempotency-Key", "k1").Problem(t, 422, "idempotency_key_reused", "")
	r.Ask(t, "", "POST", "/v1/campaigns", body).Problem(t, 409, "campaign_exists", "")

	path := "/v1/campaigns/" + c
	got := r.Ask(t, "", "GET", path, nil).Want(t, 200)
	etag := got.Header.Get("ETag")
	if v := got.Object(t); v["codes"] != 10.0 || v["status"] != "active" || v["category"] != "food" || etag != `"`+v["version"].(string)+`"` || etag != made.Header.Get("ETag") {
		t.Errorf("%s %s", got.Body, etag)
	}
	r.Claim(t, c, "ann")
	if now := r.Ask(t, "", "GET", path, nil); now.Header.Get("ETag") != etag || now.Object(t)["claimed"] != 1.0 {
		t.Errorf("after a claim: %s %s", now.Header.Get("ETag"), now.Body)
	}

	// Two people with the same version: the second is refused, by the lane.
	r.Ask(t, "", "PATCH", path, map[string]any{"category": "toys"}, "If-Match", etag).Want(t, 200)
	r.Ask(t, "", "PATCH", path, map[string]any{"category": "books"}, "If-Match", etag).Problem(t, 412, "version_mismatch", "")
	if v := r.Ask(t, "", "GET", path, nil).Object(t); v["category"] != "toys" {
		t.Errorf("%v", v)
	}
	// A retry of the first is a repeat, and of a key that had other settings it is no success.
	if repeat := r.Ask(t, "", "PATCH", path, map[string]any{"category": "toys"}, "If-Match", etag).Want(t, 200); repeat.Header.Get("Idempotency-Replayed") != "true" {
		t.Error(repeat.Header)
	}
	r.Ask(t, "", "PATCH", path, map[string]any{"category": "a"}, "If-Match", "*", "Idempotency-Key", "k2").Want(t, 200)
	r.Ask(t, "", "PATCH", path, map[string]any{"category": "b"}, "If-Match", "*", "Idempotency-Key", "k2").Problem(t, 409, "outdated", "")
	if v := r.Ask(t, "", "PATCH", path, map[string]any{"category": nil, "per_customer": nil}, "If-Match", "*").Want(t, 200).Object(t); v["category"] != nil {
		t.Errorf("null: %v", v)
	}

	for _, turn := range []struct{ verb, status string }{{"pause", "paused"}, {"pause", "paused"}, {"resume", "active"}, {"end", "ended"}} {
		if v := r.Ask(t, "", "POST", path+"/"+turn.verb, nil).Want(t, 200).Object(t); v["status"] != turn.status {
			t.Errorf("%s: %v", turn.verb, v)
		}
	}
	r.Ask(t, "", "POST", path+"/resume", nil).Problem(t, 409, "campaign_ended", "")
	r.Ask(t, "", "POST", path+"/resume", nil, "If-Match", etag).Problem(t, 409, "campaign_ended", "")
	r.Ask(t, "", "GET", "/v1/campaigns/none", nil).Problem(t, 404, "campaign_not_found", "")
}

// TestListOfCampaigns: all of them, page by page, and those of a key that is limited to some.
func TestListOfCampaigns(t *testing.T) {
	r := apitest.Shared(t)
	var all []string
	for range 5 {
		all = append(all, r.Campaign(t, map[string]any{"codes": 1}))
	}
	slices.Sort(all)
	pages := func(as string) (names []string) {
		for after := ""; ; {
			var page struct {
				Items []struct{ Campaign string }
				Next  string
			}
			r.Ask(t, as, "GET", "/v1/campaigns?limit=2&after="+after, nil).Want(t, 200).Into(t, &page)
			if len(page.Items) > 2 {
				t.Fatalf("%d campaigns on a page", len(page.Items))
			}
			for _, c := range page.Items {
				names = append(names, c.Campaign)
			}
			if after = page.Next; after == "" {
				return names
			}
		}
	}
	listed := pages("")
	if !slices.IsSorted(listed) || len(slices.Compact(slices.Clone(listed))) != len(listed) {
		t.Errorf("not each once, in order: %v", listed)
	}
	for _, c := range all {
		if !slices.Contains(listed, c) {
			t.Errorf("%v, without %s", listed, c)
		}
	}
	limited := "support+" + all[3] + "," + all[1] + "," + all[0] + ",none"
	r.Key(t, limited)
	if got := pages(limited); strings.Join(got, " ") != all[0]+" "+all[1]+" "+all[3] {
		t.Errorf("%v", got)
	}
	r.Ask(t, limited, "GET", "/v1/campaigns/"+all[1], nil).Want(t, 200)
	r.Ask(t, limited, "GET", "/v1/campaigns/"+all[2], nil).Problem(t, http.StatusForbidden, "forbidden", "")
}

// TestBadRequests: each is answered with the place of what is wrong, and has no effect.
func TestBadRequests(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 3})
	path := "/v1/campaigns/" + c
	star := []string{"If-Match", "*"}
	line := `{"id":"a","type":"claim","campaign":"` + c + `","customer_id":"ann"}`
	apitest.Until(t, "the tables that dead letters are read from exist", func() bool {
		return r.Ask(t, "", "GET", "/v1/status", nil).Want(t, 200).Object(t)["dead_letters"] != nil
	})
	for what, b := range map[string]struct {
		method, path   string
		body           any
		header         []string
		status         int
		code, location string
	}{
		"no JSON":                {"POST", "/v1/campaigns", `{"campaign"`, nil, 400, "malformed", "body"},
		"no object":              {"POST", "/v1/campaigns", `[]`, nil, 400, "malformed", "body"},
		"no body":                {"POST", "/v1/campaigns", nil, nil, 400, "malformed", ""},
		"an unknown field":       {"POST", "/v1/campaigns", `{"campaign":"x","codes":1,"colour":1}`, nil, 400, "malformed", "body.colour"},
		"another case":           {"POST", "/v1/campaigns", `{"campaign":"x","codes":1,"Prefix":"A"}`, nil, 400, "malformed", "body.Prefix"},
		"an id in the body":      {"POST", "/v1/campaigns", `{"campaign":"x","codes":1,"id":"a"}`, nil, 400, "malformed", "body.id"},
		"a missing field":        {"POST", "/v1/campaigns", `{"codes":1}`, nil, 400, "malformed", "body.campaign"},
		"a wrong type":           {"POST", "/v1/campaigns", `{"campaign":"x","codes":"1"}`, nil, 422, "invalid", "body.codes"},
		"a number below":         {"POST", "/v1/campaigns", `{"campaign":"x","codes":-1}`, nil, 422, "invalid", "body.codes"},
		"a bad name":             {"POST", "/v1/campaigns", `{"campaign":"a b","codes":1}`, nil, 422, "invalid", "body.campaign"},
		"an end that is past":    {"POST", "/v1/campaigns", `{"campaign":"x","codes":1,"expires_at":"2001-01-01T00:00:00Z"}`, nil, 422, "invalid", ""},
		"a bad time":             {"POST", "/v1/campaigns", `{"campaign":"x","codes":1,"expires_at":"tomorrow"}`, nil, 422, "invalid", "body.expires_at"},
		"a bad duration":         {"POST", "/v1/campaigns", `{"campaign":"x","codes":1,"valid_for":"1 day"}`, nil, 422, "invalid", "body.valid_for"},
		"a large body":           {"POST", "/v1/campaigns", `{"campaign":"x","codes":1,"category":"` + strings.Repeat("x", 20<<10) + `"}`, nil, 413, "too_large", ""},
		"another media type":     {"POST", "/v1/campaigns", `campaign=x`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "wrong_media_type", ""},
		"an empty key":           {"POST", path + "/pause", nil, []string{"Idempotency-Key", "ü"}, 422, "invalid", "header.Idempotency-Key"},
		"a long key":             {"POST", path + "/pause", nil, []string{"Idempotency-Key", strings.Repeat("x", 256)}, 422, "invalid", "header.Idempotency-Key"},
		"no If-Match":            {"PATCH", path, `{"codes":4}`, nil, 428, "condition_required", "header.If-Match"},
		"a weak ETag":            {"PATCH", path, `{"codes":4}`, []string{"If-Match", `W/"a"`}, 400, "malformed", "header.If-Match"},
		"two ETags":              {"PATCH", path, `{"codes":4}`, []string{"If-Match", `"a", "b"`}, 400, "malformed", "header.If-Match"},
		"another version":        {"PATCH", path, `{"codes":4}`, []string{"If-Match", `"0123456789abcdef"`}, 412, "version_mismatch", ""},
		"nothing to change":      {"PATCH", path, `{}`, star, 422, "invalid", "body"},
		"fewer codes":            {"PATCH", path, `{"codes":2}`, star, 422, "invalid", ""},
		"codes null":             {"PATCH", path, `{"codes":null}`, star, 422, "invalid", "body.codes"},
		"a bad path":             {"GET", "/v1/campaigns/a%20b", nil, nil, 422, "invalid", "path.campaign"},
		"an unknown parameter":   {"GET", "/v1/campaigns?page=2", nil, nil, 400, "malformed", "query.page"},
		"one of a stream":        {"POST", path + "/codes?dry_run=1", "GOOD-1\n", []string{"Content-Type", "text/csv"}, 400, "malformed", "query.dry_run"},
		"one of many commands":   {"POST", "/v1/commands?dry_run=1", line, []string{"Content-Type", "application/x-ndjson"}, 400, "malformed", "query.dry_run"},
		"a limit above":          {"GET", "/v1/campaigns?limit=1001", nil, nil, 422, "invalid", "query.limit"},
		"a limit of letters":     {"GET", "/v1/campaigns?limit=many", nil, nil, 422, "invalid", "query.limit"},
		"a cursor of its own":    {"GET", "/v1/campaigns?after=x", nil, nil, 422, "invalid", "query.after"},
		"no criterion":           {"GET", "/v1/coupons", nil, nil, 422, "invalid", "query.campaign"},
		"two criteria":           {"POST", "/v1/coupons/search", `{"code":"a","order_id":"b"}`, nil, 422, "invalid", "body"},
		"a code that is none":    {"POST", "/v1/coupons/search", `{"code":"x"}`, nil, 404, "code_not_found", ""},
		"void of nothing":        {"POST", "/v1/coupons/void", `{}`, nil, 400, "malformed", "body.code"},
		"extend to the past":     {"POST", "/v1/coupons/extend", `{"code":"AAAA-AAAA-AAAA","expires_at":"2001-01-01T00:00:00Z"}`, nil, 404, "code_not_found", ""},
		"a kind that is none":    {"POST", path + "/reminders", `{"customer_id":"ann","kind":"never","before":"1h"}`, nil, 422, "invalid", "body.kind"},
		"no kind":                {"POST", path + "/reminders", `{"customer_id":"ann","before":"1h"}`, nil, 400, "malformed", "body.kind"},
		"a lead time below":      {"DELETE", path + "/reminders/ann/expires/-1h", nil, nil, 422, "invalid", "path.before"},
		"a setting that is none": {"PATCH", "/v1/settings", `{"settings":{"colour":"red"}}`, []string{"If-Match", "*"}, 422, "invalid", "body.settings.colour"},
		"a value out of bounds":  {"PATCH", "/v1/settings", `{"settings":{"reminder.batch":0}}`, []string{"If-Match", "*"}, 422, "invalid", "body.settings.reminder.batch"},
		"a pause of none":        {"PATCH", "/v1/settings", `{"settings":{"reminder.pause":{"none":true}}}`, []string{"If-Match", "*"}, 404, "campaign_not_found", ""},
		"no dead letter":         {"POST", "/v1/dead-letters/retry", `{"id":"SCRIP_CMD_0.12.3"}`, nil, 404, "not_found", "body.id"},
		"no id":                  {"POST", "/v1/dead-letters/retry", `{"id":"12"}`, nil, 422, "invalid", "body.id"},
		"a role that is none":    {"POST", "/v1/keys", `{"name":"x","role":"king"}`, nil, 422, "invalid", "body.role"},
		"no such key":            {"DELETE", "/v1/keys/none", nil, nil, 404, "not_found", ""},
		"types that are none":    {"GET", "/v1/events?types=coupon.eaten", nil, nil, 422, "invalid", "query.types"},
		"an event's cursor":      {"GET", "/v1/events?after=AAAA", nil, nil, 422, "invalid", "query.after"},
		"no CSV":                 {"POST", path + "/codes", `{}`, nil, 415, "wrong_media_type", "header.Content-Type"},
		"codes of generated":     {"POST", path + "/codes", "code\nABC", []string{"Content-Type", "text/csv"}, 422, "invalid", ""},
		"an export of none":      {"GET", "/v1/campaigns/none/codes", nil, nil, 404, "campaign_not_found", ""},
		"no route":               {"GET", "/v1/none", nil, nil, 404, "not_found", ""},
		"another method":         {"PUT", "/v1/campaigns", `{}`, nil, 405, "method_not_allowed", ""},
	} {
		t.Run(what, func(t *testing.T) {
			r.Ask(t, "", b.method, b.path, b.body, b.header...).Problem(t, b.status, b.code, b.location)
		})
	}
	if v := r.Ask(t, "", "GET", path, nil).Object(t); v["codes"] != 3.0 || v["claimed"] != 0.0 || v["status"] != "active" {
		t.Errorf("a bad request had an effect: %v", v)
	}
}
