package api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
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

// giveUpThree writes dead letters of a name.
func giveUpThree(t *testing.T, data, name string) {
	t.Helper()
	d, err := datadir.Find(data)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(d.NATSURL)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for i := range 3 {
		msg := nats.NewMsg(fmt.Sprintf("scrip.push.dead.%s.0.%d.1", name, i+1))
		msg.Header.Set("Scrip-Push-Stream", topology.EvtStream(0))
		msg.Header.Set("Scrip-Push-Tries", "10")
		msg.Data = []byte("{}\n")
		if _, err := nc.RequestMsg(msg, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWebhooks: a webhook is created, gets a signed event, is changed by version, paused, resumed, tested, replayed, given
// another secret, and deleted; dead letters come in pages. A secret is in the answer that makes it and in no other; all of it is in the audit stream.
func TestWebhooks(t *testing.T) {
	in := newInbox(t)
	data := ""
	r := apitest.Serve(t, func(o *server.Options) {
		data, o.WebhookAllow = o.Data, []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	c := r.Campaign(t, map[string]any{"codes": 9})
	r.Key(t, "operator")
	as := func(method, path string, body any, header ...string) *apitest.Response {
		t.Helper()
		return r.Ask(t, "operator", method, "/v1/webhooks"+path, body, header...)
	}
	as("POST", "", map[string]any{"url": "ftp://x", "types": []string{"coupon.*"}}).Problem(t, 422, "invalid", "body")
	as("POST", "", map[string]any{"url": in.URL, "types": []string{"coupon.*"}, "codes": true}).Problem(t, 403, "forbidden", "body.codes")
	as("POST", "", map[string]any{"url": in.URL}).Problem(t, 400, "malformed", "body")
	made := as("POST", "", map[string]any{"url": in.URL, "types": []string{"coupon.claimed"}, "campaigns": []string{c}, "rate": 100}).Want(t, 201)
	var first struct {
		Webhook struct {
			ID    string
			State string
			Batch int
		}
		Secret string
	}
	made.Into(t, &first)
	id, tag := "/"+first.Webhook.ID, made.Header.Get("ETag")
	if first.Webhook.State != "active" || first.Webhook.Batch != 1 || made.Header.Get("Location") != "/v1/webhooks"+id || tag == "" {
		t.Errorf("%s %v", made.Body, made.Header)
	}
	secret, err := signature.Parse(first.Secret)
	if err != nil {
		t.Fatal(err)
	}

	r.Claim(t, c, "ann")
	apitest.Until(t, "ann's claim is delivered", func() bool { return len(in.all(`"ann"`)) == 1 })
	got := in.all(`"ann"`)[0]
	if _, err := signature.Verify(got.header, []byte(got.body), time.Now(), 5*time.Minute, secret); err != nil {
		t.Errorf("%v: %+v", err, got)
	}

	// Changes by version.
	as("PATCH", id, map[string]any{"rate": 7}).Problem(t, 428, "condition_required", "header.If-Match")
	as("PATCH", id, map[string]any{"rate": 7}, "If-Match", "7").Problem(t, 400, "malformed", "header.If-Match")
	as("PATCH", id, map[string]any{}, "If-Match", tag).Problem(t, 422, "invalid", "body")
	as("PATCH", id, map[string]any{"codes": true}, "If-Match", tag).Problem(t, 403, "forbidden", "body.codes")
	changed := as("PATCH", id, map[string]any{"rate": 70, "types": []string{"coupon.claimed", "coupon.voided"}}, "If-Match", tag).Want(t, 200)
	if v := changed.Object(t); v["rate"] != 70.0 || v["url"] != in.URL || changed.Header.Get("ETag") == tag {
		t.Errorf("%s", changed.Body)
	}
	as("PATCH", id, map[string]any{"rate": 8}, "If-Match", tag).Problem(t, 412, "changed", "header.If-Match")
	as("POST", id+"/pause", nil, "If-Match", tag).Problem(t, 412, "changed", "header.If-Match")

	if v := as("POST", id+"/test", nil).Want(t, 200).Object(t); v["result"] != "delivered" && v["pending"] != true {
		t.Errorf("%v", v)
	}
	apitest.Until(t, "the test request is delivered", func() bool { return len(in.all("webhook.test")) == 1 })
	if v := as("POST", id+"/pause", nil, "If-Match", changed.Header.Get("ETag")).Want(t, 200).Object(t); v["state"] != "paused" {
		t.Errorf("%v", v)
	}
	if v := as("POST", id+"/resume", nil).Want(t, 200).Object(t); v["state"] != "active" {
		t.Errorf("%v", v)
	}
	var next struct{ Secret string }
	as("POST", id+"/rotate", nil).Want(t, 200).Into(t, &next)
	if s, err := signature.Parse(next.Secret); err != nil || s.Text() == secret.Text() {
		t.Errorf("%v", err)
	}
	as("POST", id+"/replay", map[string]any{"from": time.Now().Add(time.Hour)}).Problem(t, 422, "invalid", "body")
	as("POST", id+"/replay", map[string]any{"from": time.Now().Add(-time.Hour)}).Want(t, 200)
	apitest.Until(t, "ann's claim is delivered again", func() bool { return len(in.all(`"ann"`)) == 2 })
	if again := in.all(`"ann"`)[1]; again.header.Get("webhook-id") != got.header.Get("webhook-id") || again.body != got.body {
		t.Errorf("%+v", again)
	}
	if v := as("GET", id+"/dead-letters", nil).Want(t, 200).Object(t); len(v["dead_letters"].([]any)) != 0 {
		t.Errorf("%v", v)
	}
	if v := as("POST", id+"/dead-letters/retry", nil).Want(t, 200).Object(t); v["result"] != "0 delivered, 0 not" && v["pending"] != true {
		t.Errorf("%v", v)
	}
	apitest.Until(t, "its position is recorded", func() bool {
		v := as("GET", id, nil).Want(t, 200).Object(t)
		return len(v["positions"].([]any)) == 2 && v["last_test"] == "delivered" // two lanes
	})

	apitest.Until(t, "the retry has ended", func() bool { return as("GET", id, nil).Want(t, 200).Object(t)["last_retry"] == "0 delivered, 0 not" })
	giveUpThree(t, data, "webhook-"+first.Webhook.ID+"-0e")
	var page struct {
		DeadLetters []struct{ ID, Sequence uint64 } `json:"dead_letters"`
		Next        string
	}
	as("GET", id+"/dead-letters?limit=2", nil).Want(t, 200).Into(t, &page)
	if len(page.DeadLetters) != 2 || page.DeadLetters[0].Sequence != 1 || page.DeadLetters[1].Sequence != 2 || page.Next == "" {
		t.Errorf("%+v", page)
	}
	after := page.Next
	page.Next = ""
	as("GET", id+"/dead-letters?limit=2&after="+after, nil).Want(t, 200).Into(t, &page)
	if len(page.DeadLetters) != 1 || page.DeadLetters[0].Sequence != 3 || page.Next != "" {
		t.Errorf("%+v", page)
	}
	as("GET", id+"/dead-letters?after=x", nil).Problem(t, 400, "malformed", "query.after")
	as("GET", id+"/dead-letters?limit=101", nil).Problem(t, 422, "invalid", "query.limit")

	shown := string(as("GET", "", nil).Want(t, 200).Body) + string(as("GET", id, nil).Want(t, 200).Body)
	entries := string(r.Ask(t, "", "GET", "/v1/audit?kind=webhooks", nil).Want(t, 200).Body)
	if strings.Contains(shown+entries, "whsec_") || !strings.Contains(shown, in.URL) {
		t.Errorf("%s\n%s", shown, entries)
	}
	if v := as("DELETE", id, nil).Want(t, 200).Object(t); v["state"] != "deleted" {
		t.Errorf("%v", v)
	}
	for _, gone := range []struct{ method, path string }{{"GET", id}, {"DELETE", id}, {"POST", id + "/pause"}, {"POST", id + "/test"}, {"POST", id + "/rotate"}} {
		as(gone.method, gone.path, nil).Problem(t, 404, "not_found", "")
	}
	entries = string(r.Ask(t, "", "GET", "/v1/audit?kind=webhooks", nil).Want(t, 200).Body)
	for _, action := range []string{"create", "update", "test", "pause", "resume", "rotate", "replay", "retry", "delete"} {
		if strings.Count(entries, `"action":"`+action+`","about":"`+first.Webhook.ID) != 1 {
			t.Errorf("%s is not recorded once: %s", action, entries)
		}
	}
	if strings.Count(entries, `"actor":"test-operator-`) != 9 || strings.Count(entries, `"via":"http"`) != 9 {
		t.Errorf("the author is missing: %s", entries)
	}
}
