package api_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestWhatWasMadeIsThere: the Location of a claim and of a redemption can be read at once, by a producer within its campaigns, without
// the code unless its key sees codes; what it sees in clear is recorded.
func TestWhatWasMadeIsThere(t *testing.T) {
	r := apitest.Shared(t)
	c, other := r.Campaign(t, map[string]any{"codes": 9}), r.Campaign(t, map[string]any{"codes": 9})
	r.Claim(t, other, "ann")
	for _, as := range []string{"producer", "producer+clear", "producer+public", "producer+" + other, "analyst"} {
		r.Key(t, as)
	}
	claims := "/v1/campaigns/" + c + "/claims"
	if made := r.Ask(t, "producer+public", "POST", claims, map[string]any{"customer_id": "page"}).Want(t, 201); made.Header.Get("Location") != "" {
		t.Errorf("a public key gets Location %s", made.Header.Get("Location"))
	}
	made := r.Ask(t, "producer", "POST", claims, map[string]any{"customer_id": "ann"}).Want(t, 201)
	at, code := made.Header.Get("Location"), made.Object(t)["code"].(string)
	shown := func(as, at string) map[string]any {
		t.Helper()
		return r.Ask(t, as, "GET", at, nil).Want(t, 200).Object(t)
	}
	if v := shown("producer", at); at != "/v1/campaigns/"+c+"/coupons/2" || v["n"] != 2.0 || v["status"] != "claimed" || v["code"] != "****-****-"+code[len(code)-4:] {
		t.Errorf("%s is %v", at, v)
	}
	if v := shown("producer+clear", at); v["code"] != code {
		t.Errorf("%s is %v", at, v)
	}
	if log := string(r.Ask(t, "", "GET", "/v1/audit?kind=lookup", nil).Want(t, 200).Body); !strings.Contains(log, fmt.Sprintf(`"about":"%s 2 by n"`, c)) {
		t.Errorf("the audit stream has %s", log)
	}
	use := map[string]any{"code": code, "order_id": "a/b 1"}
	order := r.Ask(t, "producer", "POST", "/v1/redemptions", use).Want(t, 201).Header.Get("Location")
	if v := shown("producer", order); order != at+"/redemptions/a%2Fb%201" || v["order_id"] != "a/b 1" || v["order_status"] != "redeemed" || v["status"] != "redeemed" || v["code"] == code {
		t.Errorf("%s is %v", order, v)
	}
	r.Ask(t, "producer", "POST", "/v1/rollbacks", use).Want(t, 201)
	if v := shown("producer", order); v["order_status"] != "rolled_back" || v["status"] != "claimed" {
		t.Errorf("%s is %v", order, v)
	}
	apitest.Until(t, "the tables have the history", func() bool { h, _ := shown("producer", order+"?history=1")["history"].([]any); return len(h) == 3 })
	for _, path := range []string{at, at + "?history=0", order, "/v1/customers/ann"} { // without, and what else the tables have
		if v := shown("producer+clear", path); v["history"] != nil || v["history_unavailable"] != nil || v["customer_id"] != "ann" {
			t.Errorf("%s is %v", path, v)
		}
	}
	r.Ask(t, "producer", "GET", at+"?history=yes", nil).Problem(t, 422, "invalid", "query.history")
	r.Ask(t, "producer", "GET", at+"?after=x", nil).Problem(t, 422, "invalid", "query.after")
	r.Ask(t, "producer", "GET", at+"/redemptions/none", nil).Problem(t, 404, "not_found", "")
	r.Ask(t, "producer", "GET", "/v1/campaigns/"+other+"/coupons/2", nil).Problem(t, 404, "code_not_found", "") // n of another campaign
	r.Ask(t, "producer", "GET", "/v1/campaigns/"+c+"/coupons/0", nil).Problem(t, 422, "invalid", "path.n")
	for _, path := range []string{at, order} {
		r.Ask(t, "producer+"+other, "GET", path, nil).Problem(t, 403, "forbidden", "")
		r.Ask(t, "producer+public", "GET", path, nil).Problem(t, 403, "forbidden", "")
		r.Ask(t, "analyst", "GET", path, nil).Problem(t, 403, "forbidden", "")
	}
}

