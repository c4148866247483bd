package api_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/webhook/signature"
)

// inbox is an endpoint that keeps what it gets.
type inbox struct {
	*httptest.Server
	mu  sync.Mutex
	got []delivery
}

type delivery struct {
	header http.Header
	body   string
}

func newInbox(t *testing.T) *inbox {
	in := &inbox{}
	in.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		in.mu.Lock()
		defer in.mu.Unlock()
		in.got = append(in.got, delivery{r.Header.Clone(), string(body)})
	}))
	t.Cleanup(in.Close)
	return in
}

// all returns the deliveries whose body has a text.
func (in *inbox) all(with string) (some []delivery) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, d := range in.got {
		if strings.Contains(d.body, with) {
			some = append(some, d)
		}
	}
	return some
}

// TestWebhooks: a webhook is created, gets a signed event, and is changed by version. A secret is in the answer that makes it and in
// no other. Package webhook shows what the other actions do, TestEveryActionThroughEveryDoor that they are carried out.
func TestWebhooks(t *testing.T) {
	in := newInbox(t)
	r := apitest.Serve(t, func(o *server.Options) { o.WebhookAllow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} })
	c := r.Campaign(t, map[string]any{"codes": 9})
	r.Key(t, "operator+customers")
	as := func(method, path string, body any, header ...string) *apitest.Response {
		t.Helper()
		return r.Ask(t, "operator+customers", method, "/v1/webhooks"+path, body, header...)
	}
	as("POST", "", map[string]any{"url": in.URL, "types": []string{"coupon.*"}, "codes": true}).Problem(t, 403, "forbidden", "")
	as("POST", "", map[string]any{"url": in.URL}).Problem(t, 400, "malformed", "body.types")
	made := as("POST", "", map[string]any{"url": in.URL, "types": []string{"coupon.claimed"}, "campaigns": []string{c}, "rate": 100}).Want(t, 201)
	var first struct {
		ID, State, Secret string
		Batch             int
	}
	made.Into(t, &first)
	id, tag := "/"+first.ID, made.Header.Get("ETag")
	if first.State != "active" || first.Batch != 1 || made.Header.Get("Location") != "/v1/webhooks"+id || tag == "" {
		t.Errorf("%s %v", made.Body, made.Header)
	}
	secret, err := signature.Parse(first.Secret)
	streamtest.Must(t, err)

	r.Claim(t, c, "ann")
	apitest.Until(t, "ann's claim is delivered", func() bool { return len(in.all(`"ann"`)) == 1 })
	got := in.all(`"ann"`)[0]
	if _, err := signature.Verify(got.header, []byte(got.body), time.Now(), 5*time.Minute, secret); err != nil {
		t.Errorf("%v: %+v", err, got)
	}

	as("PATCH", id, map[string]any{"rate": 7}).Problem(t, 428, "condition_required", "header.If-Match")
	as("PATCH", id, map[string]any{"rate": 7}, "If-Match", "7").Problem(t, 400, "malformed", "header.If-Match")
	as("PATCH", id, map[string]any{}, "If-Match", tag).Problem(t, 422, "invalid", "body")
	as("PATCH", id, map[string]any{"codes": true}, "If-Match", tag).Problem(t, 403, "forbidden", "")
	changed := as("PATCH", id, map[string]any{"rate": 70, "types": []string{"coupon.claimed", "coupon.voided"}}, "If-Match", tag).Want(t, 200)
	if v := changed.Object(t); v["rate"] != 70.0 || v["url"] != in.URL || changed.Header.Get("ETag") == tag {
		t.Errorf("%s", changed.Body)
	}
	as("PATCH", id, map[string]any{"rate": 8}, "If-Match", tag).Problem(t, 412, "version_mismatch", "")
	as("POST", id+"/pause", nil, "If-Match", tag).Problem(t, 412, "version_mismatch", "")
	if v := as("POST", id+"/pause", nil, "If-Match", changed.Header.Get("ETag")).Want(t, 200).Object(t); v["state"] != "paused" {
		t.Errorf("%v", v)
	}

	shown := string(as("GET", "", nil).Want(t, 200).Body) + string(as("GET", id, nil).Want(t, 200).Body)
	entries := string(r.Ask(t, "", "GET", "/v1/audit?kind=webhooks", nil).Want(t, 200).Body)
	if strings.Contains(shown+entries, "whsec_") || !strings.Contains(shown, in.URL) {
		t.Errorf("%s\n%s", shown, entries)
	}
}
