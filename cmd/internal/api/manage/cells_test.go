package manage_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api/apitest"
	"github.com/seed-4a2410e3/scrip/cmd/internal/api/manage"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// places replaces the wildcards of a path.
func places(path, campaign string) string {
	return strings.NewReplacer("{campaign}", campaign, "{customer}", "ann", "{key}", "none", "{webhook}", "none").Replace(path)
}

// TestEveryCell: each route with a key of each role, with a key limited to a campaign, and without one. Where the table of operations refuses the role, the answer
// is 403 and nothing is in the log; elsewhere it is anything else.
func TestEveryCell(t *testing.T) {
	r := apitest.Serve(t)
	c := r.Campaign(t, map[string]any{"codes": 1})
	roles := []string{"-", "producer+public", "operator+" + c}
	for _, role := range access.Keyed {
		roles = append(roles, role.String())
	}
	for _, role := range roles[1:] {
		r.Key(t, role)
	}
	log := func() (sequences float64) {
		for _, lane := range r.Ask(t, "", "GET", "/v1/status", nil).Want(t, 200).Object(t)["lane"].([]any) {
			l := lane.(map[string]any)
			sequences += l["event_sequence"].(float64) + l["command_sequence"].(float64) + l["undecided_messages"].(float64)
		}
		return sequences
	}
	cells := 0
	for pass, refusing := range []bool{true, false} {
		before := log()
		for _, route := range manage.New(http.NewServeMux(), manage.Options{}).Routes() {
			for _, role := range roles {
				name, more, _ := strings.Cut(role, "+")
				p := access.Principal{Public: more == "public"}
				if role != "-" {
					p.Role, _ = access.ParseRole(name)
				}
				if more == c { // what is of the whole log is closed to it
					p.Campaigns = []string{c}
				}
				may := route.Operation == access.NoOperation || role != "-" && p.May(route.Operation, c) && !(route.Private && p.Public)
				if may == refusing {
					continue
				}
				cells++
				got := r.Ask(t, role, route.Method, places(route.Path, c), "{}")
				want := http.StatusForbidden
				if role == "-" {
					want = http.StatusUnauthorized
				}
				switch refused := got.Status == http.StatusForbidden || got.Status == http.StatusUnauthorized; {
				case !may && got.Status != want:
					t.Errorf("%s as %s: %d, want %d: %s", got.What, role, got.Status, want, got.Body)
				case may && refused:
					t.Errorf("%s as %s is refused: %s", got.What, role, got.Body)
				}
			}
		}
		if after := log(); pass == 0 && after != before {
			t.Errorf("refused requests left a trace in the log: %v, was %v", after, before)
		}
	}
	if cells < 7*25 {
		t.Errorf("%d cells were tried", cells)
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
	for _, r := range manage.New(http.NewServeMux(), manage.Options{}).Routes() {
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
