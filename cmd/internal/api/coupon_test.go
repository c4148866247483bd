package api_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

type coupons struct {
	Items []struct {
		Campaign, Code, Status, Customer_ID string
		N                                   int
	}
	History []struct{ What, Code, Order_ID string }
	Next    string
}

// find reads all pages of a search.
func find(t *testing.T, r *apitest.Rig, as, query string) (all coupons) {
	t.Helper()
	values, err := url.ParseQuery(query)
	streamtest.Must(t, err)
	body := map[string]any{}
	for name := range values {
		if body[name] = values.Get(name); name == "limit" || name == "history" {
			body[name] = json.RawMessage(values.Get(name))
		}
	}
	for after := ""; ; {
		var page coupons
		body["after"] = after
		r.Ask(t, as, "POST", "/v1/coupons/search", body).Want(t, 200).Into(t, &page)
		all.Items, all.History = append(all.Items, page.Items...), append(all.History, page.History...)
		if after = page.Next; after == "" {
			return all
		}
	}
}

// numbers are campaign/number of coupons.
func (c *coupons) numbers() (all []string) {
	for _, one := range c.Items {
		all = append(all, fmt.Sprintf("%s/%d", one.Campaign, one.N))
	}
	return all
}

// TestCoupons finds coupons by code, customer, order and campaign, as keys that see codes and others.
func TestCoupons(t *testing.T) {
	r := apitest.Shared(t)
	a := r.Campaign(t, map[string]any{"codes": 10, "per_customer": 5, "max_redemptions": 3})
	b := r.Campaign(t, map[string]any{"codes": 10})
	if b < a { // c-10 is before c-9; lists are by name
		a, b = r.Campaign(t, map[string]any{"codes": 10, "per_customer": 5, "max_redemptions": 3}), r.Campaign(t, map[string]any{"codes": 10})
	}
	ann, bob, order1, order2 := apitest.Name("ann/é"), apitest.Name("bob"), apitest.Name("order 1"), apitest.Name("order 2")
	var codes []string
	for range 3 {
		codes = append(codes, r.Claim(t, a, ann))
	}
	codes = append(codes, r.Claim(t, b, ann), r.Claim(t, b, bob))
	r.Redeem(t, codes[0], order1)
	r.Redeem(t, codes[0], order2)
	r.Redeem(t, codes[3], order1)
	if out, err := r.Shop.Rollback(t.Context(), codes[3], order1); err != nil || out.Refused() {
		t.Fatal(out, err)
	}
	apitest.Until(t, "the tables have all, of the lanes of both campaigns", func() bool {
		all := find(t, r, "", "customer_id="+bob)
		return len(all.Items) == 1 && len(find(t, r, "", "history=true&code="+codes[3]).History) == 3 && len(find(t, r, "", "history=true&code="+codes[0]).History) == 3
	})
	r.Key(t, "support")
	r.Key(t, "support+clear")
	r.Key(t, "support+"+b)

	for query, want := range map[string]string{
		"customer_id=" + url.QueryEscape(ann) + "&limit=2":       a + "/1 " + a + "/2 " + a + "/3 " + b + "/1",
		"customer_id=" + url.QueryEscape(ann) + "&campaign=" + b: b + "/1",
		"customer_id=nobody":                                            "",
		"order_id=" + url.QueryEscape(order1):                           a + "/1 " + b + "/1",
		"order_id=" + url.QueryEscape(order2) + "&limit=1":              a + "/1",
		"campaign=" + a + "&limit=1":                                    a + "/1 " + a + "/2 " + a + "/3",
		"code=" + strings.ToLower(codes[4]):                             b + "/2",
		"code=" + codes[0] + "&campaign=" + a + "&limit=1&history=true": "",
	} {
		got := find(t, r, "", query)
		if strings.Contains(query, "code="+codes[0]) {
			// One coupon on each page of its history.
			if len(got.History) != 3 || got.History[0].What != "redeemed" || got.History[2].What != "claimed" || len(got.Items) != 3 {
				t.Errorf("%s: %+v", query, got)
			}
			continue
		}
		if s := strings.Join(got.numbers(), " "); s != want {
			t.Errorf("%s: %s, want %s", query, s, want)
		}
	}

	// A key that does not see codes gets stars, in lists and in histories; of those that do, look-ups are recorded.
	for as, clear := range map[string]bool{"support": false, "support+clear": true} {
		var found coupons
		r.Ask(t, as, "POST", "/v1/coupons/search", map[string]any{"code": codes[0], "history": true}).Want(t, 200).Into(t, &found)
		shown := []string{found.Items[0].Code, found.History[0].Code, find(t, r, as, "order_id="+url.QueryEscape(order2)).Items[0].Code}
		for _, code := range shown {
			if masked := "****-****-" + codes[0][len(codes[0])-4:]; clear && code != codes[0] || !clear && code != masked {
				t.Errorf("%s sees %s of %s", as, code, codes[0])
			}
		}
		if holder := found.Items[0].Customer_ID; (holder == ann) != clear || found.Items[0].Status != "claimed" {
			t.Errorf("%+v", found.Items[0])
		}
	}
	entries := r.Ask(t, "", "GET", "/v1/audit?kind=lookup", nil).Want(t, 200)
	if !strings.Contains(string(entries.Body), `"action":"coupon"`) || strings.Contains(string(entries.Body), codes[0]) {
		t.Errorf("%s", entries.Body)
	}

	// A page token of another key.
	var page coupons
	r.Ask(t, "support", "GET", "/v1/coupons?limit=1&campaign="+a, nil).Want(t, 200).Into(t, &page)
	r.Ask(t, "support", "GET", "/v1/coupons?limit=1&campaign="+a+"&after="+page.Next, nil).Want(t, 200)
	r.Ask(t, "support+clear", "GET", "/v1/coupons?limit=1&campaign="+a+"&after="+page.Next, nil).Problem(t, 422, "invalid", "query.after")

	// A customer, whose id has a slash.
	who := "/v1/customers/" + url.PathEscape(ann)
	for as, want := range map[string]int{"": 4, "support+" + b: 1} {
		var c coupons
		r.Ask(t, as, "GET", who+"?history=1", nil).Want(t, 200).Into(t, &c)
		if len(c.Items) != want || len(c.History) == 0 || slices.ContainsFunc(c.History, func(h struct{ What, Code, Order_ID string }) bool { return as != "" && h.Order_ID == order2 }) {
			t.Errorf("%s: %+v", as, c)
		}
	}
	// Pages of a key that is limited to campaigns: they end with coupons that it does not see, and next does not name them.
	limited := "support+" + b
	seen, pages := 0, 0
	for next := ""; pages == 0 || next != ""; pages++ {
		var page struct {
			Items []struct{ Campaign string }
			Next  string
		}
		r.Ask(t, limited, "GET", who+"?history=1&limit=1&after="+next, nil).Want(t, 200).Into(t, &page)
		seen += len(page.Items)
		raw, err := base64.RawURLEncoding.DecodeString(page.Next)
		if err != nil || strings.Contains(string(raw), a) || strings.Contains(string(raw), "Before") || pages > 20 {
			t.Fatalf("page %d: %q, %v", pages, raw, err)
		}
		if next = page.Next; next != "" {
			r.Ask(t, "", "GET", who+"?history=1&limit=1&after="+next, nil).Want(t, 422) // of another key
		}
	}
	if seen != 1 || pages < 4 {
		t.Errorf("%d coupons on %d pages", seen, pages)
	}
	// By code, the others do not exist.
	r.Ask(t, limited, "POST", "/v1/coupons/search", map[string]any{"code": codes[4]}).Want(t, 200)
	r.Ask(t, limited, "POST", "/v1/coupons/search", map[string]any{"code": codes[0]}).Problem(t, 404, "code_not_found", "")
	r.Ask(t, limited, "POST", "/v1/coupons/search", map[string]any{"code": codes[0], "campaign": a}).Problem(t, 403, "forbidden", "")
	r.Ask(t, limited, "POST", "/v1/coupons/void", map[string]any{"code": codes[0]}).Problem(t, 404, "code_not_found", "")
	r.Ask(t, limited, "POST", "/v1/coupons/void", map[string]any{"code": codes[0], "campaign": b}).Problem(t, 404, "code_not_found", "")
	if got := find(t, r, limited, "customer_id="+url.QueryEscape(ann)); len(got.Items) != 1 {
		t.Errorf("%+v", got)
	}

	// Void and extend, and who did it.
	void := map[string]any{"code": codes[4], "reason": "stolen"}
	done := r.Ask(t, "support", "POST", "/v1/coupons/void", void, "Idempotency-Key", "v").Want(t, 200)
	if again := r.Ask(t, "support", "POST", "/v1/coupons/void", void, "Idempotency-Key", "v").Want(t, 200); again.Header.Get("Idempotency-Replayed") != "true" || done.Object(t)["status"] != "voided" {
		t.Errorf("%s, then %v", done.Body, again.Header)
	}
	r.Ask(t, "support", "POST", "/v1/coupons/extend", map[string]any{"code": codes[4], "expires_at": "2099-01-01T00:00:00Z"}).Problem(t, 409, "voided", "")
	r.Key(t, "analyst")
	if events := string(r.Ask(t, "analyst", "GET", "/v1/events?types=coupon.voided", nil).Want(t, 200).Body); !strings.Contains(events, `"by":"test-support-`) {
		t.Errorf("the event does not name who voided: %s", events)
	}
	if v := r.Ask(t, "support", "POST", "/v1/coupons/extend", map[string]any{"code": codes[1], "expires_at": "2099-01-01T00:00:00Z"}).Want(t, 200).Object(t); v["expires_at"] != "2099-01-01T00:00:00Z" {
		t.Errorf("%v", v)
	}
}

