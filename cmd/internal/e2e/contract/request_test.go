package contract

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestRequestsMakeTheirIDs: the type is implied, the id optional.
func TestRequestsMakeTheirIDs(t *testing.T) {
	r := server(t)
	c := r.name()
	match(t, r.request(t, "scrip.campaign.create", `{"campaign":"`+c+`","codes":3,"opens_at":"2020-01-01T00:00:00Z"}`), `{"id":"~uuid7","status":"created","campaign":"`+c+`"}`)
	first := r.request(t, "scrip.claim."+c, `{"customer_id":"ann"}`)
	match(t, first, `{"id":"~uuid7","status":"claimed","campaign":"`+c+`","n":1,"code":"~code","?customer_id":"ann"}`)
	again := r.request(t, "scrip.claim."+c, `{"customer_id":"ann"}`) // the same customer, whatever the id
	match(t, again, `{"id":"~uuid7","status":"claimed","campaign":"`+c+`","n":1,"code":"~code","?customer_id":"ann","repeat":true}`)
	if a, b := parse(t, first), parse(t, again); a["id"] == b["id"] || a["code"] != b["code"] {
		t.Errorf("%s, then %s: want other ids and the same code", first, again)
	}
	// The type may be given, if it is the right one; refusals also have a generated id.
	match(t, r.request(t, "scrip.claim."+c, `{"type":"claim","campaign":"`+c+`","customer_id":"bob"}`), `{"id":"~uuid7","status":"claimed","campaign":"`+c+`","n":2,"code":"~code","?customer_id":"bob"}`)
	match(t, r.request(t, "scrip.claim.absent", `{"customer_id":"ann"}`), `{"id":"~uuid7","status":"refused","refusal":"campaign_not_found","message":"~has:absent","campaign":"absent"}`)
	match(t, r.request(t, "scrip.remind."+c, `{"customer_id":"ann","kind":"opens","before":"1m"}`), `{"id":"~uuid7","status":"refused","refusal":"too_late","message":"~text","campaign":"`+c+`"}`)
	match(t, r.request(t, "scrip.unremind."+c, `{"customer_id":"cleo","kind":"expires","before":"1m"}`), `{"id":"~uuid7","status":"refused","refusal":"not_holder","message":"~text","campaign":"`+c+`"}`)
}

// TestValidate answers as redeem would and changes nothing.
func TestValidate(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":3,"expires_at":"2031-01-01T00:00:00Z","benefit":[1,2]`)
	code := r.claim(t, c, "ann")
	validate := func(fields, pattern string) {
		t.Helper()
		for range 2 {
			match(t, r.request(t, "scrip.coupon.validate", fill(`{"id":"v","code":"$1"`+more(fields)+`}`, "$1", code)), fill(pattern, "$1", code, "$c", c))
		}
	}
	const good = `{"id":"v","status":"redeemed","campaign":"$c","n":1,"code":"$1","expires_at":"2031-01-01T00:00:00Z","redeemed_count":1,"benefit":[1,2]`
	validate(``, good+`}`)
	validate(`"order_id":"o"`, good+`,"?order_id":"o"}`)
	validate(`"order_id":"o","customer_id":"ann"`, good+`,"?order_id":"o","customer_id":"ann"}`)
	validate(`"customer_id":"bob"`, `{"id":"v","status":"refused","refusal":"not_holder","message":"~text","campaign":"$c"}`)
	matchRows(t, r.rows(t, `SELECT redeemed_count, status FROM scrip.coupon WHERE campaign = $1`, c), `{"redeemed_count":0,"status":"claimed"}`)
	if n := len(r.subscriber.lines("scrip.evt.", c)); n != 2 {
		t.Errorf("%d events after create and claim: validate is no command", n)
	}
	match(t, r.request(t, "scrip.redeem", `{"id":"r","code":"`+code+`","order_id":"o"}`), fill(strings.Replace(good, `"v"`, `"r"`, 1)+`,"?order_id":"o"}`, "$1", code, "$c", c))
	validate(`"order_id":"o"`, good+`,"?order_id":"o","repeat":true}`)
	validate(`"order_id":"p"`, `{"id":"v","status":"refused","refusal":"already_redeemed","message":"~text","campaign":"$c"}`)
}

