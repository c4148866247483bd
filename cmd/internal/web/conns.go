package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	"github.com/seed-4a2410e3/scrip/streams/natsd"
)

const (
	// MaxConns bounds open connections.
	MaxConns = 4096
	// MaxOpsConns bounds those of the listener for operators, which a monitor and some people use.
	MaxOpsConns = 64
	// filesShare is the part of the files that this process may have open which connections may use, as a divisor: JetStream, in
	// the same process, needs the others. addressShare is the part of the connections that one client address may use.
	filesShare, addressShare = 4, 2
	// spareConns is how many connections beyond a limit are served at once. They get answers to probes alone.
	spareConns = 32
	// maxStreams is how many requests one connection of HTTP/2 may have at once.
	maxStreams = 128
)

// probes are the paths that a connection beyond a limit is served.
var probes = []string{"/healthz", "/readyz", "/metrics"}

// Conns bounds the open connections of a server, in all and of each client address.
//
// A connection beyond a limit takes a spare slot, from the one that has had its slot the longest: so probes are answered while a
// client holds all other connections. Any other request there is answered 503, which sends a load balancer to another server.
type Conns struct {
	net.Listener // that it serves
	*Quota[netip.Addr]
	proxies Proxies

	mu    sync.Mutex // guards the field below
	spare []*conn    // the oldest first
}

// NewConns returns Conns of up to most connections, up to perAddress of them from one client address (of IPv6 one /64). 0 = the
// default: MaxConns, or fewer if the process may not open many files; and of one address a part of all. Proxies have no limit of
// their own, since each has the connections of many clients.
func NewConns(most, perAddress int, proxies Proxies) *Conns {
	if most == 0 {
		most = max(1, natsd.OpenFiles(filesShare, MaxConns))
	}
	return &Conns{Quota: NewQuota[netip.Addr]("http_connections", "address", most, cmp.Or(perAddress, max(1, most/addressShare))), proxies: proxies}
}

// Serve serves the connections of a listener. config nil = without TLS; with it there is HTTP/2, too.
func (c *Conns) Serve(hs *http.Server, l net.Listener, config *tls.Config) error {
	next := hs.Handler
	hs.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if secure, is := c.(*tls.Conn); is {
			c = secure.NetConn()
		}
		if c, is := c.(*conn); is && c.spare {
			return context.WithValue(ctx, spareKey{}, true)
		}
		return ctx
	}
	hs.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(spareKey{}) != nil {
			w.Header().Set("Connection", "close")
			if !slices.Contains(probes, r.URL.Path) {
				New(Unavailable, "this server, or your address, has as many connections as it may; use them again, and retry").Write(w)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
	c.Listener = l
	if config == nil {
		return hs.Serve(c)
	}
	hs.TLSConfig = config
	hs.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: 1 << 20, MaxReceiveBufferPerStream: 256 << 10,
		SendPingTimeout: IdleWait, WriteByteTimeout: WriteWait}
	return hs.ServeTLS(c, "", "") // config has the certificate
}

type spareKey struct{}

// Accept returns the next connection.
func (c *Conns) Accept() (net.Conn, error) {
	raw, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return c.add(raw), nil
}

// add counts a connection.
func (c *Conns) add(raw net.Conn) *conn {
	from := raw.RemoteAddr().String()
	one := &conn{Conn: raw, of: c, network: Network(from)}
	proxy, _ := address(from)
	if c.Take(one.network, c.proxies.trusted(proxy)) == nil {
		return one
	}
	one.spare = true
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.spare) == spareConns {
		oldest := c.spare[0]
		c.spare = c.spare[1:]
		go func() { _ = oldest.Conn.Close() }() // TLS may write, for up to 5 s; net/http notices the end, and calls conn.Close
	}
	c.spare = append(c.spare, one)
	return one
}

// conn is a connection that frees its slot when it is closed.
type conn struct {
	net.Conn
	of      *Conns
	network netip.Addr
	spare   bool
	once    sync.Once
}

// Close closes the connection.
func (c *conn) Close() error {
	c.once.Do(func() {
		if !c.spare {
			c.of.Release(c.network)
			return
		}
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.of.spare = slices.DeleteFunc(c.of.spare, func(o *conn) bool { return o == c })
	})
	return c.Conn.Close()
}