// TestReminders: set, again, cancelled, too late.
func TestReminders(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 3, "opens_at": "2098-01-01T00:00:00Z", "expires_at": "2099-01-01T00:00:00Z"})
	list := "/v1/campaigns/" + c + "/reminders"
	body := map[string]any{"customer_id": "ann & b/b", "kind": "opens", "before": "24h"}
	r.Key(t, "producer")
	made := r.Ask(t, "producer", "POST", list, body).Want(t, 201)
	path := made.Header.Get("Location")
	if v := made.Object(t); v["due_at"] != "2097-12-31T00:00:00Z" || v["customer_id"] != "ann & b/b" || !strings.HasPrefix(path, list+"/ann%20&%20b%2Fb/opens/24h") {
		t.Errorf("%v at %s", v, path)
	}
	if again := r.Ask(t, "producer", "POST", list, body).Want(t, 200); again.Header.Get("Idempotency-Replayed") != "true" {
		t.Error(again.Header)
	}
	state := func(path string) any { return r.Ask(t, "producer", "GET", path, nil).Want(t, 200).Object(t)["state"] }
	if got := state(path); got != "pending" {
		t.Errorf("%s is %v", path, got)
	}
	r.Key(t, "producer+"+c)
	r.Key(t, "producer+customers")
	r.Ask(t, "producer", "POST", list, map[string]any{"customer_id": "eve", "kind": "opens", "before": "1h"}).Want(t, 201)
	listed := func(as, query string) (all []string, next string) {
		var page struct {
			Items []struct{ Customer_ID, Kind, Before, State string }
			Next  string
		}
		r.Ask(t, as, "GET", list+"?"+query, nil).Want(t, 200).Into(t, &page)
		for _, i := range page.Items {
			name, _, _ := strings.Cut(i.Customer_ID, "-") // of a mask, "masked"
			all = append(all, name+" "+i.Kind+" "+i.State)
		}
		return all, page.Next
	}
	apitest.Until(t, "the tables have both", func() bool {
		all, next := listed("producer+customers", "")
		return next == "" && fmt.Sprint(all) == "[eve opens pending ann & b/b opens pending]"
	})
	first, next := listed("producer+"+c, "limit=1")
	second, end := listed("producer+"+c, "limit=1&after="+next)
	if of, _ := listed("producer", "customer_id=eve&state=pending"); fmt.Sprint(first, second, of) != "[masked opens pending] [masked opens pending] [eve opens pending]" || end != "" {
		t.Errorf("%v, %v and %v, then %s", first, second, of, end)
	}
	r.Ask(t, "producer", "GET", list+"?after="+next, nil).Problem(t, 422, "invalid", "query.after") // of another key
	r.Ask(t, "producer", "GET", list+"?state=lost", nil).Problem(t, 422, "invalid", "query.state")
	if v := r.Ask(t, "producer", "DELETE", path, nil).Want(t, 200).Object(t); v["status"] != "reminder_cancelled" {
		t.Errorf("%v", v)
	}
	if again := r.Ask(t, "producer", "DELETE", path, nil).Want(t, 200); again.Header.Get("Idempotency-Replayed") != "true" {
		t.Error(again.Header)
	}
	apitest.Until(t, "the tables have the end", func() bool { return state(path) == "cancelled" })
	r.Ask(t, "producer", "GET", list+"/ann/opens/24h", nil).Problem(t, 404, "not_found", "")
	r.Ask(t, "producer", "GET", list+"/ann/opens/soon", nil).Problem(t, 422, "invalid", "")
	r.Ask(t, "producer", "POST", list, map[string]any{"customer_id": "ann", "kind": "expires", "before": "1h"}).Problem(t, 403, "not_holder", "")
}
