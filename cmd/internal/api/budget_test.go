package api_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestWrongCodes: to a public key all wrong codes look alike, and after ten of them even a right one is refused; another key
// goes on.
func TestWrongCodes(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 3})
	r.Key(t, "producer")
	r.Key(t, "producer+public")
	claim := func(customer string) string {
		return r.Ask(t, "producer", "POST", "/v1/campaigns/"+c+"/claims", map[string]any{"customer_id": customer}).Want(t, 201).Object(t)["code"].(string)
	}
	right, spent, void := claim("ann"), claim("bob"), claim("eve")
	r.Ask(t, "producer", "POST", "/v1/redemptions", map[string]any{"code": spent, "order_id": "o"}).Want(t, 201)
	r.Ask(t, "", "POST", "/v1/coupons/void", map[string]any{"code": void}).Want(t, 200)
	validate := func(as string, ask map[string]any) *apitest.Response {
		return r.Ask(t, as, "POST", "/v1/validations", ask)
	}
	for i, ask := range []map[string]any{
		{"code": "x"}, {"code": "AAAA-AAAA-AAAA"}, {"code": "x", "campaign": c}, {"code": "AAAA-AAAA-AAAA", "campaign": "none"}, {"code": spent},
		{"code": spent, "order_id": "p"}, {"code": void}, {"code": right, "customer_id": "bob"}, {"code": right, "campaign": "none"}, {"code": "ZZZZ-ZZZZ-ZZZZ"},
	} {
		validate("producer+public", map[string]any{"code": right}).Want(t, 200) // costs nothing
		if got := validate("producer+public", ask).Want(t, 200); string(got.Body) != `{"valid":false,"reason":"code_not_valid"}`+"\n" {
			t.Errorf("%d %v: %s", i, ask, got.Body)
		}
	}
	for _, code := range []string{"AAAA-AAAA-AAAA", right} {
		got := validate("producer+public", map[string]any{"code": code})
		if got.Problem(t, 429, "too_many_wrong_codes", ""); got.Header.Get("Retry-After") == "" {
			t.Error("429 without Retry-After")
		}
	}
	for ask, want := range map[string]string{
		right: `{"valid":true,"coupon":{"campaign":"` + c + `","n":1,"code":"` + right + `","status":"claimed","redeemed_count":0}}`,
		spent: `{"valid":false,"reason":"already_redeemed","coupon":{"campaign":"` + c + `","n":2,"code":"` + spent + `","status":"redeemed","redeemed_count":1}}`,
		void:  `{"valid":false,"reason":"voided","coupon":{"campaign":"` + c + `","n":3,"code":"` + void + `","status":"voided","redeemed_count":0}}`,
		"x":   `{"valid":false,"reason":"code_not_found"}`,
	} {
		if got := validate("producer", map[string]any{"code": ask}).Want(t, 200); string(got.Body) != want+"\n" {
			t.Errorf("%s: %s, want %s", ask, got.Body, want)
		}
	}
	validate("producer", map[string]any{"code": "****-****-" + right[len(right)-4:]}).Problem(t, 422, "invalid", "body.code")
	validate("", map[string]any{"code": right}).Want(t, 200)
}

