package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
)

func guardedServer(o Options) *server {
	s := &server{opts: o, health: &health{}, metrics: newMetrics("test"), credentials: datadir.Credentials{User: "scrip", Password: "secret"}}
	s.health.add("lanes", true, func() (bool, any) { return true, "lane 3 is at node-7" })
	s.health.serve(true)
	return s
}

// Clients without credentials get no details, and nothing that costs CPU.
func TestGuardedPaths(t *testing.T) {
	open, closed := guardedServer(Options{}), guardedServer(Options{Credentials: "scrip:secret"})
	for _, c := range []struct {
		s              *server
		path, user     string
		status         int
		shows, notShow string
	}{
		{open, "/", "", 404, `"code":"not_found"`, "node-7"},
		{open, "/other", "", 404, "", ""},
		{open, "/healthz", "", 200, "alive", ""},
		{open, "/readyz", "", 200, `"lanes":{"ok":true`, "node-7"},
		{open, "/readyz", "scrip:wrong", 200, `"ready":true`, "node-7"},
		{open, "/readyz", "scrip:secret", 200, "node-7", ""},
		{open, "/metrics", "", 200, "go_goroutines", ""},
		{closed, "/metrics", "", 401, "", "go_goroutines"},
		{closed, "/metrics", "scrip:secret", 200, "go_goroutines", ""},
		{open, "/debug/pprof/", "", 401, "scrip.json", "goroutine"},
		{open, "/debug/pprof/heap", "", 401, "", ""},
		{open, "/debug/pprof/profile?seconds=1", "", 401, "", ""},
		{open, "/debug/pprof/trace?seconds=1", ":", 401, "", ""},
		{open, "/debug/pprof/", "scrip:secret", 200, "goroutine", ""},
		{open, "/debug/pprof/cmdline", "scrip:secret", 404, "", ""},
		{open, "/debug/pprof/profile?seconds=61", "scrip:secret", 400, "between 1 and 60", ""},
		{open, "/debug/pprof/trace?seconds=1e9", "scrip:secret", 400, "", ""},
		{open, "/debug/pprof/trace?seconds=NaN", "scrip:secret", 400, "", ""},
		{open, "/debug/pprof/heap?seconds=3600", "scrip:secret", 400, "", ""},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		if user, password, ok := strings.Cut(c.user, ":"); ok {
			r.SetBasicAuth(user, password)
		}
		w := httptest.NewRecorder()
		c.s.handler().ServeHTTP(w, r)
		body := w.Body.String()
		if w.Code != c.status || !strings.Contains(body, c.shows) || c.notShow != "" && strings.Contains(body, c.notShow) {
			t.Errorf("%s as %q: %d %s", c.path, c.user, w.Code, body)
		}
	}
}

// A request with the host name of a web page is refused, one with an allowed name is not.
func TestHostNames(t *testing.T) {
	s := guardedServer(Options{HTTPHosts: []string{"coupons.shop.example"}})
	h := s.byName("build-7.internal:8080", s.handler())
	for _, c := range []struct {
		host, user string
		status     int
	}{
		{"127.0.0.1:8080", "", 200}, {"localhost:8080", "", 200}, {"LocalHost.", "", 200}, {"[::1]:8080", "", 200}, {"[::1]", "", 200}, {"192.0.2.7", "", 200},
		{"build-7.internal:8080", "", 200}, {"Coupons.Shop.example", "", 200}, {"coupons.shop.example.:80", "", 200},
		{"evil.example", "", 421}, {"evil.example:8080", "", 421}, {"127.0.0.1.evil.example", "", 421}, {"localhost.evil.example", "", 421}, {"", "", 421},
		{"evil.example", "secret", 200}, {"evil.example", "wrong", 421},
	} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Host = c.host
		if c.user != "" {
			r.SetBasicAuth("scrip", c.user)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("Host %q, password %q: %d, want %d", c.host, c.user, w.Code, c.status)
		}
	}
}
