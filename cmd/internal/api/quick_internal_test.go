package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// TestUsualForm: which requests take the short way.
func TestUsualForm(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*http.Request)
		body   string
		usual  bool
	}{
		"as clients send it": {nil, `{"customer_id":"ann","attributes":{"a":1}}`, true},
		"of a browser":       {func(r *http.Request) { r.Header.Set("Accept", "*/*") }, `{"customer_id":"ann"}`, true},
		"of curl":            {func(r *http.Request) { r.Header.Del("Content-Type") }, ` {"customer_id" : "ann"}`, true},
		"with a key":         {func(r *http.Request) { r.Header.Set("Idempotency-Key", "a b") }, `{"customer_id":"ann"}`, true},
		"a query":            {func(r *http.Request) { r.URL.RawQuery = "a" }, `{"customer_id":"ann"}`, false},
		"no length":          {func(r *http.Request) { r.ContentLength = -1 }, `{"customer_id":"ann"}`, false},
		"another type":       {func(r *http.Request) { r.Header.Set("Content-Type", "text/json") }, `{"customer_id":"ann"}`, false},
		"another answer":     {func(r *http.Request) { r.Header.Set("Accept", "text/html") }, `{"customer_id":"ann"}`, false},
		"a wrong body":       {nil, `{"customer_id":""}`, false},
		"a command's id":     {nil, `{"customer_id":"ann","id":"x"}`, false},
		"the path's name":    {nil, `{"customer_id":"ann","campaign":"summer"}`, false},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body))
		r.SetPathValue("campaign", "summer")
		r.Header.Set("Content-Type", "application/json")
		if c.change != nil {
			c.change(r)
		}
		q := quick{command: wire.Claim}
		x := exchange{body: []byte(c.body)}
		ok := usual(r)
		if got := ok && q.parse(r, &x); got != c.usual {
			t.Errorf("%s: %v", what, got)
		} else if got && (x.cmd.Campaign != "summer" || x.cmd.CustomerID != "ann") {
			t.Errorf("%s: %+v", what, x.cmd)
		}
	}
}