// TestWrongCodesElsewhere: looking up a code costs the same allowance as trying it; looking up a customer goes on. Through a
// trusted proxy each client of a public key has its own allowance, and cannot get another one by naming other clients; its
// address is in the audit stream.
func TestWrongCodesElsewhere(t *testing.T) {
	api.AllowWrongCodes(t, 3)
	r := apitest.Serve(t, func(o *server.Options) { o.HTTPProxies = web.Proxies{netip.MustParsePrefix("127.0.0.0/8")} })
	c := r.Campaign(t, map[string]any{"codes": 1})
	right := r.Claim(t, c, "ann")
	r.Key(t, "support")
	search := func(as, code string) *apitest.Response {
		return r.Ask(t, as, "POST", "/v1/coupons/search", map[string]any{"code": code})
	}
	search("support", right).Want(t, 200) // costs nothing
	search("support", "AAAA-AAAA-AAAA").Problem(t, 404, "code_not_found", "")
	search("support", "AAAA-AAAA-AAAA").Problem(t, 404, "code_not_found", "")
	search("support", "x").Problem(t, 404, "code_not_found", "")
	for range 2 {
		search("support", right).Problem(t, 429, "too_many_wrong_codes", "")
	}
	r.Ask(t, "support", "GET", "/v1/customers/ann", nil).Want(t, 200)
	search("", right).Want(t, 200)

	r.Key(t, "producer+public")
	try := func(forwarded string) int {
		header := []string{"X-Forwarded-For", forwarded}
		if forwarded == "" {
			header = nil
		}
		return r.Ask(t, "producer+public", "POST", "/v1/validations", map[string]any{"code": "AAAA-AAAA-AAAA"}, header...).Status
	}
	for i := range 10 {
		if status := try("203.0.113.7"); status != 200 {
			t.Fatalf("wrong code %d: %d", i, status)
		}
	}
	for forwarded, want := range map[string]int{
		"203.0.113.7": 429, "198.51.100.9, 203.0.113.7": 429, "127.0.0.1, 203.0.113.7": 429, "203.0.113.7, 127.0.0.2": 429,
		"203.0.113.8": 200, "203.0.113.7, 203.0.113.9": 200, "": 200,
	} {
		if status := try(forwarded); status != want {
			t.Errorf("X-Forwarded-For: %s: %d, want %d", forwarded, status, want)
		}
	}
	r.Key(t, "operator+clear")
	r.Ask(t, "operator+clear", "GET", "/v1/coupons?customer_id=ann", nil, "X-Forwarded-For", "198.51.100.1, 203.0.113.10").Want(t, 200)
	if entries := string(r.Ask(t, "", "GET", "/v1/audit?kind=lookup", nil).Want(t, 200).Body); strings.Count(entries, `"from":"203.0.113.10:0"`) != 1 {
		t.Errorf("the look-up is not in %s", entries)
	}
	metrics := string(r.Ask(t, "-", "GET", "/metrics", nil).Want(t, 200).Body)
	for _, want := range []string{
		`scrip_wrong_codes_total{budget="public"} 13`, `scrip_wrong_codes_total{budget="key"} 3`,
		`scrip_wrong_codes_refused_total{budget="address"} 4`, `scrip_wrong_codes_refused_total{budget="key"} 2`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// TestLinesCountForTheRateOfAKey: a key with a rate cannot get round it by many lines in one request, or by requests over NATS
// beside those over HTTP.
func TestLinesCountForTheRateOfAKey(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 100})
	const rate = 5
	r.Key(t, "producer+rate=5")
	var lines strings.Builder
	for i := range 4 * rate {
		fmt.Fprintf(&lines, `{"id":"rated%d","type":"claim","campaign":"%s","customer_id":"customer %d"}`+"\n", i, c, i)
	}
	answer := string(r.Ask(t, "producer+rate=5", "POST", "/v1/commands", lines.String(), "Content-Type", "application/x-ndjson").Want(t, 200).Body)
	claimed, refused := strings.Count(answer, `"status":"claimed"`), strings.Count(answer, `"refusal":"rate_limited"`)
	if claimed == 0 || claimed > rate || claimed+refused != 4*rate { // requests before them took some
		t.Errorf("%d claimed and %d refused of %d:\n%s", claimed, refused, 4*rate, answer)
	}
	var codes []string
	key := r.Keys["producer+rate=5"]
	nc, err := nats.Connect(r.NATS, nats.Token(key), nats.CustomInboxPrefix(natsx.KeyInbox(key)))
	streamtest.Must(t, err)
	defer nc.Close()
	started := time.Now()
	for range 4 * rate {
		reply, err := nc.Request("scrip.claim."+c, []byte(`{"customer_id":"more"}`), apitest.Patience)
		streamtest.Must(t, err)
		codes = append(codes, reply.Header.Get(micro.ErrorCodeHeader))
	}
	if !slices.Contains(codes, "429") && time.Since(started) < time.Second {
		t.Errorf("%d requests over NATS within %s: %q", len(codes), time.Since(started), codes)
	}
}