// TestShowAndList answer {"data":…}; history comes from the tables.
func TestShowAndList(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":3,"expires_at":"2031-01-01T00:00:00Z","category":"food","valid_for":null`)
	customer := "customer-of-" + c
	code := r.claim(t, c, customer)
	r.request(t, "scrip.redeem", `{"code":"`+code+`","order_id":"the-order"}`)
	r.caught(t)
	data := func(subject, body string) (map[string]any, []any, map[string]any) {
		t.Helper()
		answer := parse(t, r.request(t, subject, body))
		object, _ := answer["data"].(map[string]any)
		list, _ := answer["data"].([]any)
		if object == nil && list == nil {
			t.Fatalf("%s %s has no data: %v", subject, body, answer)
		}
		return object, list, answer
	}
	campaign, _, _ := data("scrip.campaign.show", `{"campaign":"`+c+`"}`)
	for name, want := range map[string]any{"campaign": c, "status": "active", "codes": json.Number("3"), "claimed": json.Number("1"), "redeemed": json.Number("1"),
		"category": "food", "per_customer": json.Number("1"), "max_redemptions": json.Number("1"), "expires_at": "2031-01-01T00:00:00Z", "priority": "normal"} {
		if campaign[name] != want {
			t.Errorf("campaign.show: %s is %v, want %v", name, campaign[name], want)
		}
	}
	coupon, _, whole := data("scrip.coupon.show", `{"code":"`+code+`"}`)
	for name, want := range map[string]any{"campaign": c, "n": json.Number("1"), "code": code, "status": "redeemed", "redeemed_count": json.Number("1"), "expires_at": "2031-01-01T00:00:00Z"} {
		if coupon[name] != want {
			t.Errorf("coupon.show: %s is %v, want %v", name, coupon[name], want)
		}
	}
	if text := fmt.Sprint(whole["history"]); !strings.Contains(text, customer) || !strings.Contains(text, "the-order") {
		t.Errorf("coupon.show has no history: %v", whole)
	}
	_, coupons, whole := data("scrip.customer.show", `{"customer_id":"`+customer+`"}`)
	if len(coupons) != 1 || coupons[0].(map[string]any)["code"] != code {
		t.Errorf("customer.show: %v", coupons)
	}
	if text := fmt.Sprint(whole["history"]); !strings.Contains(text, "the-order") {
		t.Errorf("customer.show has no history: %v", whole)
	}
	if _, none, _ := data("scrip.customer.show", `{"customer_id":"nobody-`+c+`"}`); len(none) != 0 {
		t.Errorf("customer.show of nobody: %v", none)
	}
	for _, body := range []string{``, `{}`} {
		_, all, _ := data("scrip.campaign.list", body)
		var listed []string
		for _, one := range all {
			listed = append(listed, one.(map[string]any)["campaign"].(string))
		}
		if !slices.Contains(listed, c) || !slices.IsSorted(listed) {
			t.Errorf("campaign.list %q: %v", body, listed)
		}
	}
	match(t, r.request(t, "scrip.campaign.show", `{"campaign":"absent"}`), `{"status":"refused","refusal":"campaign_not_found","message":"~has:absent","campaign":"absent"}`)
}

// TestHistoryThatIsAway is left out, and the answer says so.
func TestHistoryThatIsAway(t *testing.T) {
	t.Parallel()
	r := serve(t, projtest.Dir(t), []string{"--roles", withoutTables}, nil)
	r.create(t, "summer", `"codes":1`)
	code := r.claim(t, "summer", "ann")
	const coupon = `{"campaign":"summer","n":1,"code":"$1","status":"claimed","redeemed_count":0}`
	match(t, r.request(t, "scrip.coupon.show", `{"code":"`+code+`"}`), fill(`{"data":`+coupon+`,"history_unavailable":"~text"}`, "$1", code))
	match(t, r.request(t, "scrip.customer.show", `{"customer_id":"ann"}`), fill(`{"data":[`+coupon+`],"history_unavailable":"~text"}`, "$1", code))
}

