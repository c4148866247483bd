package api_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// TestSupportActsOnWhatItFinds: a support key that sees no codes finds a coupon by its customer, and voids, extends and rolls back by
// campaign and n what it found. Nothing that it is answered has the code; events and history have who did it, and by which name.
func TestSupportActsOnWhatItFinds(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 10, "per_customer": 5})
	ann := apitest.Name("ann")
	first, second := r.Claim(t, c, ann), r.Claim(t, c, ann)
	r.Redeem(t, first, "order 1")
	r.Key(t, "support")
	r.Key(t, "support+clear")
	r.Key(t, "support+"+c+"-other")
	r.Key(t, "analyst")
	masked := "****-****-" + second[len(second)-4:]

	var found coupons
	apitest.Until(t, "the tables have both", func() bool {
		found = find(t, r, "support", "customer_id="+url.QueryEscape(ann))
		return len(found.Items) == 2
	})
	if got := found.Items[1]; got.N != 2 || got.Code != masked || got.Campaign != c {
		t.Fatalf("support finds %+v", got)
	}
	name := func(n int, more ...any) map[string]any {
		body := map[string]any{"campaign": c, "n": n}
		for i := 0; i+1 < len(more); i += 2 {
			body[more[i].(string)] = more[i+1]
		}
		return body
	}
	for _, step := range []struct {
		path   string
		body   map[string]any
		status int
		want   string
	}{
		{"/v1/rollbacks", name(1, "order_id", "order 1"), 201, "rolled_back"},
		{"/v1/coupons/extend", name(2, "expires_at", "2099-01-01T00:00:00Z"), 200, "extended"},
		{"/v1/coupons/void", name(2, "reason", "stolen"), 200, "voided"},
	} {
		got := r.Ask(t, "support", "POST", step.path, step.body).Want(t, step.status)
		if v := got.Object(t); v["status"] != step.want || !strings.HasPrefix(v["code"].(string), "****-****-") {
			t.Errorf("%s: %s", step.path, got.Body)
		}
	}
	r.Ask(t, "support", "POST", "/v1/coupons/void", map[string]any{"code": second}).Want(t, 200)
	if got := string(r.Ask(t, "support", "POST", "/v1/validations", name(2)).Want(t, 200).Body); !strings.Contains(got, `"reason":"voided"`) || !strings.Contains(got, masked) {
		t.Errorf("a validation: %s", got)
	}

	// By number; the history names who did it, and how.
	var shown struct {
		Items   []struct{ Code, Status string }
		History []struct {
			What, By, Code string
			By_N           bool
		}
	}
	apitest.Until(t, "the history has the void", func() bool {
		r.Ask(t, "support", "POST", "/v1/coupons/search", name(2, "history", true)).Want(t, 200).Into(t, &shown)
		return len(shown.History) == 3
	})
	for i, what := range []string{"voided", "extended", "claimed"} {
		if h := shown.History[i]; h.What != what || h.Code != masked || h.By_N != (what != "claimed") || strings.HasPrefix(h.By, "test-support-") != h.By_N {
			t.Errorf("the history has %+v", h)
		}
	}
	events := string(r.Ask(t, "analyst", "GET", "/v1/events?campaign="+c, nil).Want(t, 200).Body)
	if strings.Count(events, `"by_n":true,"by":"test-support-`) != 3 {
		t.Errorf("the events are\n%s", events)
	}
	r.Ask(t, "support+clear", "POST", "/v1/coupons/search", name(2)).Want(t, 200)
	if log := string(r.Ask(t, "", "GET", "/v1/audit?kind=lookup", nil).Want(t, 200).Body); !strings.Contains(log, fmt.Sprintf(`"about":"%s 2 by n"`, c)) {
		t.Errorf("the audit stream has %s", log)
	}

	for _, bad := range []struct {
		path     string
		body     map[string]any
		status   int
		code, at string
	}{
		{"/v1/coupons/void", name(3), 404, "code_not_found", ""},
		{"/v1/coupons/void", name(2, "code", second), 422, "invalid", "body.code"},
		{"/v1/coupons/search", name(2, "customer_id", ann), 422, "invalid", "body"},
		{"/v1/coupons/search", name(2, "after", "x"), 422, "invalid", "body.after"},
		{"/v1/coupons/search", map[string]any{"campaign": c, "history": true}, 422, "invalid", "body.history"},
		{"/v1/coupons/void", map[string]any{"n": 2}, 400, "malformed", "body.campaign"},
		{"/v1/validations", map[string]any{"campaign": c}, 400, "malformed", "body.code"},
		{"/v1/coupons/void", map[string]any{"code": masked}, 422, "invalid", "body.code"},
		{"/v1/coupons/search", map[string]any{"code": masked}, 422, "invalid", "body.code"},
		{"/v1/coupons/void", name(0), 422, "invalid", "body.n"},
		{"/v1/coupons/void", name(1000000001), 422, "invalid", "body.n"},
	} {
		r.Ask(t, "support", "POST", bad.path, bad.body).Problem(t, bad.status, bad.code, bad.at)
	}
	r.Ask(t, "support+"+c+"-other", "POST", "/v1/coupons/void", name(1)).Problem(t, 403, "forbidden", "")
}

// TestProducersNameNoCouponByItsNumber: a number can be guessed, so on every route n of a producer is forbidden, whether there is
// such a coupon or not. An operator's is not.
func TestProducersNameNoCouponByItsNumber(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 10})
	code := r.Claim(t, c, "ann")
	for _, as := range []string{"producer", "producer+" + c, "producer+public", "operator"} {
		r.Key(t, as)
	}
	for _, as := range []string{"producer", "producer+" + c, "producer+public"} {
		for _, n := range []int{1, 9} {
			body := map[string]any{"campaign": c, "n": n, "order_id": "o"}
			r.Ask(t, as, "POST", "/v1/validations", body).Problem(t, 403, "forbidden", "body.n")
			if as == "producer+public" {
				continue // they do not redeem
			}
			r.Ask(t, as, "POST", "/v1/redemptions", body).Problem(t, 403, "forbidden", "body.n")
			r.Ask(t, as, "POST", "/v1/rollbacks", body).Problem(t, 403, "forbidden", "body.n")
		}
	}
	line := fmt.Sprintf(`{"id":"%s","type":"redeem","campaign":"%s","n":1,"order_id":"o"}`, apitest.Name("by-n"), c)
	send := func(as string) string {
		return string(r.Ask(t, as, "POST", "/v1/commands", line, "Content-Type", "application/x-ndjson").Want(t, 200).Body)
	}
	if got := send("producer"); !strings.Contains(got, `"refusal":"forbidden","message":"n: `+wire.CodeOnly) {
		t.Errorf("a producer's line: %s", got)
	}
	if got := send("operator"); !strings.Contains(got, `"status":"redeemed"`) || strings.Contains(got, code) {
		t.Errorf("an operator's line: %s", got)
	}
}
