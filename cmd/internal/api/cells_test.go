package api_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// cellTable is who may use which route: method, path, kinds, and a body with which the request has its effect. Kinds are
// P producer, B public, S sender, A analyst, U support, O operator, L operator limited to campaigns; * is everybody, also without a
// key. $… is a value that fixture makes. The rows are written down here and follow from nothing, so that a change of the product
// is noticed.
const cellTable = `
POST   /v1/campaigns/{campaign}/claims               PBOL  {"customer_id":"$new"}
POST   /v1/redemptions                               POL   {"code":"$code","order_id":"$new","campaign":"$summer"}
POST   /v1/rollbacks                                 PUOL  {"code":"$redeemed","order_id":"$order","campaign":"$summer"}
POST   /v1/validations                               PBUOL {"code":"$code","campaign":"$summer"}
POST   /v1/commands                                  POL   {"id":"$new","type":"claim","campaign":"$summer","customer_id":"$new"}
GET    /v1/campaigns                                 UOL
POST   /v1/campaigns                                 OL    {"campaign":"$name","codes":5}
GET    /v1/campaigns/{campaign}                      UOL
PATCH  /v1/campaigns/{fresh}                         OL    {"max_redemptions":2}
POST   /v1/campaigns/{fresh}/pause                   OL
POST   /v1/campaigns/{fresh}/resume                  OL
POST   /v1/campaigns/{fresh}/end                     OL
GET    /v1/coupons?code=$code&campaign=$summer       UOL
POST   /v1/coupons/search                            UOL   {"code":"$code","campaign":"$summer"}
POST   /v1/coupons/void                              UOL   {"code":"$code","campaign":"$summer","reason":"lost"}
POST   /v1/coupons/extend                            UOL   {"code":"$code","campaign":"$summer","expires_at":"2999-01-01T00:00:00Z"}
GET    /v1/customers/{customer}                      UOL
PUT    /v1/campaigns/{campaign}/reminders/{customer}?kind=expires&before=24h POL
DELETE /v1/campaigns/{campaign}/reminders/{reminded}?kind=expires&before=24h POL
POST   /v1/campaigns/{imported}/codes                OL    $rows
GET    /v1/campaigns/{campaign}/coupons.csv          OL
GET    /v1/events?campaign=$summer                   AOL
GET    /v1/status                                    O
GET    /v1/settings                                  O
GET    /v1/settings/history                          O
PATCH  /v1/settings                                  O     {"reminder.batch":"$small"}
GET    /v1/dead-letters                              O
GET    /v1/dead-letters/one?id=$letter               O
POST   /v1/dead-letters/retry                        O     {"id":"$letter","lines":["$line"]}
POST   /v1/dead-letters/discard                      O     {"ids":["$letter"]}
GET    /v1/keys                                      O
POST   /v1/keys                                      O     {"name":"$new","role":"support"}
POST   /v1/keys/{key}/rotate                         O     {}
DELETE /v1/keys/{key}                                O
GET    /v1/webhooks                                  O
POST   /v1/webhooks                                  O     {"url":"$url","types":["coupon.claimed"]}
GET    /v1/webhooks/{webhook}                        O
PATCH  /v1/webhooks/{webhook}                        O     {"rate":7}
DELETE /v1/webhooks/{webhook}                        O
POST   /v1/webhooks/{webhook}/rotate                 O
POST   /v1/webhooks/{webhook}/pause                  O
POST   /v1/webhooks/{webhook}/resume                 O
POST   /v1/webhooks/{webhook}/replay                 O     {"from":"2020-01-01T00:00:00Z"}
POST   /v1/webhooks/{webhook}/test                   O
GET    /v1/webhooks/{webhook}/dead-letters           O
POST   /v1/webhooks/{webhook}/dead-letters/retry     O
GET    /v1/audit                                     O
POST   /v1/rebuilds                                  O     {}
POST   /v1/rebuilds/undo                             O
POST   /v1/rebuilds/drop-previous                    O
POST   /v1/verifications                             O     {}
POST   /v1/backups                                   O     {"name":"$new"}
GET    /v1/jobs                                      O
GET    /v1/jobs/{id}                                 O
GET    /v1/openapi.json                              *
`

// kindNames are the kinds of keys, as apitest names them; - is none.
var kindNames = map[byte]string{'P': "producer", 'B': "producer+public", 'S': "sender", 'A': "analyst", 'U': "support", 'O': "operator", 'L': "", '-': "-"}

// httpCell is a row of the table.
type httpCell struct{ method, path, who, body string }

func cellRows(t *testing.T) (rows []httpCell) {
	t.Helper()
	for line := range strings.Lines(strings.TrimSpace(cellTable)) {
		f := append(strings.SplitN(strings.Join(strings.Fields(line), " "), " ", 4), "")
		rows = append(rows, httpCell{f[0], f[1], f[2], f[3]})
	}
	return rows
}

