package api_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// cellBodies are bodies of routes with which a request that is not refused has an effect, by the route's id.
var cellBodies = map[string]string{
	"claim":          `{"customer_id":"ann"}`,
	"createCampaign": `{"campaign":"refused","codes":5}`,
	"updateCampaign": `{"max_redemptions":2}`,
	"importCodes":    "code\nIMPORTED1000\n",
	"changeSettings": `{"reminder.batch":"77"}`,
	"createKey":      `{"name":"refused","role":"support"}`,
	"createWebhook":  `{"url":"https://shop.example/","types":["campaign.ended"]}`,
	"startBackup":    `{"name":"refused"}`,
}

// trace is the last sequence of each stream that a request may write to: all but those that move by themselves.
func trace(t *testing.T, js jetstream.JetStream) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	list := js.StreamNames(t.Context())
	for name := range list.Name() {
		if !slices.Contains(topology.Streams(2), name) {
			t.Errorf("a server made stream %s, which topology.Streams has not", name)
		}
		if name == topology.LeaseStream || name == topology.StateStream || name == topology.SnapStream {
			continue
		}
		stream, err := js.Stream(t.Context(), name)
		streamtest.Must(t, err)
		all[name] = stream.CachedInfo().State.LastSeq
	}
	if err := list.Err(); err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	return all
}

// TestEveryCell: each route with a key of each role, with a key limited to campaigns, and without one. Who may not do the route's
// operation is answered 403, 401 without a key, and nothing is in any stream of the log, the audit stream included. Who may do it
// is not, though the request has no body.
func TestEveryCell(t *testing.T) {
	r := apitest.Serve(t)
	js, err := jetstream.New(r.Shop.Conn())
	streamtest.Must(t, err)
	summer := r.Campaign(t, map[string]any{"codes": 9})
	kinds := map[string]access.Principal{
		"producer": {Role: access.Producer}, "producer+public": {Role: access.Producer, Public: true}, "sender": {Role: access.Sender},
		"analyst": {Role: access.Analyst}, "support": {Role: access.Support}, "operator": {Role: access.Operator},
		"operator+" + summer: {Role: access.Operator, Campaigns: []string{summer}},
	}
	for name := range kinds {
		r.Key(t, name)
	}
	kinds["-"] = access.Principal{}
	campaigns := []string{summer, r.Campaign(t, map[string]any{"codes": 9})}
	ask := func(route api.Route, as, campaign, body string) *apitest.Response {
		path, header, sent := places(route.Path, campaign), []string(nil), any(nil)
		switch route.ID {
		case "readEvents":
			path += "?campaign=" + summer
		case "importCodes":
			header = []string{"Content-Type", "text/csv"}
		case "sendCommands":
			header = []string{"Content-Type", "application/x-ndjson"}
		case "updateCampaign", "updateWebhook":
			header = []string{"If-Match", "*"}
		}
		if body != "" {
			sent = body
		}
		return r.Ask(t, as, route.Method, path, sent, header...)
	}
	before := trace(t, js)
	var allowed []func()
	for _, route := range api.New(http.NewServeMux(), api.Options{}).Routes() {
		of := campaigns
		if !strings.Contains(route.Path, "{campaign}") {
			of = []string{""}
		}
		for as, principal := range kinds {
			for _, campaign := range of {
				why := principal.Check(route.Operation, campaign)
				if route.Later {
					why = principal.CheckRole(route.Operation)
				}
				if route.ID == "sendCommands" && principal.Public { // a page claims and validates one by one
					why = access.ErrForbidden
				}
				if route.ID == "printCodes" { // none of these keys sees codes
					why = access.ErrForbidden
				}
				want := http.StatusForbidden
				if as == "-" {
					want = http.StatusUnauthorized
				}
				if route.Operation == access.NoOperation || why == nil {
					allowed = append(allowed, func() {
						if got := ask(route, as, campaign, ""); got.Status == http.StatusUnauthorized || got.Status == http.StatusForbidden {
							t.Errorf("%s as %s: %d %s", got.What, as, got.Status, got.Body)
						}
					})
				} else if got := ask(route, as, campaign, cellBodies[route.ID]); got.Status != want {
					t.Errorf("%s as %s: %d, want %d: %s", got.What, as, got.Status, want, got.Body)
				}
			}
		}
	}
	if after := trace(t, js); !maps.Equal(before, after) {
		t.Errorf("refused requests left a trace: %v, was %v", after, before)
	}
	for _, ask := range allowed {
		ask()
	}
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
	return strings.NewReplacer("{campaign}", campaign, "{customer_id}", "ann", "{key}", "none", "{webhook}", "none", "{id}", "none").Replace(path)
}
