package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
)

// TestCursorsOfOtherRequests: of each route that has pages and carries out no action, a cursor goes on with its own request and another
// limit, and is refused at after with any other. Package ops shows that of actions; one of them is shown here.
func TestCursorsOfOtherRequests(t *testing.T) {
	r := apitest.Shared(t)
	r.Key(t, "operator")
	r.Key(t, "analyst")
	a, b := r.Campaign(t, map[string]any{"codes": 100, "per_customer": 9}), r.Campaign(t, map[string]any{"codes": 100})
	ann, order := apitest.Name("ann"), apitest.Name("order")
	code := r.Claim(t, a, ann)
	r.Redeem(t, code, order)
	r.Claim(t, a, ann)
	for _, batch := range []string{"x", "y"} {
		r.Ask(t, "operator", "POST", "/v1/campaigns/"+a+"/allotments", map[string]any{"batch": batch, "count": 1}).Want(t, 201)
	}
	apitest.Until(t, "the tables have the redemption", func() bool {
		history, _ := r.Ask(t, "operator", "GET", "/v1/campaigns/"+a+"/coupons/1?history=1", nil).Want(t, 200).Object(t)["history"].([]any)
		return len(history) == 2
	})
	lists := map[string]struct {
		as, path string
		others   []string
	}{
		"listCampaigns":  {"operator", "/v1/campaigns?", nil},
		"getCoupon":      {"operator", "/v1/campaigns/" + a + "/coupons/1?history=1&", []string{"/v1/campaigns/" + a + "/coupons/2?history=1&", "/v1/campaigns/" + b + "/coupons/1?history=1&", "/v1/campaigns/" + a + "/coupons/1?history=1&order_id=" + order + "&"}},
		"getRedemption":  {"operator", "/v1/campaigns/" + a + "/coupons/1/redemptions/" + order + "?history=1&", []string{"/v1/campaigns/" + a + "/coupons/1?history=1&"}},
		"getCustomer":    {"operator", "/v1/customers/" + ann + "?", []string{"/v1/customers/bob?"}},
		"listAllotments": {"operator", "/v1/campaigns/" + a + "/allotments?", []string{"/v1/campaigns/" + b + "/allotments?"}},
		"listCoupons": {"operator", "/v1/coupons?campaign=" + a + "&", []string{"/v1/coupons?campaign=" + b + "&", "/v1/coupons?campaign=" + a + "&status=claimed&",
			"/v1/coupons?customer_id=" + ann + "&"}},
	}
	for _, route := range api.New(http.NewServeMux(), api.Options{}).Routes() {
		list, known := lists[route.ID]
		if !known {
			if route.Action == "" && route.ID != "searchCoupons" && route.ID != "readEvents" && pages(t, r, route.ID) {
				t.Errorf("%s has pages, and is not looked at", route.ID)
			}
			continue
		}
		next := r.Ask(t, list.as, "GET", list.path+"limit=1", nil).Want(t, 200).Object(t)["next"]
		if next == nil {
			t.Errorf("%s has one page", route.ID)
			continue
		}
		r.Ask(t, list.as, "GET", fmt.Sprint(list.path, "limit=2&after=", next), nil).Want(t, 200)
		for _, other := range list.others {
			r.Ask(t, list.as, "GET", fmt.Sprint(other, "limit=1&after=", next), nil).Problem(t, 422, "invalid", "query.after")
		}
	}

	search := func(about map[string]any) *apitest.Response {
		return r.Ask(t, "operator", "POST", "/v1/coupons/search", about)
	}
	next := search(map[string]any{"code": code, "history": true, "limit": 1}).Want(t, 200).Object(t)["next"]
	search(map[string]any{"code": code, "history": true, "limit": 2, "after": next}).Want(t, 200)
	search(map[string]any{"campaign": a, "n": 2, "history": true, "after": next}).Problem(t, 422, "invalid", "body.after")

	_, cursor := events(t, r, "analyst", "types=coupon.claimed,coupon.redeemed&campaign="+a)
	for _, same := range []string{"types=coupon.redeemed,coupon.claimed&campaign=" + a, "campaign=" + a + "&types=coupon.claimed,coupon.redeemed,coupon.claimed"} {
		if more, _ := events(t, r, "analyst", same+"&after="+cursor); len(more) != 0 {
			t.Errorf("%s: %+v", same, more)
		}
	}
	for _, other := range []string{"", "types=coupon.claimed,coupon.redeemed", "campaign=" + a, "types=coupon.claimed&campaign=" + a, "types=coupon.claimed,coupon.redeemed&campaign=" + b} {
		r.Ask(t, "analyst", "GET", "/v1/events?"+other+"&after="+cursor, nil).Problem(t, 422, "invalid", "query.after")
	}
}

// pages reports whether a route takes a cursor, by the document.
func pages(t *testing.T, r *apitest.Rig, id string) bool {
	t.Helper()
	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	r.Ask(t, "-", "GET", "/v1/openapi.json", nil).Want(t, 200).Into(t, &document)
	for _, methods := range document.Paths {
		for _, raw := range methods {
			var operation struct {
				ID         string `json:"operationId"`
				Parameters []struct{ Name string }
			}
			if json.Unmarshal(raw, &operation) == nil && operation.ID == id {
				return strings.Contains(string(raw), `"name":"after"`)
			}
		}
	}
	t.Errorf("the document has no %s", id)
	return false
}
