package server

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
)

func TestOpenAddressesAreRefused(t *testing.T) {
	for _, c := range []struct {
		addr string
		ok   bool
	}{
		{"127.0.0.1:4222", true}, {"127.0.0.2:0", true}, {"[::1]:4222", true}, {"localhost:4222", true},
		{"0.0.0.0:4222", false}, {":4222", false}, {"[::]:4222", false}, {"192.168.1.1:4222", false}, {"example.com:4222", false},
		{"4222", false}, {"", true},
	} {
		o := Options{Data: "x", NATSListen: c.addr}
		if err := o.Validate(); (err == nil) != c.ok {
			t.Errorf("NATS on %q: %v", c.addr, err)
		}
		o = Options{Data: "x", HTTPListen: c.addr}
		if err := o.Validate(); (err == nil) != c.ok {
			t.Errorf("HTTP on %q: %v", c.addr, err)
		}
		if err := (Options{Data: "x", PostgresListen: c.addr, Insecure: true}).Validate(); (err == nil) != c.ok {
			t.Errorf("PostgreSQL on %q: %v", c.addr, err)
		}
		if c.addr == "4222" {
			continue // nonsense, whoever may come in
		}
		// Profiles are never open to other machines.
		if err := (Options{Data: "x", OpsListen: c.addr, Insecure: true}).Validate(); (err == nil) != c.ok {
			t.Errorf("--ops-listen %q with --insecure: %v", c.addr, err)
		}
		if err := (Options{Data: "x", PostgresListen: c.addr, TLSCert: "c", TLSKey: "k"}).Validate(); err != nil {
			t.Errorf("PostgreSQL on %q with TLS: %v", c.addr, err)
		}
		if err := (Options{Data: "x", OpsListen: c.addr, Credentials: "a:b"}).Validate(); err != nil {
			t.Errorf("--ops-listen %q with credentials: %v", c.addr, err)
		}
		for _, open := range []Options{{Insecure: true}, {Credentials: "a:b"}} {
			open.Data, open.NATSListen, open.HTTPListen = "x", c.addr, c.addr
			if err := open.Validate(); err != nil {
				t.Errorf("%q with %+v: %v", c.addr, open, err)
			}
		}
	}
}

// A proxy network that holds every address is refused: each client would choose its own.
func TestTrustedProxies(t *testing.T) {
	for text, ok := range map[string]bool{"10.0.0.0/8": true, "127.0.0.1/32": true, "2001:db8::/32": true, "0.0.0.0/0": false, "::/0": false} {
		o := Options{Data: "x", HTTPProxies: web.Proxies{netip.MustParsePrefix(text)}}
		if err := o.Validate(); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestPrefixes(t *testing.T) {
	for prefix, ok := range map[string]bool{
		"": true, "/x": true, "/shop/coupons_2-a": true, "/v1x": true, "/" + strings.Repeat("a", 63): true, "/" + strings.Repeat("a", 64): false,
		"x": false, "/": false, "/x/": false, "//x": false, "/x//y": false, "/x/..": false, "/.x": false, "/x?y": false, "/ü": false, "/%78": false,
		"/v1": false, "/v1/x": false, "/debug": false, "/healthz": false, "/x\n": false,
	} {
		if err := (Options{Data: "x", HTTPListen: DefaultHTTPListen, NATSListen: DefaultHTTPListen, HTTPPrefix: prefix}).Validate(); (err == nil) != ok {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

func TestParseRoles(t *testing.T) {
	for _, c := range []struct {
		text string
		want []Role
	}{
		{"lanes", []Role{RoleLanes}},
		{"api, lanes,api", []Role{RoleAPI, RoleLanes}},
		{"", nil}, {"lanes,", nil}, {"Lanes", nil},
	} {
		got, err := ParseRoles(c.text)
		if (err == nil) != (c.want != nil) || !slices.Equal(got, c.want) {
			t.Errorf("%q: %v, %v", c.text, got, err)
		}
	}
}

func TestReachable(t *testing.T) {
	for _, c := range []struct {
		credentials datadir.Credentials
		addr, want  string
	}{
		{datadir.Credentials{}, "127.0.0.1:4222", "nats://127.0.0.1:4222"},
		{datadir.Credentials{}, "0.0.0.0:4222", "nats://127.0.0.1:4222"},
		{datadir.Credentials{}, "[::]:4222", "nats://127.0.0.1:4222"},
		{datadir.Credentials{User: "me", Password: "p@ss/:word"}, "10.0.0.1:4222", "nats://me:p%40ss%2F%3Aword@10.0.0.1:4222"},
	} {
		if got := reachable("nats", c.credentials, c.addr); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// TestReadiness: needed checks decide, the others are only shown.
func TestReadiness(t *testing.T) {
	s := &server{health: &health{}, metrics: newMetrics("test")}
	lanes, tables := true, true
	s.health.add("lanes", true, func() (bool, any) { return lanes, "detail" })
	s.health.add("projector", false, func() (bool, any) { return tables, nil })
	ask := func() (int, string) {
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return w.Code, w.Body.String()
	}
	for _, c := range []struct {
		serving, lanes, tables bool
		status                 int
	}{
		{false, true, true, 503}, {true, true, true, 200}, {true, true, false, 200}, {true, false, true, 503},
	} {
		s.health.serve(c.serving)
		lanes, tables = c.lanes, c.tables
		if status, body := ask(); status != c.status || !strings.Contains(body, `"projector":{"ok":`) {
			t.Errorf("%+v: %d %s", c, status, body)
		}
		if s.health.good() != c.lanes {
			t.Errorf("%+v: good is %v", c, s.health.good())
		}
	}
}

func TestSemver(t *testing.T) {
	for text, want := range map[string]string{"v1.2.3": "1.2.3", "1.2.3-4-gabc": "1.2.3-4-gabc", "unknown": "", "abc123+changes": ""} {
		if got := semver(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
