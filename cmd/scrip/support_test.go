package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestSupportsDay: with a key of support as it is made without flags, the same through HTTP, NATS and the command line: find a
// coupon by the end of its code, void, extend and roll back by number, void a list after a dry run, and look at what happened and at
// what is due. No answer has a code. A change of many whose server is killed goes on when it is sent again.
func TestSupportsDay(t *testing.T) {
	data := projtest.Dir(t)
	p := serve(t, data)
	_, key := p.keyURL("sue", "support")
	secret, err := url.Parse(key)
	streamtest.Must(t, err)
	send := func(route, fields string, header ...string) string {
		t.Helper()
		method, path, _ := strings.Cut(route, " ")
		body := io.Reader(strings.NewReader(fields))
		if method == http.MethodGet {
			var all map[string]string
			streamtest.Must(t, json.Unmarshal([]byte(fields), &all))
			query := url.Values{}
			for name, value := range all {
				if !strings.Contains(path, value) {
					query.Set(name, value)
				}
			}
			path, body = path+"?"+query.Encode(), http.NoBody
		}
		req, err := http.NewRequest(method, natsx.WithoutUser(p.ready().HTTPURL)+path, body)
		streamtest.Must(t, err)
		req.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + secret.User.Username()}}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		streamtest.Must(t, err)
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		streamtest.Must(t, err)
		return string(answer)
	}
	nc, err := nats.Connect(key, natsx.Keyed(key, natsx.Options("test")...)...)
	streamtest.Must(t, err)
	defer nc.Close()
	type step struct{ route, endpoint, args, fields, want string }
	doors := map[string]func(step) string{
		"http": func(s step) string { return send(s.route, s.fields) },
		"nats": func(s step) string {
			m, err := nc.Request("scrip."+s.endpoint, []byte(s.fields), 20*time.Second)
			streamtest.Must(t, err)
			return string(m.Data)
		},
		"cli": func(s step) string {
			got := scrip(t, nil, append(strings.Fields(s.args), "-o", "json", "--timeout", "1m", "--nats", key)...)
			return got.out + got.err
		},
	}
	// ended is the answer of a job once it has ended.
	ended := func(answer string) string {
		_, id, isJob := strings.Cut(answer, `"id":"coupons-`)
		if isJob {
			id = "coupons-" + id[:strings.IndexByte(id, '"')]
			streamtest.Eventually(t, id+" has ended", func() bool {
				answer = scrip(t, nil, "job", "show", id, "-o", "json", "--timeout", "1m", "--nats", key).out
				return strings.Contains(answer, `"matched"`) && !strings.Contains(answer, `"state"`)
			})
		}
		return answer
	}
	for door, do := range doors {
		c := "day-" + door
		p.must("campaign", "create", c, "--codes", "20")
		var codes []string
		for i := range 6 {
			codes = append(codes, p.must("claim", c, "--customer", fmt.Sprint("k", i))["code"].(string))
		}
		p.must("redeem", codes[0], "--order", "o")
		p.row("6 1", `SELECT sum(claimed) || ' ' || sum(redeemed) FROM scrip.campaign_stats WHERE campaign = $1 AND attribute = ''`, c)
		last := codes[2][len(codes[2])-4:]
		for _, s := range []step{
			{"GET /v1/coupons", "coupon.list", "coupon list --campaign CAMPAIGN --last-four " + last, `{"campaign":"CAMPAIGN","last_four":"` + last + `"}`, `"n":3,"code":"****-****-` + last + `"`},
			{"POST /v1/coupons/void", "void", "void --campaign CAMPAIGN --n 3 --reason stolen", `{"campaign":"CAMPAIGN","n":3,"reason":"stolen"}`, `"status":"voided"`},
			{"POST /v1/coupons/extend", "extend", "extend --campaign CAMPAIGN --n 2 --expires 2099-01-01T00:00:00Z", `{"campaign":"CAMPAIGN","n":2,"expires_at":"2099-01-01T00:00:00Z"}`, `"status":"extended"`},
			{"POST /v1/rollbacks", "rollback", "rollback --campaign CAMPAIGN --n 1 --order o", `{"campaign":"CAMPAIGN","n":1,"order_id":"o"}`, `"status":"rolled_back"`},
			{"POST /v1/campaigns/CAMPAIGN/coupons/void", "coupons.void", "coupons void CAMPAIGN --n 3,4,5 --dry-run", `{"campaign":"CAMPAIGN","n":[3,4,5],"dry_run":true}`, `"matched":3,"done":0,"repeated":0`},
			{"POST /v1/campaigns/CAMPAIGN/coupons/void", "coupons.void", "coupons void CAMPAIGN --n 3,4,5 --most 3", `{"campaign":"CAMPAIGN","n":[3,4,5],"most":3}`, `"matched":3,"done":2,"repeated":1`},
			{"GET /v1/campaigns/CAMPAIGN/statistics", "campaign.statistics", "campaign statistics CAMPAIGN", `{"campaign":"CAMPAIGN"}`, `"claimed":6,"redeemed":1`},
			{"GET /v1/due", "due.list", "due", `{}`, `"backlog":[]`},
		} {
			if door == "http" {
				s.fields = strings.Replace(s.fields, `"campaign":"CAMPAIGN",`, map[bool]string{true: ``, false: `"campaign":"CAMPAIGN",`}[strings.HasPrefix(s.route, "POST /v1/campaigns")], 1)
			}
			for _, text := range []*string{&s.route, &s.args, &s.fields} {
				*text = strings.ReplaceAll(*text, "CAMPAIGN", c)
			}
			answer := ended(do(s))
			if !strings.Contains(answer, s.want) {
				t.Errorf("%s: %s: %s, want %s", door, s.args, answer, s.want)
			}
			for _, code := range codes {
				if strings.Contains(answer, code) {
					t.Errorf("%s: %s shows a code: %s", door, s.args, answer)
				}
			}
		}
	}

	// A change of many whose server is killed.
	const many = 20_000
	p.must("campaign", "create", "many", "--codes", fmt.Sprint(many))
	shop, err := client.Connect(p.ready().NATSURL)
	streamtest.Must(t, err)
	defer shop.Close()
	claimed := make(chan error, many)
	for i := range many {
		cmd := wire.Command{Type: wire.Claim, Campaign: "many", CustomerID: fmt.Sprint("k", i)}
		streamtest.Must(t, shop.DoAsync(t.Context(), cmd, func(_ wire.Outcome, err error) { claimed <- err }))
	}
	for range many {
		streamtest.Must(t, <-claimed)
	}
	p.row(fmt.Sprint(many), `SELECT count(*)::text FROM scrip.coupon WHERE campaign = 'many'`)
	extend := func() string {
		return send("POST /v1/campaigns/many/coupons/extend", `{"all":true,"most":20000,"expires_at":"2099-01-01T00:00:00Z"}`, "Idempotency-Key", "one")
	}
	first := extend()
	streamtest.Eventually(t, "it has changed some", func() bool {
		got := scrip(t, nil, "job", "list", "-o", "json", "--nats", key)
		return strings.Contains(got.out, `"phase":"changing"`) || strings.Contains(got.out, `"state":"done"`)
	})
	p.stop(syscall.SIGKILL)
	p = serve(t, data)
	if _, key = p.keyURL("sue2", "support"); !strings.Contains(first, `"state":"waiting"`) {
		t.Fatal(first)
	}
	again := extend()
	id := func(job string) string { return job[:strings.IndexByte(job, ',')] }
	if answer := ended(again); id(again) != id(first) || !strings.Contains(answer, `"matched":20000`) || strings.Contains(answer, "refused") {
		t.Errorf("%s and again %s: %s", first, again, answer)
	}
	p.row("20000 20000", `SELECT count(*) || ' ' || count(DISTINCT n) FROM scrip_tables.coupon_event WHERE campaign = 'many' AND what = 'extended'`)
}
