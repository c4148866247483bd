package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// TestAnOperatorWithoutCodesFindsNoRoadToThem: whatever such an operator may make, replace or request, itself or with a key that it
// has made, shows no code of a coupon that was claimed before. A code that its producer claims is that producer's, again for a repeat
// of the request.
func TestAnOperatorWithoutCodesFindsNoRoadToThem(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 9})
	r.Key(t, "operator")
	ann, claims := apitest.Name("ann"), "/v1/campaigns/"+c+"/claims"
	named := map[string]any{"customer_id": ann}
	make := func(as string, more map[string]any) (name string, answer *apitest.Response) {
		body := map[string]any{"name": apitest.Name("road"), "role": "producer"}
		for field, value := range more {
			body[field] = value
		}
		answer = r.Ask(t, as, "POST", "/v1/keys", body)
		if name = body["name"].(string); answer.Status == 201 {
			v := answer.Object(t)
			r.Keys[name], r.IDs[name] = v["secret"].(string), v["id"].(string)
			apitest.Until(t, "the key is in force", func() bool { return r.Ask(t, name, "GET", "/v1/settings", nil).Status != 401 })
		}
		return name, answer
	}
	shop, _ := make("", nil)
	page, _ := make("", map[string]any{"public": true})
	first := r.Ask(t, shop, "POST", claims, named, "Idempotency-Key", "order-1").Want(t, 201)
	code := first.Object(t)["code"].(string)
	bea := map[string]any{"customer_id": apitest.Name("bea")}
	onPage := r.Ask(t, page, "POST", claims, bea).Want(t, 201)
	other := onPage.Object(t)["code"].(string)
	hides := func(what string, answer []byte) {
		t.Helper()
		if strings.Contains(string(answer), code) || strings.Contains(string(answer), other) {
			t.Errorf("%s shows a code: %s", what, answer)
		}
	}

	// Keys that see codes, and those whose commands a new key would repeat.
	for _, role := range []string{"producer", "analyst", "support", "operator"} {
		_, refused := make("operator", map[string]any{"role": role, "codes": true})
		refused.Problem(t, 403, "forbidden", "")
	}
	blind, made := make("operator", nil)
	if made.Object(t)["new_codes_only"] != true {
		t.Errorf("made %s", made.Body)
	}
	for _, name := range []string{shop, blind} {
		r.Ask(t, "operator", "POST", "/v1/keys/"+r.IDs[name]+"/rotate", nil).Problem(t, 403, "forbidden", "")
	}
	r.Ask(t, "operator", "POST", "/v1/webhooks", map[string]any{"url": "https://shop.example/", "types": []string{"coupon.claimed"}, "codes": true}).Problem(t, 403, "forbidden", "")
	r.Ask(t, "operator", "PATCH", "/v1/keys/"+r.IDs[blind], map[string]any{"codes": true}).Want(t, 405)
	made = r.Ask(t, "", "POST", "/v1/keys/"+r.IDs[blind]+"/rotate", map[string]any{"overlap": "1h"}).Want(t, 200)
	if made.Object(t)["new_codes_only"] != true {
		t.Errorf("replaced by %s", made.Body)
	}

	// Claims for customers who have one: with new ids, with those of the shop, and with those that a server made.
	ids := []string{"new", "order-1", first.Header.Get("Scrip-Command-Id"), onPage.Header.Get("Scrip-Command-Id")}
	nc, err := nats.Connect(r.NATS, nats.Token(r.Keys[blind]), nats.CustomInboxPrefix(natsx.KeyInbox(r.Keys[blind])),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // it publishes what it may not
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ask := func(subject string, body any) []byte {
		t.Helper()
		raw, _ := json.Marshal(body)
		m, err := nc.Request(subject, raw, apitest.Patience)
		if err != nil {
			t.Fatalf("%s: %v", subject, err)
		}
		return m.Data
	}
	for _, id := range ids {
		for _, customer := range []any{ann, bea["customer_id"]} {
			line := map[string]any{"id": id, "type": "claim", "campaign": c, "customer_id": customer}
			raw, _ := json.Marshal(line)
			for _, as := range []string{blind, "operator", page} {
				hides(as+" claims with "+id, r.Ask(t, as, "POST", claims, map[string]any{"customer_id": customer}, "Idempotency-Key", id).Body)
			}
			for _, as := range []string{blind, "operator"} {
				hides(as+" claims in lines", r.Ask(t, as, "POST", "/v1/commands", string(raw), "Content-Type", "application/x-ndjson").Want(t, 200).Body)
			}
			hides("a claim over NATS", ask("scrip.claim."+c, map[string]any{"id": id, "customer_id": customer}))
		}
	}
	hides("claims over NATS", ask("scrip.claim."+c, json.RawMessage(`{"id":"order-1","customer_id":"`+ann+`"}`)))

	// Look-ups.
	n := fmt.Sprint(first.Object(t)["n"])
	apitest.Until(t, "the tables have both", func() bool { return len(find(t, r, "", "campaign="+c).Items) == 2 })
	for _, as := range []string{blind, "operator"} {
		for _, path := range []string{"/v1/campaigns/" + c + "/coupons/" + n + "?history=1", "/v1/coupons?campaign=" + c, "/v1/coupons?customer_id=" + ann, "/v1/customers/" + ann + "?history=1",
			"/v1/campaigns/" + c + "/codes", "/v1/events?campaign=" + c, "/v1/commands/" + first.Header.Get("Scrip-Command-Id")} {
			hides(as+" reads "+path, r.Ask(t, as, "GET", path, nil).Body)
		}
	}
	for subject, body := range map[string]any{"scrip.coupon.show": map[string]any{"campaign": c, "n": json.RawMessage(n), "history": true}, "scrip.customer.show": named, "scrip.coupon.list": named} {
		hides(subject, ask(subject, body))
	}
	if perms := nc.Publish("scrip.cmd."+c, []byte("{}")); perms != nil || nc.FlushTimeout(time.Minute) != nil || nc.LastError() == nil {
		t.Errorf("it may publish to the log: %v, %v", perms, nc.LastError())
	}

	// What is new is its own.
	eve := map[string]any{"customer_id": apitest.Name("eve")}
	mine := r.Ask(t, blind, "POST", claims, eve, "Idempotency-Key", "secret").Want(t, 201).Object(t)["code"]
	if again := r.Ask(t, blind, "POST", claims, eve, "Idempotency-Key", "secret").Want(t, 200).Object(t); mine == nil || again["code"] != mine {
		t.Errorf("claimed %v, then %v", mine, again)
	}
	line := `{"id":"mine","type":"claim","campaign":"` + c + `","customer_id":"` + apitest.Name("eve") + `"}`
	many := func() *apitest.Response {
		return r.Ask(t, blind, "POST", "/v1/commands", line, "Content-Type", "application/x-ndjson", "Idempotency-Key", "lines").Want(t, 200)
	}
	if lines, again := many(), many(); lines.Object(t)["code"] == nil || string(again.Body) != string(lines.Body) || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("lines %s, then %s", lines.Body, again.Body)
	}
}
