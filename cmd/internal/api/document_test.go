package api_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

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
