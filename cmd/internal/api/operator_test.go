package api_test

import (
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// limitsAreShown: the status and the metrics have the limits on connections. Package web shows what those do.
func limitsAreShown(t *testing.T, r *apitest.Rig, perAddress int) {
	for range 2 * perAddress {
		_, _ = io.WriteString(connect(t, r), "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	}
	refused := `scrip_limit_refused_total{limit="http_connections_per_address"} `
	apitest.Until(t, "connections are refused", func() bool {
		metrics := string(r.Ask(t, "", "GET", "/metrics", nil).Want(t, 200).Body)
		return strings.Contains(metrics, refused) && !strings.Contains(metrics, refused+"0\n")
	})
}

// strangersAreSlowed: requests and log-ins without a key count together for their address. Package web shows what follows.
func strangersAreSlowed(t *testing.T, r *apitest.Rig) {
	r.Ask(t, "-", "GET", "/v1/status", nil).Want(t, 401)
	var both sync.WaitGroup // a second later there is another attempt
	both.Go(func() {
		if nc, err := nats.Connect(r.NATS, nats.Token("sk_bad")); err == nil {
			nc.Close()
			t.Error("a wrong key opens NATS")
		}
	})
	r.Ask(t, "-", "GET", "/v1/nowhere", nil).Want(t, 404)
	both.Wait()
	metrics := string(r.Ask(t, "", "GET", "/metrics", nil).Want(t, 200).Body)
	for _, door := range []string{"http", "nats"} {
		if one := `scrip_strangers_slowed_total{door="` + door + `"} 1`; !strings.Contains(metrics, one) {
			t.Errorf("the metrics lack %s", one)
		}
	}
}

// TestStatusAndSettings: what `scrip status` and `scrip config` show and change.
func TestStatusAndSettings(t *testing.T) {
	const perAddress = 16
	api.AllowStrangers(t, 1)
	r := apitest.Serve(t, func(o *server.Options) { o.HTTPConns, o.HTTPConnsPerAddress = 4*perAddress, perAddress })
	apitest.Until(t, "the status is ready", func() bool {
		v := r.Ask(t, "", "GET", "/v1/status", nil).Want(t, 200).Object(t)
		return v["ready"] == true && v["lanes"] == 2.0 && v["dead_letters"] != nil
	})
	tag := r.Ask(t, "", "GET", "/v1/settings", nil).Want(t, 200).Header.Get("ETag")
	patch(t, r, `{"reminder.batch":100}`).Problem(t, 428, "condition_required", "header.If-Match")
	changed := patch(t, r, `{"reminder.batch":200,"reminder.grace":"600s"}`, "If-Match", tag).Want(t, 200)
	if !strings.Contains(string(changed.Body), `"value":200,"was":null`) {
		t.Errorf("%s", changed.Body)
	}
	patch(t, r, `{"reminder.batch":100}`, "If-Match", tag).Problem(t, 412, "version_mismatch", "")
	// All or none.
	patch(t, r, `{"reminder.batch":100,"reminder.rate":-1}`, "If-Match", "*").Problem(t, 422, "invalid", "body.settings.reminder.rate")
	got := r.Ask(t, "", "GET", "/v1/settings", nil).Want(t, 200)
	if text := string(got.Body); !strings.Contains(text, `"reminder.batch":200,`) || !strings.Contains(text, `"reminder.grace":"10m"`) || !strings.Contains(text, `"reminder.pause":{}`) ||
		!strings.Contains(text, `{"setting":"reminder.batch","value":200,"default":false`) || got.Header.Get("ETag") != changed.Header.Get("ETag") {
		t.Errorf("%v %s", got.Header, text)
	}
	if status := r.Ask(t, "", "GET", "/v1/status", nil).Want(t, 200).Object(t); status["dead_letters_unknown"] != nil {
		t.Errorf("beside the counts: %v", status["dead_letters_unknown"])
	}
	if none := string(r.Ask(t, "", "GET", "/v1/audit?kind=export", nil).Want(t, 200).Body); !strings.Contains(none, `"items":[]`) {
		t.Error(none)
	}
	limit := regexp.MustCompile(`\{"what":"http_connections_per_address","used":\d+,"limit":16,"refused":0`)
	if status := string(r.Ask(t, "", "GET", "/v1/status", nil).Want(t, 200).Body); !limit.MatchString(status) {
		t.Error(status)
	}
	t.Run("a rate of requests", func(t *testing.T) { aKeyHasARate(t, r) })
	t.Run("settings that cannot be recorded", func(t *testing.T) { settingsThatCannotBeRecorded(t, r) })
	t.Run("strangers", func(t *testing.T) { strangersAreSlowed(t, r) })
	t.Run("limits", func(t *testing.T) { limitsAreShown(t, r, perAddress) })
}

// patch changes settings.
func patch(t *testing.T, r *apitest.Rig, settings string, header ...string) *apitest.Response {
	t.Helper()
	return r.Ask(t, "", "PATCH", "/v1/settings", map[string]any{"settings": json.RawMessage(settings)}, header...)
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
	patch(t, r, `{"http.rate":1,"http.burst":20}`, "If-Match", "*").Want(t, 200)
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
	patch(t, r, `{"http.rate":null}`, "If-Match", "*").Want(t, 200)
	apitest.Until(t, "the rate is gone", func() bool { return claim("producer").Header.Get("RateLimit") == "" })
}

// settingsThatCannotBeRecorded: settings that are in force, but not in the audit stream, are no change without effect.
func settingsThatCannotBeRecorded(t *testing.T, r *apitest.Rig) {
	js, err := jetstream.New(r.Shop.Conn())
	streamtest.Must(t, err)
	streamtest.Must(t, js.DeleteStream(t.Context(), topology.AuditStream))
	got := patch(t, r, `{"reminder.batch":300,"reminder.grace":"11m"}`, "If-Match", "*")
	if got.Problem(t, 503, "unknown_outcome", ""); !strings.Contains(string(got.Body), `"effect":"unknown"`) || !strings.Contains(string(got.Body), "the settings are changed") {
		t.Errorf("%s", got.Body)
	}
	now := string(r.Ask(t, "", "GET", "/v1/settings", nil).Want(t, 200).Body)
	if !strings.Contains(now, `"reminder.batch":300,`) || !strings.Contains(now, `"reminder.grace":"11m"`) {
		t.Error(now)
	}
}

// TestDeadLetters: without the right to see codes a key gets no line, and what is no command cannot be sent again as it is.
func TestDeadLetters(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 3})
	letter := parked(t, r, c, "bad-"+c)
	r.Key(t, "operator")
	if masked := string(r.Ask(t, "operator", "GET", "/v1/dead-letters", nil).Want(t, 200).Body); strings.Contains(masked, "bad-"+c) || !strings.Contains(masked, letter) {
		t.Errorf("a key that sees no codes gets %s", masked)
	}
	r.Ask(t, "", "POST", "/v1/dead-letters/retry", map[string]any{"id": letter}).Problem(t, 409, "not_retriable", "")
}
