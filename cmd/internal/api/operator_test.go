package api_test

import (
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// floodWithConnections: one address opens more connections than it may, and sends nothing. Probes are answered then, all else
// is not; the status and a metric count what was beyond the limit.
func floodWithConnections(t *testing.T, r *apitest.Rig, perAddress int) {
	get := func(path string) int {
		req := r.Request(t, "", "GET", path, nil)
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	var idle []net.Conn
	for range 4 * perAddress {
		c := connect(t, r)
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") // after its answer it may be idle
		idle = append(idle, c)
	}
	if ready, metrics, settings := get("/readyz"), get("/metrics"), get("/v1/settings"); ready != 200 || metrics != 200 || settings != 503 {
		t.Errorf("/readyz %d, /metrics %d, /v1/settings %d", ready, metrics, settings)
	}
	for _, c := range idle {
		_ = c.Close()
	}
	apitest.Until(t, "what was closed is free", func() bool { return get("/v1/settings") == 200 })
	status := string(r.Ask(t, "", "GET", "/v1/status", nil).Want(t, 200).Body)
	limit := regexp.MustCompile(`\{"what":"http_connections_per_address","used":\d+,"limit":16,"refused":[1-9]`)
	if !limit.MatchString(status) || !strings.Contains(status, `{"what":"http_exports_per_key","used":0,"limit":2,"refused":0}`) {
		t.Error(status)
	}
	if metrics := string(r.Ask(t, "", "GET", "/metrics", nil).Want(t, 200).Body); !strings.Contains(metrics, `scrip_limit_refused_total{limit="http_connections_per_address"} `) {
		t.Error(metrics)
	}
}

// TestStatusAndSettings: what `scrip status` and `scrip config` show and change.
func TestStatusAndSettings(t *testing.T) {
	const perAddress = 16
	r := apitest.Serve(t, func(o *server.Options) { o.HTTPConns, o.HTTPConnsPerAddress = 4*perAddress, perAddress })
	floodWithConnections(t, r, perAddress)
	apitest.Until(t, "the status is ready", func() bool {
		v := r.Ask(t, "", "GET", "/v1/status", nil).Want(t, 200).Object(t)
		return v["ready"] == true && v["lanes"] == 2.0 && v["dead_letters"] != nil
	})
	for what, path := range r.Ask(t, "-", "GET", "/", nil).Want(t, 200).Object(t) {
		if path := path.(string); what != "name" && what != "version" {
			r.Ask(t, "", "GET", path, nil).Want(t, 200)
		}
	}
	changed := r.Ask(t, "", "PATCH", "/v1/settings", map[string]string{"reminder.batch": "200", "reminder.grace": "10m"}).Want(t, 200)
	if !strings.Contains(string(changed.Body), `"value":"200","was":"default"`) {
		t.Errorf("%s", changed.Body)
	}
	got := string(r.Ask(t, "", "GET", "/v1/settings", nil).Want(t, 200).Body)
	if !strings.Contains(got, `{"setting":"reminder.batch","value":"200","default":false`) || !strings.Contains(got, `"value":"10m0s"`) {
		t.Error(got)
	}
	// All are checked before the first is stored.
	r.Ask(t, "", "PATCH", "/v1/settings", map[string]string{"reminder.batch": "100", "reminder.rate": "-1"}).Problem(t, 422, "invalid", "body.reminder.rate")
	if got := string(r.Ask(t, "", "GET", "/v1/settings", nil).Want(t, 200).Body); !strings.Contains(got, `{"setting":"reminder.batch","value":"200"`) {
		t.Error(got)
	}
	if status := r.Ask(t, "", "GET", "/v1/status", nil).Want(t, 200).Object(t); status["dead_letters_unknown"] != nil {
		t.Errorf("beside the counts: %v", status["dead_letters_unknown"])
	}
	if none := string(r.Ask(t, "", "GET", "/v1/audit?kind=export", nil).Want(t, 200).Body); !strings.Contains(none, `"entries":[]`) {
		t.Error(none)
	}
	t.Run("a rate of requests", func(t *testing.T) { aKeyHasARate(t, r) })
	t.Run("settings that cannot be recorded", func(t *testing.T) { settingsThatCannotBeRecorded(t, r) })
}

// aKeyHasARate: with a rate, a key that sends too many requests is refused; another key goes on, and without the setting there is
// no limit.
func aKeyHasARate(t *testing.T, r *apitest.Rig) {
	r.Key(t, "producer")
	r.Key(t, "producer+public")
	claim := func(as string) *apitest.Response {
		return r.Ask(t, as, "POST", "/v1/campaigns/none/claims", map[string]any{"customer_id": "ann"})
	}
	if got := claim("producer").Want(t, 404); got.Header.Get("RateLimit") != "" {
		t.Errorf("without a rate: %v", got.Header)
	}
	r.Ask(t, "", "PATCH", "/v1/settings", map[string]any{"http.rate": "1", "http.burst": "20"}).Want(t, 200)
	var refused *apitest.Response
	apitest.Until(t, "the key has used its rate", func() bool {
		refused = claim("producer")
		return refused.Status != 404
	})
	refused.Problem(t, 429, "rate_limited", "")
	if refused.Header.Get("Retry-After") != "1" || refused.Header.Get("RateLimit-Policy") != `"key";q=20;w=20` || refused.Object(t)["effect"] != "none" {
		t.Errorf("%v %s", refused.Header, refused.Body)
	}
	claim("producer+public").Want(t, 404)
	claim("").Want(t, 404)
	r.Ask(t, "", "PATCH", "/v1/settings", map[string]any{"http.rate": "default"}).Want(t, 200)
	apitest.Until(t, "the rate is gone", func() bool { return claim("producer").Header.Get("RateLimit") == "" })
}

// settingsThatCannotBeRecorded: a setting that is in force, but not in the audit stream, is no change without effect; the answer
// names it, and those after it are not changed.
func settingsThatCannotBeRecorded(t *testing.T, r *apitest.Rig) {
	js, err := jetstream.New(r.Shop.Conn())
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), topology.AuditStream); err != nil {
		t.Fatal(err)
	}
	got := r.Ask(t, "", "PATCH", "/v1/settings", map[string]string{"reminder.batch": "300", "reminder.grace": "11m"})
	if got.Problem(t, 503, "unknown_outcome", ""); !strings.Contains(string(got.Body), `"effect":"unknown"`) || !strings.Contains(string(got.Body), "reminder.batch is changed") {
		t.Errorf("%s", got.Body)
	}
	now := string(r.Ask(t, "", "GET", "/v1/settings", nil).Want(t, 200).Body)
	if !strings.Contains(now, `{"setting":"reminder.batch","value":"300","default":false`) || !strings.Contains(now, `"value":"10m0s"`) {
		t.Error(now)
	}
}

