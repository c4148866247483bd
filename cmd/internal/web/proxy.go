package web

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/access"
)

// Proxies are the networks of the proxies in front of this server, whose X-Forwarded-For is believed.
type Proxies []netip.Prefix

// Handler calls next with the address of the client in RemoteAddr, as [Proxies.Client] finds it. Its port is 0 then.
func (p Proxies) Handler(next http.Handler) http.Handler {
	if len(p) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if client := p.Client(r); client.IsValid() {
			r = r.WithContext(context.WithValue(r.Context(), proxiedKey{}, true)) // a copy: the server still uses the other
			r.RemoteAddr = net.JoinHostPort(client.String(), "0")
		}
		next.ServeHTTP(w, r)
	})
}

type proxiedKey struct{}

// Proxied reports whether a request came through a trusted proxy that names its client.
func Proxied(r *http.Request) bool { return r.Context().Value(proxiedKey{}) != nil }

// Client returns the client that a trusted proxy names: of the addresses in X-Forwarded-For the last one that is no trusted
// proxy. What is left of it anybody may have written. If all are proxies, or an entry is no address, it is the proxy that made
// the next entry. It returns the zero Addr if the request does not come from a trusted proxy, or through one that names no client.
func (p Proxies) Client(r *http.Request) netip.Addr {
	peer, ok := address(r.RemoteAddr)
	if !ok || !p.trusted(peer) {
		return netip.Addr{}
	}
	entries := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	var client netip.Addr
	for _, entry := range slices.Backward(entries) {
		named, ok := address(strings.TrimSpace(entry))
		if !ok {
			break
		}
		if client = named; !p.trusted(client) {
			break
		}
	}
	return client
}

func (p Proxies) trusted(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(a) })
}

// address reads an address with or without a port, as proxies write both. IPv4 in the form of IPv6 is IPv4.
func address(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	if err != nil {
		ap, err := netip.ParseAddrPort(text)
		if err != nil {
			return netip.Addr{}, false
		}
		a = ap.Addr()
	}
	return a.Unmap().WithZone(""), true
}

// Network is the address of a client, of IPv6 its /64, see access.Network.
func Network(text string) netip.Addr {
	ip, ok := address(text)
	if !ok {
		return netip.IPv6Unspecified()
	}
	return access.Network(ip)
}
