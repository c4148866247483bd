package web

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

// The address of a client is what the nearest trusted proxy names; what others write changes nothing.
func TestProxies(t *testing.T) {
	proxies := Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8:1::/48")}
	for _, c := range []struct {
		name, peer string
		forwarded  []string
		want       string
	}{
		{"no proxy", "203.0.113.7:5000", nil, "203.0.113.7:5000"},
		{"no proxy, which names another", "203.0.113.7:5000", []string{"198.51.100.1"}, "203.0.113.7:5000"},
		{"no proxy, which names a proxy", "203.0.113.7:5000", []string{"10.0.0.1"}, "203.0.113.7:5000"},
		{"a proxy", "10.0.0.1:5000", []string{"203.0.113.7"}, "203.0.113.7:0"},
		{"a proxy that names no client", "10.0.0.1:5000", nil, "10.0.0.1:5000"},
		{"a proxy with an empty name", "10.0.0.1:5000", []string{""}, "10.0.0.1:5000"},
		{"a client that names another", "10.0.0.1:5000", []string{"198.51.100.1, 203.0.113.7"}, "203.0.113.7:0"},
		{"a client that names a proxy", "10.0.0.1:5000", []string{"10.9.9.9, 203.0.113.7"}, "203.0.113.7:0"},
		{"two proxies", "10.0.0.1:5000", []string{"198.51.100.1, 203.0.113.7, 10.0.0.2"}, "203.0.113.7:0"},
		{"two headers", "10.0.0.1:5000", []string{"198.51.100.1, 203.0.113.7", "10.0.0.2"}, "203.0.113.7:0"},
		{"two headers, the first by the client", "10.0.0.1:5000", []string{"10.0.0.2", "203.0.113.7"}, "203.0.113.7:0"},
		{"a proxy that is not trusted", "10.0.0.1:5000", []string{"203.0.113.7, 192.0.2.2"}, "192.0.2.2:0"},
		{"proxies only", "10.0.0.1:5000", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3:0"},
		{"no address", "10.0.0.1:5000", []string{"unknown"}, "10.0.0.1:5000"},
		{"no address before a proxy", "10.0.0.1:5000", []string{"unknown, 10.0.0.2"}, "10.0.0.2:0"},
		{"no address before a client", "10.0.0.1:5000", []string{"<script>,,203.0.113.7"}, "203.0.113.7:0"},
		{"an empty entry", "10.0.0.1:5000", []string{"203.0.113.7,,10.0.0.2"}, "10.0.0.2:0"},
		{"with ports", "10.0.0.1:5000", []string{"203.0.113.7:1234, 10.0.0.2:80"}, "203.0.113.7:0"},
		{"blanks", "10.0.0.1:5000", []string{"  203.0.113.7\t, 10.0.0.2 "}, "203.0.113.7:0"},
		{"IPv6", "[2001:db8:1::5]:5000", []string{"2001:db8:2::7"}, "[2001:db8:2::7]:0"},
		{"IPv6 in brackets", "[2001:db8:1::5]:5000", []string{"[2001:db8:2::7], [2001:db8:1::6]:443"}, "[2001:db8:2::7]:0"},
		{"IPv6 with a zone", "[2001:db8:1::5]:5000", []string{"fe80::1%eth0"}, "[fe80::1]:0"},
		{"IPv4 as IPv6", "[::ffff:10.0.0.1]:5000", []string{"::ffff:203.0.113.7"}, "203.0.113.7:0"},
		{"one address is trusted, not its neighbour", "192.0.2.2:5000", []string{"203.0.113.7"}, "192.0.2.2:5000"},
		{"thousands of names", "10.0.0.1:5000", []string{strings.Repeat("10.0.0.2,", 1000) + "203.0.113.7" + strings.Repeat(",10.0.0.3", 1000)}, "203.0.113.7:0"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = c.peer
		for _, f := range c.forwarded {
			r.Header.Add("X-Forwarded-For", f)
		}
		for _, trusting := range []bool{true, false} {
			h, want, got := proxies, c.want, ""
			if !trusting {
				h, want = nil, c.peer
			}
			h.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if got = r.RemoteAddr; Proxied(r) != (got != c.peer) {
					t.Errorf("%s: proxied is %v", c.name, Proxied(r))
				}
			})).ServeHTTP(httptest.NewRecorder(), r)
			if got != want {
				t.Errorf("%s, trusting proxies %v: the client is %s, want %s", c.name, trusting, got, want)
			}
		}
		if r.RemoteAddr != c.peer {
			t.Errorf("%s: the request was changed", c.name)
		}
	}
}