// TestDeadLetters: a bad line is listed, and sent again unchanged and corrected.
func TestDeadLetters(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 3})
	bad := "bad-" + c
	if err := r.Shop.Conn().Publish("scrip.cmd."+c, []byte(`{"id":"`+bad+`","type":"claim","customer":"ann"}`)); err != nil {
		t.Fatal(err)
	}
	type deadLetter struct{ ID, Payload, State string }
	var letter deadLetter
	listed := func(state string) bool {
		var list struct{ Dead_Letters []deadLetter }
		r.Ask(t, "", "GET", "/v1/dead-letters?state="+state, nil).Want(t, 200).Into(t, &list)
		for _, letter = range list.Dead_Letters {
			if strings.Contains(letter.Payload, bad) {
				return letter.State == state
			}
		}
		return false
	}
	apitest.Until(t, "the dead letter is listed", func() bool { return listed("open") })
	r.Key(t, "operator")
	if masked := string(r.Ask(t, "operator", "GET", "/v1/dead-letters", nil).Want(t, 200).Body); strings.Contains(masked, bad) || !strings.Contains(masked, letter.ID) {
		t.Errorf("a key that sees no codes gets %s", masked)
	}
	r.Ask(t, "", "POST", "/v1/dead-letters/retry", map[string]any{"id": letter.ID}).Problem(t, 409, "not_retriable", "")
	line := `{"id":"` + bad + `","type":"claim","campaign":"` + c + `","customer_id":"ann"}`
	for range 2 { // a second retry is a repeat
		done := r.Ask(t, "", "POST", "/v1/dead-letters/retry", map[string]any{"id": letter.ID, "lines": []string{line}}).Want(t, 200)
		if !strings.Contains(string(done.Body), `"state":"retried"`) || !strings.Contains(string(done.Body), `"status":"claimed"`) {
			t.Errorf("%s", done.Body)
		}
	}
	if !listed("retried") {
		t.Errorf("the letter is not listed as retried: %+v", letter)
	}
}

// TestKeys: a key is made, replaced and revoked; a key cannot make one that sees more.
func TestKeys(t *testing.T) {
	r := apitest.Shared(t)
	r.Key(t, "operator")
	r.Ask(t, "operator", "POST", "/v1/keys", map[string]any{"name": "more", "role": "support", "codes": true}).Problem(t, 403, "forbidden", "")
	made := r.Ask(t, "operator", "POST", "/v1/keys", map[string]any{"name": "one", "role": "support"}).Want(t, 201).Object(t)
	r.Ask(t, "operator", "POST", "/v1/keys", map[string]any{"name": "one", "role": "support"}).Problem(t, 409, "name_taken", "")
	r.Keys["one"] = made["secret"].(string)
	apitest.Until(t, "it is in force", func() bool { return r.Ask(t, "one", "GET", "/v1/campaigns", nil).Status == 200 })
	next := r.Ask(t, "operator", "POST", "/v1/keys/one/rotate", map[string]any{}).Want(t, 201).Object(t)
	apitest.Until(t, "the old one has ended", func() bool { return r.Ask(t, "one", "GET", "/v1/campaigns", nil).Status == 401 })
	r.Keys["one"] = next["secret"].(string)
	apitest.Until(t, "the new one is in force", func() bool { return r.Ask(t, "one", "GET", "/v1/campaigns", nil).Status == 200 })
	list := string(r.Ask(t, "operator", "GET", "/v1/keys", nil).Want(t, 200).Body)
	if strings.Contains(list, r.Keys["one"]) || strings.Count(list, `"name":"one"`) != 2 {
		t.Error(list)
	}
	r.Ask(t, "operator", "DELETE", "/v1/keys/"+next["id"].(string), nil).Want(t, 200)
	apitest.Until(t, "it is revoked", func() bool { return r.Ask(t, "one", "GET", "/v1/campaigns", nil).Status == 401 })
}
