package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestAKeyHasAShareOfWhatIsRecorded: one that floods the log with what is recorded is refused, before it has an effect, by each way
// and through each door. Other keys go on, and what it may read without an entry it still reads.
func TestAKeyHasAShareOfWhatIsRecorded(t *testing.T) {
	api.RecordFew(t, 8)
	r := apitest.Serve(t)
	c := r.Campaign(t, map[string]any{"codes": 9})
	r.Key(t, "support")
	r.Key(t, "support+"+c)
	r.Key(t, "operator+clear")
	for _, customer := range []string{"ann", "bob"} {
		r.Claim(t, c, customer)
	}
	changes, coupon := "/v1/campaigns/"+c+"/coupons/void", "/v1/campaigns/"+c+"/coupons/1"
	dry, void := map[string]any{"all": true, "dry_run": true}, func(n int) map[string]any { return map[string]any{"campaign": c, "n": n} }
	refused := func(as, method, path string, body any) {
		t.Helper()
		for range 50 {
			if got := r.Ask(t, as, method, path, body); got.Status == 429 {
				got.Problem(t, 429, "overloaded", "")
				return
			}
		}
		t.Errorf("%s %s as %s is not refused", method, path, as)
	}
	refused("support", "POST", changes, dry)
	refused("support", "POST", "/v1/coupons/void", void(1))
	refused("operator+clear", "GET", coupon, nil)
	nc, err := nats.Connect(r.NATS, nats.Token(r.Keys["support"]), nats.CustomInboxPrefix(natsx.KeyInbox(r.Keys["support"])))
	streamtest.Must(t, err)
	defer nc.Close()
	for subject, body := range map[string]string{"scrip.void": `{"campaign":"` + c + `","n":2}`, "scrip.coupons.void": `{"campaign":"` + c + `","all":true,"dry_run":true}`} {
		if m, err := nc.Request(subject, []byte(body), time.Minute); err != nil || !strings.Contains(string(m.Data), `"refusal":"overloaded"`) {
			t.Errorf("%s: %v %v", subject, m, err)
		}
	}
	if got := r.Ask(t, "support", "GET", "/v1/campaigns/"+c+"/coupons/2", nil).Want(t, 200).Object(t); got["status"] != "claimed" {
		t.Errorf("it was refused, and has made %v", got)
	}
	r.Ask(t, "support+"+c, "POST", "/v1/coupons/void", void(2)).Want(t, 200)
	metrics := string(r.Ask(t, "", "GET", "/metrics", nil).Want(t, 200).Body)
	for _, want := range []string{`scrip_limit_refused_total{limit="recorded_bytes_per_key"} 5`, `scrip_limit{limit="once_bytes_per_key"}`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
}
