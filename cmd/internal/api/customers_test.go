package api_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestCustomersAreSeenByRight: whatever a key reads shows ids of customers to those with the right, and one and the same mask to all
// others, but a customer that the request names. A key without the right gives it to no other, and has nobody send customers to it.
func TestCustomersAreSeenByRight(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 9, "expires_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	ann := apitest.Name("ann")
	named := map[string]any{"customer_id": ann}
	code := r.Ask(t, "", "POST", "/v1/campaigns/"+c+"/claims", named).Want(t, 201).Object(t)["code"]
	r.Ask(t, "", "POST", "/v1/redemptions", map[string]any{"code": code, "order_id": "o"}).Want(t, 201)
	bea := apitest.Name("bea")
	r.Ask(t, "", "POST", "/v1/campaigns/"+c+"/claims", map[string]any{"customer_id": bea}).Want(t, 201)
	reminders := "/v1/campaigns/" + c + "/reminders"
	remind := map[string]any{"customer_id": bea, "kind": "expires", "before": "1m"}
	r.Ask(t, "", "POST", reminders, remind).Want(t, 201)
	apitest.Until(t, "the tables have all of it", func() bool {
		return strings.Contains(string(r.Ask(t, "", "GET", reminders, nil).Body), bea) &&
			len(find(t, r, "", "campaign="+c+"&status=redeemed").Items) == 1
	})

	lookUps := []string{"/v1/coupons?campaign=" + c, "/v1/coupons?order_id=o&campaign=" + c, "/v1/campaigns/" + c + "/coupons/1?history=1", reminders}
	events, export := "/v1/events?campaign="+c, "/v1/campaigns/"+c+"/codes"
	pattern := regexp.MustCompile(`"customer_id":"(masked-[0-9a-f]+)|,(masked-[0-9a-f]+),(?:claimed|redeemed)`)
	masks := map[string]bool{}
	for role, paths := range map[string][]string{
		"producer": lookUps, "support": lookUps, "operator": append([]string{events, export}, lookUps...), "analyst": {events},
	} {
		for what, sees := range map[string]bool{"": false, "+codes": false, "+customers": true, "+clear": true} {
			as := role + what
			r.Key(t, as)
			for _, path := range paths {
				body := string(r.Ask(t, as, "GET", path, nil).Want(t, 200).Body)
				found := pattern.FindAllStringSubmatch(body, -1)
				if clear := strings.Contains(body, ann) || strings.Contains(body, bea); clear != sees || (len(found) > 0) == sees {
					t.Errorf("%s reads %s: in clear %t, want %t, and masks %q:\n%s", as, path, clear, sees, found, body)
				}
				if sees { // the newest entry of the key is of what it saw
					page := r.Ask(t, "", "GET", "/v1/audit?limit=1&actor="+r.IDs[as], nil).Want(t, 200).Object(t)
					e := page["items"].([]any)[0].(map[string]any)
					kind, action := "lookup", "reminders"
					switch {
					case path == events || path == export:
						kind, action = "export", path[strings.LastIndex(path, "/")+1:]
						action, _, _ = strings.Cut(action, "?")
					case strings.HasPrefix(path, "/v1/coupons"):
						action = "coupons"
					case path != reminders:
						action = "coupon"
					}
					if e["kind"] != kind || e["action"] != action {
						t.Errorf("%s reads %s in clear, which is recorded as %v", as, path, e)
					}
				}
				for _, mask := range found {
					masks[mask[1]+mask[2]] = true
				}
			}
			if role == "analyst" {
				continue
			}
			body := string(r.Ask(t, as, "GET", "/v1/customers/"+ann, nil).Want(t, 200).Body)
			if !strings.Contains(body, ann) || strings.Contains(body, `"customer_id":"masked-`) {
				t.Errorf("%s names the customer, and gets %s", as, body)
			}
		}
	}
	if len(masks) != 2 {
		t.Errorf("two customers have the masks %v", masks)
	}

	// What others looked up and selected, over HTTP and in the audit stream.
	r.Ask(t, "support+customers", "GET", "/v1/customers/"+ann, nil).Want(t, 200)
	void := map[string]any{"customer_id": ann, "most": 9}
	job := r.Ask(t, "operator+customers", "POST", "/v1/campaigns/"+c+"/coupons/void", void).Want(t, 202).Object(t)["id"].(string)
	for _, path := range []string{"/v1/audit?limit=1000", "/v1/jobs/" + job, "/v1/jobs"} {
		for as, sees := range map[string]bool{"operator": false, "operator+customers": true} {
			if body := string(r.Ask(t, as, "GET", path, nil).Want(t, 200).Body); strings.Contains(body, ann) != sees {
				t.Errorf("%s reads %s, and sees the customer: %t, want %t", as, path, !sees, sees)
			}
		}
	}
	started := r.Ask(t, "operator", "GET", "/v1/audit?about="+job, nil).Want(t, 200)
	if !strings.Contains(string(started.Body), "coupons.void") {
		t.Errorf("who does not see customers finds no start of job %s: %s", job, started.Body)
	}
	if body := string(r.Ask(t, "operator", "POST", "/v1/jobs/"+job+"/stop", nil).Body); strings.Contains(body, ann) {
		t.Errorf("who stops the job sees the customer: %s", body)
	}
	for as, most := range map[string]int{"operator": 0, "operator+customers": 1} {
		page := r.Ask(t, as, "GET", "/v1/audit?kind=lookup&limit=1&about="+ann, nil).Want(t, 200).Object(t)
		if n := len(page["items"].([]any)); n != most {
			t.Errorf("%s finds %d entries by the customer", as, n)
		}
	}
	for _, key := range []map[string]any{{"name": "x", "role": "support", "customers": true}, {"name": "x", "role": "sender"}} {
		r.Ask(t, "operator+codes", "POST", "/v1/keys", key).Problem(t, 403, "forbidden", "")
	}
	nc, err := nats.Connect(r.NATS, nats.Token(r.Keys["operator"]), nats.CustomInboxPrefix(natsx.KeyInbox(r.Keys["operator"])))
	streamtest.Must(t, err)
	defer nc.Close()
	m, err := nc.Request("scrip.sender.open", []byte(`{"name":"x"}`), apitest.Patience)
	if err != nil || m.Header.Get("Nats-Service-Error-Code") != "403" {
		t.Errorf("reminders of a key that does not see customers: %+v, %v", m, err)
	}
	hook := map[string]any{"url": "https://shop.example/", "types": []string{"coupon.voided", "coupon.claimed"}}
	r.Ask(t, "operator+codes", "POST", "/v1/webhooks", hook).Problem(t, 403, "forbidden", "")
	hook["types"] = []string{"campaign.ended"}
	if got := r.Ask(t, "operator", "POST", "/v1/webhooks", hook); got.Status == 403 {
		t.Errorf("a webhook that names nobody: %s", got.Body)
	}
}
