package api_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestDoor: a browser gets in by a link, once, and to the pages only; under a prefix all is found with it and without.
func TestDoor(t *testing.T) {
	const prefix = "/shop/coupons"
	r := apitest.Serve(t, func(o *server.Options) { o.HTTPPrefix = prefix })
	jar, err := cookiejar.New(nil)
	streamtest.Must(t, err)
	browser := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	visit := func(method, path string, status int, to string, header ...string) *http.Response {
		t.Helper()
		req := r.Request(t, "-", method, path, nil, header...)
		if host := req.Header.Get("Host"); host != "" {
			req.Host = host
		}
		resp, err := browser.Do(req)
		streamtest.Must(t, err)
		streamtest.Must(t, resp.Body.Close())
		if resp.StatusCode != status || resp.Header.Get("Location") != to {
			t.Errorf("%s %s %q: %d, Location %q; want %d, %q", method, path, header, resp.StatusCode, resp.Header.Get("Location"), status, to)
		}
		return resp
	}
	visit("GET", prefix, 308, prefix+"/")
	visit("GET", prefix+"/campaigns?after=x", 303, prefix+"/login?to=%2Fcampaigns%3Fafter%3Dx")
	visit("GET", "/campaigns", 303, prefix+"/login?to=%2Fcampaigns")
	visit("GET", prefix+"/healthz", 200, "")
	visit("GET", "/healthz", 200, "")
	visit("GET", prefix+"x/healthz", 303, prefix+"/login?to=%2Fshop%2Fcouponsx%2Fhealthz")
	visit("GET", prefix+"//healthz", 404, "")

	r.Key(t, "support")
	link := r.Ask(t, "support", "POST", "/v1/logins", map[string]any{}).Want(t, 201).Object(t)["path"].(string)
	r.Key(t, "producer")
	r.Ask(t, "producer", "POST", "/v1/logins", map[string]any{}).Problem(t, 403, "forbidden", "")
	visit("HEAD", prefix+link, 200, "")
	if got := visit("GET", prefix+link, 303, prefix+"/").Cookies(); len(got) != 1 || !got[0].HttpOnly {
		t.Errorf("cookies: %v", got)
	}
	visit("GET", prefix+"/campaigns", 200, "")
	visit("GET", "/campaigns", 200, "")
	visit("GET", prefix+link, 401, "")
	link = r.Ask(t, "support", "POST", "/v1/logins", map[string]any{}).Want(t, 201).Object(t)["path"].(string)
	if got := visit("GET", prefix+link+"&to=/campaigns", 200, "", "Sec-Fetch-Site", "cross-site").Header.Get("Refresh"); got != "0; url="+prefix+"/campaigns" {
		t.Errorf("from a page of another site: Refresh %q", got)
	}

	// The cookie opens nothing else, and no page of another name or origin uses it.
	visit("GET", "/v1/campaigns", 401, "")
	visit("GET", "/debug/pprof/", 401, "")
	visit("GET", prefix+"/campaigns", 421, "", "Host", "evil.example")
	visit("POST", prefix+"/logout", 403, "", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	visit("GET", prefix+"/campaigns", 200, "")
	visit("POST", prefix+"/logout", 303, prefix+"/login", "Origin", r.URL, "Sec-Fetch-Site", "same-origin")
	visit("GET", prefix+"/campaigns", 303, prefix+"/login?to=%2Fcampaigns")

	made := r.Ask(t, "", "POST", prefix+"/v1/campaigns", map[string]any{"campaign": "summer", "codes": 1}).Want(t, 201)
	if at := made.Header.Get("Location"); at != prefix+"/v1/campaigns/summer" || r.Ask(t, "", "GET", at, nil).Status != 200 {
		t.Errorf("Location: %s", at)
	}
	if made.Header.Get("X-Request-Id") != made.Header.Get("Scrip-Command-Id") {
		t.Errorf("X-Request-Id of a command is %s, not its id", made.Header.Get("X-Request-Id"))
	}
	if document := r.Ask(t, "-", "GET", "/v1/openapi.json", nil).Want(t, 200).Body; !strings.Contains(string(document), `"url":"`+prefix+`"`) {
		t.Error("the document has no server with the prefix")
	}
	live := func(as string) io.ReadCloser {
		t.Helper()
		made := r.Ask(t, as, "POST", "/v1/logins", map[string]any{"name": "ann"}).Want(t, 201).Object(t)["path"].(string)
		visit("GET", prefix+made, 303, prefix+"/")
		stream, err := browser.Do(r.Request(t, "-", "GET", prefix+"/live/campaigns/summer", nil))
		streamtest.Must(t, err)
		t.Cleanup(func() { _ = stream.Body.Close() })
		first := make([]byte, 12)
		if _, err := io.ReadFull(stream.Body, first); err != nil || string(first) != "event: live\n" {
			t.Errorf("a live part starts with %q, %v", first, err)
		}
		return stream.Body
	}
	ends := func(why string, stream io.Reader) {
		t.Helper()
		if _, err := io.Copy(io.Discard, stream); err != nil {
			t.Errorf("when %s the live part ends with %v", why, err)
		}
	}
	stream := live("support")
	r.Ask(t, "", "DELETE", "/v1/keys/"+r.IDs["support"], nil).Want(t, 200)
	ends("its key is revoked", stream)
	visit("GET", prefix+"/campaigns", 303, prefix+"/login?to=%2Fcampaigns")

	apitest.Until(t, "the log-in is in the audit stream", func() bool {
		entries := string(r.Ask(t, "", "GET", "/v1/audit?kind=login", nil).Want(t, 200).Body)
		return strings.Contains(entries, `"via":"console"`) && strings.Contains(entries, r.IDs["support"])
	})
	// Pages that are open do not hold up the end of the server, nor are they cut off.
	stream = live("")
	streamtest.Must(t, r.Stop())
	ends("the server stops", stream)
}