// TestTheServiceIsAMicroService: it is found, and says what it answers on.
func TestTheServiceIsAMicroService(t *testing.T) {
	r := server(t)
	var info micro.Info
	reply, err := r.nc.Request("$SRV.INFO.scrip", nil, patience)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(reply.Data, &info); err != nil || info.Name != "scrip" {
		t.Fatalf("%s, %v", reply.Data, err)
	}
	var subjects []string
	for _, e := range info.Endpoints {
		subjects = append(subjects, e.Subject)
	}
	for _, want := range []string{"scrip.claim.*", "scrip.remind.*", "scrip.unremind.*", "scrip.redeem", "scrip.rollback", "scrip.void", "scrip.extend",
		"scrip.coupon.validate", "scrip.coupon.show", "scrip.customer.show", "scrip.campaign.create", "scrip.campaign.update", "scrip.campaign.pause",
		"scrip.campaign.resume", "scrip.campaign.end", "scrip.campaign.list", "scrip.campaign.show"} {
		if !slices.Contains(subjects, want) {
			t.Errorf("nothing answers on %s, only on %v", want, subjects)
		}
	}
}

// TestAnUnknownResultIsAMicroError: without an owner no command is decided: 503 with the id, under which the request is retried.
// On a NATS server without the mapping, what producers publish is forwarded, with reply and headers unchanged.
func TestAnUnknownResultIsAMicroError(t *testing.T) {
	t.Parallel()
	srv := streamtest.Start(t)
	key := "SCRIP_CODE_KEY=" + strings.Repeat("0123456789abcdef", 4)
	start := func(roles string) *e2e.Process {
		p, err := e2e.Start(projtest.Dir(t), t.TempDir()+"/log", []string{"--nats", srv.ClientURL(), "--roles", roles}, []string{key})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		if _, err := p.Ready(); err != nil {
			t.Fatalf("%v\n%s", err, p.Output())
		}
		return p
	}
	lanes := start("lanes")
	start("api")
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	r := &rig{nc: nc}
	r.create(t, "summer", `"codes":9`)
	match(t, r.one(t, "scrip.cmd.summer", claimLine("mapped", "ann")), `{"id":"mapped","status":"claimed","campaign":"summer","n":1,"code":"~code","?customer_id":"ann"}`)
	if code, err := lanes.Stop(); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v", code, err)
	}
	failed := func(subject, body, id string) {
		t.Helper()
		reply, err := nc.Request(subject, []byte(body), patience)
		if err != nil {
			t.Fatal(err)
		}
		if reply.Header.Get("Nats-Service-Error-Code") != "503" || reply.Header.Get("Nats-Service-Error") == "" {
			t.Errorf("%s %s was answered %v %s, want a micro error 503", subject, body, reply.Header, reply.Data)
		}
		if id == "" {
			return
		}
		if answer := parse(t, reply.Data); answer["id"] != id || answer["status"] != nil || answer["refusal"] != nil {
			t.Errorf("an unknown result says %s: it must have the id and is never called refused", reply.Data)
		}
	}
	failed("scrip.claim.summer", `{"id":"later","customer_id":"bob"}`, "later")
	failed("scrip.campaign.show", `{"campaign":"summer"}`, "")
	start("lanes")
	eventually(t, "a retry under the same id", func() bool {
		reply, err := nc.Request("scrip.claim.summer", []byte(`{"id":"later","customer_id":"bob"}`), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(reply.Data), `"status":"claimed"`) && strings.Contains(string(reply.Data), `"n":2`)
	})
}