// route is the route of a row as the API has it.
func (c *httpCell) route() string {
	path, _, _ := strings.Cut(c.path, "?")
	return c.method + " " + strings.NewReplacer("{fresh}", "{campaign}", "{imported}", "{campaign}", "{reminded}", "{customer}").Replace(path)
}

// cellRig makes what rows need.
type cellRig struct {
	*apitest.Rig
	js       jetstream.JetStream
	hook     *inbox
	summer   string
	campaign []string // names that no campaign has yet
	made     int
	order    string
}

var cellVariable = regexp.MustCompile(`\$[A-Za-z]+|\{[a-z]+\}`)

// fill puts new values in place of the variables of a path or a body.
func (r *cellRig) fill(t *testing.T, text string) string {
	t.Helper()
	ask := func(method, path string, body any) *apitest.Response {
		return r.Ask(t, "", method, path, body).Want(t, 200, 201, 202)
	}
	fresh := func(codes int) string {
		name := r.campaign[0]
		r.campaign = r.campaign[1:]
		if codes >= 0 {
			ask("POST", "/v1/campaigns", map[string]any{"campaign": name, "codes": codes})
		}
		return name
	}
	return cellVariable.ReplaceAllStringFunc(text, func(variable string) string {
		r.made++
		id := fmt.Sprint("x", r.made)
		switch strings.Trim(variable, "${}") {
		case "new":
			return id
		case "small":
			return fmt.Sprint(1 + r.made%400)
		case "rows":
			return fmt.Sprintf("code\nIMPORTED%d\n", 1000+r.made)
		case "summer", "campaign":
			return r.summer
		case "fresh":
			return fresh(5)
		case "imported":
			return fresh(0)
		case "name":
			return fresh(-1)
		case "code":
			return r.Claim(t, r.summer, id)
		case "customer", "reminded":
			r.Claim(t, r.summer, id)
			if variable == "{reminded}" {
				ask("PUT", "/v1/campaigns/"+r.summer+"/reminders/"+id+"?kind=expires&before=24h", nil)
			}
			return id
		case "redeemed":
			code := r.Claim(t, r.summer, id)
			r.order = id
			r.Redeem(t, code, id)
			return code
		case "order":
			return r.order
		case "key":
			return ask("POST", "/v1/keys", map[string]any{"name": id, "role": "support"}).Object(t)["id"].(string)
		case "url":
			return r.hook.URL
		case "webhook":
			return ask("POST", "/v1/webhooks", map[string]any{"url": r.hook.URL, "types": []string{"coupon.claimed"}}).Object(t)["id"].(string)
		case "id":
			return ask("POST", "/v1/verifications", map[string]any{}).Object(t)["id"].(string)
		case "letter":
			if err := r.Shop.Conn().Publish("scrip.cmd."+r.summer, []byte(`{"id":"bad","type":"claim","customer":"ann"}`)); err != nil {
				t.Fatal(err)
			}
			letters := func() []any { return ask("GET", "/v1/dead-letters?state=open", nil).Object(t)["dead_letters"].([]any) }
			apitest.Until(t, "the dead letter is listed", func() bool { return len(letters()) > 0 })
			return letters()[0].(map[string]any)["id"].(string)
		case "line":
			return `{\"id\":\"bad\",\"type\":\"claim\",\"campaign\":\"` + r.summer + `\",\"customer_id\":\"ann\"}`
		}
		t.Fatalf("nothing makes %s", variable)
		return ""
	})
}

// ask sends the request of a row.
func (r *cellRig) ask(t *testing.T, as string, c httpCell, path, body string) *apitest.Response {
	t.Helper()
	header := []string{"If-Match", "*"}
	switch {
	case strings.HasSuffix(c.path, "/codes"):
		header = []string{"Content-Type", "text/csv"}
	case strings.HasSuffix(c.path, "/commands"):
		header = []string{"Content-Type", "application/x-ndjson"}
	case c.method != "PATCH":
		header = nil
	}
	if body == "" {
		return r.Ask(t, as, c.method, path, nil, header...)
	}
	return r.Ask(t, as, c.method, path, body, header...)
}

// trace is the last sequence of each stream that a request may write to: all but those that move by themselves.
func (r *cellRig) trace(t *testing.T) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	for _, name := range topology.Streams(2) {
		stream, err := r.js.Stream(t.Context(), name)
		if name == topology.LeaseStream || name == topology.StateStream || name == topology.SnapStream || err != nil && strings.Contains(err.Error(), "not found") {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		all[name] = stream.CachedInfo().State.LastSeq
	}
	return all
}

