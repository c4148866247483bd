package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// AllowWrongCodes sets how many wrong codes a key that is not public may try, until the test ends. Call it before the server
// starts.
func AllowWrongCodes(t *testing.T, burst float64) {
	was := access.PerKey
	access.PerKey = access.Allowance{Burst: burst, PerMinute: 1e-3}
	t.Cleanup(func() { access.PerKey = was })
}

// AllowStrangers sets how many attempts an address without a key has at once, until the test ends. Call it before the server
// starts.
func AllowStrangers(t *testing.T, burst int) {
	was := access.StrangerBurst
	access.StrangerBurst = burst
	t.Cleanup(func() { access.StrangerBurst = was })
}

// RecordFew lets a key have so many acts recorded at once, until the test ends. Call it before the server starts.
func RecordFew(t *testing.T, acts int) {
	was := audit.ShareBytes
	audit.ShareBytes = acts << 10
	t.Cleanup(func() { audit.ShareBytes = was })
}

// Document is the document before it is rendered.
func (a *API) Document() *huma.OpenAPI { return a.document }

func TestIfMatch(t *testing.T) {
	version := func(given string) (string, *web.Problem) {
		req := httptest.NewRequest(http.MethodPost, "/", nil)
		req.Header.Set("If-Match", given)
		return ifMatch(req, false)
	}
	for given, want := range map[string]string{"": "", "*": "", `"a1"`: "a1"} {
		if got, err := version(given); err != nil || got != want {
			t.Errorf("%s: %q %v", given, got, err)
		}
	}
	for _, bad := range []string{"a1", `"a1`, `W/"a1"`, `"a","b"`, `""`, `"` + strings.Repeat("x", 65) + `"`} {
		if got, err := version(bad); err == nil {
			t.Errorf("%s is read as %q", bad, got)
		}
	}
}

var testLog = topology.Log{UUID: "5f1c2f7e-0000-4000-8000-000000000001", Lanes: 3}
