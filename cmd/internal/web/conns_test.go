package web

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// When a connection ends, by its client or for being idle, another is accepted.
func TestConnectionsAreLimited(t *testing.T) {
	inMemory(t, 2, bodies(1000), func(t *testing.T, net *pipes) {
		ask := func(path string) (served bool, hangUp func()) {
			c := net.dial()
			got := talk(c, func() {}, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
			return got != nil && got.StatusCode == 200, func() { _ = c.Close(); synctest.Wait() }
		}
		_, hangUp := ask("/")
		ask("/")
		if served, _ := ask("/"); served {
			t.Error("a third connection is served where two may be open")
		}
		hangUp()
		if served, _ := ask("/"); !served {
			t.Error("there is no room although one was closed")
		}
		if served, _ := ask("/"); served {
			t.Error("one more is served")
		}
		time.Sleep(IdleWait + time.Second)
		if served, _ := ask("/"); !served {
			t.Error("connections without requests are not closed")
		}
	})
}

// Connections leave most of the files that the process may open to JetStream, and those of one address most of them to others.
func TestConnsLeaveFiles(t *testing.T) {
	if c := NewConns(0, 0, nil); c.all.Limit < 1 || c.all.Limit > MaxConns || c.one.Limit < 1 || c.one.Limit > max(1, c.all.Limit/2) {
		t.Errorf("%d connections, %d of one address", c.all.Limit, c.one.Limit)
	}
}

// A client that opens all the connections it can, and sends nothing or half a request, closes no door: other addresses are
// served, a trusted proxy has no limit of its own, and probes are answered whatever is open, also to the address of the attack.
func TestAFloodOfConnections(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	streamtest.Must(t, err)
	const most, perAddress = 64, 16
	conns := NewConns(most, perAddress, Proxies{netip.MustParsePrefix("127.0.0.3/32")})
	hs := NewServer(bodies(1000))
	served := make(chan error, 1)
	go func() { served <- conns.Serve(hs, l, nil) }()
	defer func() { _ = hs.Close(); <-served }()
	dial := func(from string) net.Conn {
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Skip("this system has one loopback address: ", err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ask := func(from, path string) (status int, kind string) {
		c := dial(from)
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%s from %s: %v", path, from, err)
			return 0, ""
		}
		return resp.StatusCode, resp.Header.Get("Content-Type")
	}
	// Those that hold a slot have had an answer, so that they may be idle for longer than this test lasts.
	flood := func(from string, n int) {
		for i := range n {
			text := "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
			if from == "127.0.0.1" && i >= n/2 {
				text = []string{"", "POST /v1/commands HTTP/1.1\r\nHost: x\r\nContent-Le"}[i%2]
			}
			_, _ = io.WriteString(dial(from), text)
		}
	}
	probed := func(from string) {
		t.Helper()
		for _, path := range probes {
			if status, _ := ask(from, path); status != 200 {
				t.Errorf("%s is answered %d", path, status)
			}
		}
		if status, kind := ask(from, "/v1"); status != 503 || kind != ProblemType {
			t.Errorf("another request beyond the limit is answered %d %s", status, kind)
		}
	}
	for range 4 {
		flood("127.0.0.1", 2*spareConns)
		probed("127.0.0.1")
	}
	if status, _ := ask("127.0.0.2", "/v1"); status != 200 {
		t.Errorf("another address is answered %d", status)
	}
	flood("127.0.0.3", 2*perAddress)
	if status, _ := ask("127.0.0.3", "/v1"); status != 200 {
		t.Errorf("through a trusted proxy the answer is %d", status)
	}
	for _, from := range []string{"127.0.0.3", "127.0.0.4"} {
		flood(from, most)
	}
	probed("127.0.0.5")
	if l := conns.Limits(); l[0].Used != most || l[1].Used < perAddress || l[1].Refused < 4*spareConns || l[0].Refused == 0 {
		t.Errorf("%+v", l)
	}
}