// TestEveryCell: each route with a key of each role, with a key limited to campaigns, and without one. Who may use it has its
// effect. Who may not is answered 403, 401 without a key, and nothing is in any stream of the log, the audit stream included.
func TestEveryCell(t *testing.T) {
	r := &cellRig{hook: newInbox(t)}
	r.Rig = apitest.Serve(t, func(o *server.Options) { o.WebhookAllow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} })
	var err error
	if r.js, err = jetstream.New(r.Shop.Conn()); err != nil {
		t.Fatal(err)
	}
	r.summer = r.Campaign(t, map[string]any{"codes": 1000, "expires_at": "2998-01-01T00:00:00Z"})
	for i := range access.MaxCampaigns - 1 {
		r.campaign = append(r.campaign, fmt.Sprint("cell-", i))
	}
	names := maps.Clone(kindNames)
	names['L'] = "operator+" + strings.Join(append(r.campaign, r.summer), ",")
	for letter, name := range names {
		if letter != '-' {
			r.Key(t, name)
		}
	}
	for _, info := range r.streams(t) {
		if !slices.Contains(topology.Streams(2), info) {
			t.Errorf("a server made stream %s, which topology.Streams has not", info)
		}
	}

	rows := cellRows(t)
	missing := map[string]bool{}
	for _, route := range api.New(http.NewServeMux(), api.Options{}).Routes() {
		missing[route.Method+" "+route.Path] = true
	}
	for _, c := range rows {
		if !missing[c.route()] {
			t.Errorf("the table has %s, the API has not, or the table has it twice", c.route())
		}
		delete(missing, c.route())
	}
	for route := range missing {
		t.Errorf("the table above lacks %s: write down who may use it", route)
	}

	plain := strings.NewReplacer("{campaign}", r.summer, "{fresh}", r.summer, "{imported}", r.summer, "{customer}", "ann", "{reminded}", "ann", "{key}", "none", "{webhook}", "none", "{id}", "none",
		"$summer", r.summer, "$code", "AAAA-AAAA", "$redeemed", "AAAA-AAAA", "$rows", "code\nIMPORTED1000\n")
	before, tried := r.trace(t), 0
	for _, c := range rows {
		for letter, name := range names {
			if c.who == "*" || strings.IndexByte(c.who, letter) >= 0 {
				continue
			}
			tried++
			want := map[bool]int{true: http.StatusUnauthorized, false: http.StatusForbidden}[letter == '-']
			if got := r.ask(t, name, c, plain.Replace(c.path), plain.Replace(c.body)); got.Status != want {
				t.Errorf("%s as %c: %d, want %d: %s", got.What, letter, got.Status, want, got.Body)
			}
		}
	}
	if after := r.trace(t); !maps.Equal(before, after) {
		t.Errorf("refused requests left a trace: %v, was %v", after, before)
	}
	for _, c := range rows {
		for letter, name := range names {
			if c.who != "*" && strings.IndexByte(c.who, letter) < 0 {
				continue
			}
			tried++
			path := r.fill(t, c.path)
			got := r.ask(t, name, c, path, r.fill(t, c.body))
			if got.Status < 200 || got.Status > 299 || strings.Contains(string(got.Body), `"status":"refused"`) {
				t.Errorf("%s as %c had no effect: %d %s", got.What, letter, got.Status, got.Body)
			}
			running := got.Status == http.StatusAccepted
			for ; running; time.Sleep(10 * time.Millisecond) {
				jobs := string(r.Ask(t, "", "GET", "/v1/jobs", nil).Body)
				running = strings.Contains(jobs, `"state":"running"`) || strings.Contains(jobs, `"state":"waiting"`)
			}
		}
	}
	if tried != len(rows)*len(names) {
		t.Errorf("%d of %d cells were tried", tried, len(rows)*len(names))
	}
}

// streams are the names of all streams on the server.
func (r *cellRig) streams(t *testing.T) (names []string) {
	t.Helper()
	list := r.js.StreamNames(t.Context())
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	return names
}

// TestEveryOperationHasARoute: what people can do, they can do over HTTP.
func TestEveryOperationHasARoute(t *testing.T) {
	elsewhere := map[access.Operation]string{
		access.OpReadTables:    "SQL",
		access.OpReadReminders: "NATS: streams/push",
		access.OpDiagnose:      "/metrics, /readyz and /debug/pprof",
	}
	have, ids := map[access.Operation]bool{}, map[string]bool{}
	for _, r := range api.New(http.NewServeMux(), api.Options{}).Routes() {
		have[r.Operation] = true
		if ids[r.ID] || r.ID == "" || r.Summary == "" || r.Tag == "" {
			t.Errorf("%s %s: its id, summary or tag is missing or not its own", r.Method, r.Path)
		}
		ids[r.ID] = true
	}
	for o := range access.Operations() {
		if have[o] == (elsewhere[o] != "") {
			t.Errorf("%s: has a route %v, elsewhere %q", o, have[o], elsewhere[o])
		}
	}
}

// places replaces the wildcards of a path.
func places(path, campaign string) string {
	return strings.NewReplacer("{campaign}", campaign, "{customer}", "ann", "{key}", "none", "{webhook}", "none", "{id}", "none").Replace(path)
}
