package api_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestEveryOperationHasExamples: each body in the document has an example, which its schema allows.
func TestEveryOperationHasExamples(t *testing.T) {
	mux, w := http.NewServeMux(), httptest.NewRecorder()
	api.New(mux, api.Options{})
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/openapi.json", nil))
	d, err := apitest.ReadDocument(w.Body.Bytes())
	streamtest.Must(t, err)
	d.Examples(t, `add a row to cmd/internal/api/examples.json: "OPERATION": {"request": …, "answer": …, "text": "… of CSV and server-sent events"}`)
}

// TestEventsMatchTheirSchema: what GET /v1/events and schema.json have agree, and every text in the document with few values lists them.
func TestEventsMatchTheirSchema(t *testing.T) {
	r := apitest.Shared(t)
	r.Claim(t, r.Campaign(t, map[string]any{"codes": 1}), "ann")
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(r.Ask(t, "-", "GET", "/v1/events/schema.json", nil).Want(t, 200).Body))
	streamtest.Must(t, err)
	c := jsonschema.NewCompiler()
	streamtest.Must(t, c.AddResource("mem:///events.json", parsed))
	schema, err := c.Compile("mem:///events.json")
	streamtest.Must(t, err)
	events := 0
	for line := range bytes.Lines(r.Ask(t, "", "GET", "/v1/events", nil).Want(t, 200).Body) {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
		streamtest.Must(t, err)
		if value.(map[string]any)["type"] == "cursor" {
			continue
		}
		if events++; schema.Validate(value) != nil {
			t.Errorf("%s: %v", line, schema.Validate(value))
		}
	}
	if events < 2 {
		t.Errorf("%d events", events)
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]map[string]any }
		}
	}
	r.Ask(t, "-", "GET", "/v1/openapi.json", nil).Want(t, 200).Into(t, &doc)
	for name, s := range doc.Components.Schemas {
		for _, field := range []string{"status", "state", "kind", "role", "type", "refusal", "effect", "priority", "coupon_status", "what"} {
			if of := s.Properties[field]; of["type"] == "string" && of["enum"] == nil && name+"."+field != "LaneStatus.state" && name+"."+field != "Limit.what" {
				t.Errorf("%s of the schema %s lists no values: add them to fieldValues or values in document_schema.go", field, name)
			}
		}
	}
}

// TestProducersPage: PRODUCERS.md has a request of each route that producers may use, and they succeed.
func TestProducersPage(t *testing.T) {
	page, err := os.ReadFile("../../../streams/PRODUCERS.md")
	streamtest.Must(t, err)
	_, script, _ := strings.Cut(string(page), "\n```sh\n")
	script, _, _ = strings.Cut(script, "\n```\n")
	for _, route := range api.New(http.NewServeMux(), api.Options{}).Routes() {
		request := route.Method + `( '| "| |[^\n]*\n[^$]*\$URL/v1/)` + regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(strings.TrimPrefix(route.Path, "/v1/"), `[^/?'" ]+`) + `['"? \n]`
		if slices.Contains(route.Operation.Roles(), access.Producer) && !regexp.MustCompile(`(?s)`+request).MatchString(script) {
			t.Errorf("the sh block of PRODUCERS.md has no %s %s", route.Method, route.Path)
		}
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("there is no curl on this machine")
	}
	r := apitest.Shared(t)
	campaign := r.Campaign(t, map[string]any{"codes": 9, "expires_at": "2099-01-01T00:00:00Z"})
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -euo pipefail\n"+strings.ReplaceAll(script, "summer", campaign))
	cmd.Env = append(os.Environ(), "URL="+r.URL, "KEY="+r.Key(t, "producer"), "no_proxy=127.0.0.1")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{`"valid":true`, `"redeemed"`, `"rolled_back"`, `"reminder_cancelled"`, `{"id":"claim-79","status":"claimed"`} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("%v: want %s in\n%s", err, want, out)
		}
	}
}
