package api_test

import (
	"net/http"
	"regexp"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestPagesOfOtherOrigins: a browser gets leave for the origins of public keys in force, a rotated one has those of the first, and a
// key is used by a page of none but its own before the request has an effect.
func TestPagesOfOtherOrigins(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 9})
	claims := "/v1/campaigns/" + c + "/claims"
	mine, elsewhere := "https://"+c+".example", "https://"+c+".example:8443"
	var made struct {
		ID, Secret string
		Origins    []string
	}
	r.Ask(t, "", "POST", "/v1/keys", map[string]any{"name": c, "role": "producer", "public": true, "origins": []string{mine}}).Want(t, 201)
	r.Ask(t, "", "POST", "/v1/keys/"+c+"/rotate", map[string]any{}).Want(t, 200).Into(t, &made)
	r.Keys["page"], r.IDs["page"] = made.Secret, made.ID
	r.Key(t, "producer+public")
	r.Key(t, "producer")
	preflight := func(method, path, origin string) *http.Response {
		t.Helper()
		req := r.Request(t, "-", "OPTIONS", path, nil, "Origin", origin, "Access-Control-Request-Method", method)
		resp, err := http.DefaultClient.Do(req)
		streamtest.Must(t, err)
		streamtest.Must(t, resp.Body.Close())
		return resp
	}
	apitest.Until(t, "the key is in force", func() bool { return preflight("POST", claims, mine).StatusCode == http.StatusNoContent })
	for _, w := range []struct {
		path, origin string
		status       int
		allowed      string
	}{
		{claims, mine, 204, mine}, {"/v1/validations", mine, 204, mine}, {claims, elsewhere, 403, ""}, {claims, "null", 403, ""}, {"/v1/redemptions", mine, 405, ""},
	} {
		got := preflight("POST", w.path, w.origin)
		if h := got.Header; got.StatusCode != w.status || h.Get("Access-Control-Allow-Origin") != w.allowed || w.status != 405 && h.Get("Vary") != "Origin" || (h.Get("Access-Control-Max-Age") != "") != (w.allowed != "") {
			t.Errorf("%s from %s: %d %v", w.path, w.origin, got.StatusCode, h)
		}
	}
	claim := func(as, origin string) *apitest.Response {
		return r.Ask(t, as, "POST", claims, map[string]any{"customer_id": as}, "Origin", origin)
	}
	claim("page", elsewhere).Problem(t, 403, "origin_not_allowed", "header.Origin")
	claim("producer+public", mine).Problem(t, 403, "origin_not_allowed", "header.Origin")
	if got := claim("page", mine).Want(t, 201).Header; got.Get("Access-Control-Allow-Origin") != mine || got.Get("Access-Control-Expose-Headers") == "" {
		t.Errorf("a claim has %v", got)
	}
	claim("producer+public", r.URL).Want(t, 201) // the server's own pages
	if got := claim("producer", mine).Want(t, 201).Header; got.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("a key that is not public: %v", got)
	}
	r.Ask(t, "", "DELETE", "/v1/keys/"+made.ID, nil).Want(t, 200)
	apitest.Until(t, "the key is over", func() bool { return preflight("POST", claims, mine).StatusCode == http.StatusForbidden })
}

// TestForeignPagesChangeNothing: a browser adds Basic credentials to forms of any page, so no route that a form can
// reach takes them from a page of another origin.
func TestForeignPagesChangeNothing(t *testing.T) {
	r := apitest.Shared(t)
	wildcard := regexp.MustCompile(`\{[^}]*\}`)
	walked := 0
	for _, route := range api.New(http.NewServeMux(), api.Options{}).Routes() {
		if route.Method == http.MethodGet || route.Operation == access.NoOperation {
			continue
		}
		walked++
		path := wildcard.ReplaceAllString(route.Path, "x")
		for _, header := range [][]string{{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, {"Origin", "null"}, {"Sec-Fetch-Site", "same-site"}} {
			r.Ask(t, "", route.Method, path, nil, header...).Problem(t, 403, "origin_not_allowed", "header.Origin")
		}
	}
	if walked < 30 {
		t.Errorf("only %d routes change something", walked)
	}
	c := r.Campaign(t, map[string]any{"codes": 1})
	r.Ask(t, "-", "POST", "/v1/campaigns/"+c+"/pause", nil, "Origin", "https://evil.example").Problem(t, 403, "origin_not_allowed", "header.Origin")
	r.Ask(t, "", "POST", "/v1/campaigns/"+c+"/pause", nil, "Origin", r.URL, "Sec-Fetch-Site", "same-origin").Want(t, 200)
	r.Key(t, "operator")
	r.Ask(t, "operator", "POST", "/v1/campaigns/"+c+"/resume", nil, "Origin", "https://ours.example", "Sec-Fetch-Site", "cross-site").Want(t, 200)
	r.Ask(t, "", "GET", "/v1/campaigns/"+c, nil, "Sec-Fetch-Site", "cross-site").Want(t, 200)
}
