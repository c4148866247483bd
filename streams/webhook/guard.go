package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"
)

// Guard decides to which addresses requests may go. It sees the address of each connection after the name was resolved, so
// that a name whose address changes after a check does not get past it.
type Guard struct {
	// Allow are networks that are allowed although they are inside, on any port.
	Allow []netip.Prefix
	// HTTP allows http and port 80 everywhere; without it http is only for the networks of Allow.
	HTTP bool
	// Own returns the ports of this server and its database: never allowed on an address of this machine. nil = none.
	Own func() []int
	// local returns the machine's addresses; nil = of its interfaces.
	local func() []netip.Addr
}

// inside are networks that the Internet does not route, or that lead inside: RFC 6890 and what translates to IPv4.
var inside = func() (all []netip.Prefix) {
	for _, text := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
		"192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
		"::/128", "::1/128", "::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
	} {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}()

// Reach returns why a URL cannot be reached from here, nil = it can: its name has an address that is allowed, and a server there
// takes a connection within 3 s. No request is sent.
func (g *Guard) Reach(ctx context.Context, target string) error {
	u, err := url.Parse(target)
	if err != nil {
		return errors.New("url is not valid")
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80"}[u.Scheme], "443")
	dialer := &net.Dialer{Timeout: 3 * time.Second, Control: g.Control(u.Scheme != "https")}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return fmt.Errorf("url: %s cannot be reached from this server: %w; correct the URL, or start what serves it", u.Host, err)
	}
	return conn.Close()
}

// Control returns the function for net.Dialer; plain = its connections are for http.
func (g *Guard) Control(plain bool) func(network, address string, c syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("the address %q is not allowed", address)
		}
		return g.check(to, plain)
	}
}

func (g *Guard) check(to netip.AddrPort, plain bool) error {
	ip := to.Addr().WithZone("").Unmap() // an IPv4 address written as IPv6 is the IPv4 address
	if g.Own != nil && slices.Contains(g.Own(), int(to.Port())) && g.here(ip) {
		return fmt.Errorf("the address %s is one of this server", to)
	}
	within := func(p netip.Prefix) bool { return p.Contains(ip) }
	if slices.ContainsFunc(g.Allow, within) {
		return nil
	}
	if slices.ContainsFunc(inside, within) {
		return fmt.Errorf("the address %s is inside; scrip serve --webhook-allow CIDR allows it", ip)
	}
	if plain && !g.HTTP {
		return fmt.Errorf("http is not allowed for %s: use https, or scrip serve --webhook-http", to)
	}
	if to.Port() != 443 && (to.Port() != 80 || !g.HTTP) {
		return fmt.Errorf("port %d is not allowed: only 443, and 80 with scrip serve --webhook-http", to.Port())
	}
	return nil
}

// here reports whether an address is one of this machine.
func (g *Guard) here(ip netip.Addr) bool {
	if ip.IsLoopback() || ip.IsUnspecified() {
		return true
	}
	local := g.local
	if local == nil {
		local = interfaces
	}
	return slices.Contains(local(), ip)
}

func interfaces() (all []netip.Addr) {
	addrs, _ := net.InterfaceAddrs() // none on an error: the networks above are refused all the same
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, p.Addr().Unmap())
		}
	}
	return all
}