// TestAProducerReadsItsCampaigns: over HTTP and NATS, a key that is limited to a campaign sees of customers and campaigns only what is
// of that one, page by page; and no page of another key.
func TestAProducerReadsItsCampaigns(t *testing.T) {
	r := apitest.Shared(t)
	ann := apitest.Name("ann")
	var mine []string
	for range 5 { // 1 and 3 are the key's: pages have hidden entries before, between and after them
		c := r.Campaign(t, map[string]any{"codes": 9, "per_customer": 2})
		r.Claim(t, c, ann)
		mine = append(mine, c)
	}
	as := "producer+" + mine[1] + "," + mine[3]
	u, err := url.Parse(r.NATS)
	streamtest.Must(t, err)
	u.User = url.User(r.Key(t, as))
	shop, err := client.Connect(u.String())
	streamtest.Must(t, err)
	defer shop.Close()
	want := fmt.Sprint([]string{mine[1], mine[3]})
	for what, page := range map[string]func(after string) (all []string, next string){
		"a customer over NATS": func(after string) (all []string, next string) {
			v, err := shop.Customer(t.Context(), ann, client.Page{Limit: 1, After: after})
			streamtest.Must(t, err)
			for _, c := range v.Items {
				all = append(all, c.Campaign)
			}
			return all, v.Next
		},
		"campaigns over NATS": func(after string) (all []string, next string) {
			list, next, err := shop.Campaigns(t.Context(), client.Page{Limit: 100, After: after})
			streamtest.Must(t, err)
			for _, c := range list {
				all = append(all, c.Campaign)
			}
			return all, next
		},
		"a customer over HTTP": func(after string) ([]string, string) {
			return campaignsOf(t, r, as, "/v1/customers/"+ann+"?limit=1&after="+after)
		},
		"a customer with history": func(after string) ([]string, string) {
			return campaignsOf(t, r, as, "/v1/customers/"+ann+"?history=1&limit=1&after="+after)
		},
		"coupons over HTTP": func(after string) ([]string, string) {
			return campaignsOf(t, r, as, "/v1/coupons?limit=1&customer_id="+ann+"&after="+after)
		},
		"campaigns over HTTP": func(after string) ([]string, string) {
			return campaignsOf(t, r, as, "/v1/campaigns?limit=1&after="+after)
		},
	} {
		apitest.Until(t, what, func() bool { // the tables have it
			var all []string
			for after, n := "", 0; n == 0 || after != ""; n++ {
				some, next := page(after)
				all, after = append(all, some...), next
			}
			return fmt.Sprint(all) == want
		})
	}
	if v, err := shop.CustomerHistory(t.Context(), ann, client.Page{}); err != nil || strings.Contains(string(v.History.History), mine[0]) || !strings.Contains(string(v.History.History), mine[1]) {
		t.Errorf("the history is %s, %v", v.History.History, err)
	}
	if v, err := shop.Coupon(t.Context(), "", client.Campaign(mine[1]), client.N(1)); err != nil || !strings.HasPrefix(v.Code, "****") {
		t.Errorf("%+v, %v", v, err)
	}
	if _, err := shop.Coupon(t.Context(), "", client.Campaign(mine[0]), client.N(1)); err == nil {
		t.Error("a coupon of another campaign is shown")
	}
	r.Key(t, "support")
	_, next := campaignsOf(t, r, "support", "/v1/coupons?limit=1&customer_id="+ann)
	r.Ask(t, as, "GET", "/v1/coupons?limit=1&customer_id="+ann+"&after="+next, nil).Problem(t, 422, "invalid", "query.after")
}

// campaignsOf are the campaigns in a page.
func campaignsOf(t *testing.T, r *apitest.Rig, as, path string) (all []string, next string) {
	t.Helper()
	var page struct {
		Items []struct{ Campaign string }
		Next  string
	}
	r.Ask(t, as, "GET", path, nil).Want(t, 200).Into(t, &page)
	for _, i := range page.Items {
		all = append(all, i.Campaign)
	}
	return all, page.Next
}
