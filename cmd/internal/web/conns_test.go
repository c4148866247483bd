package web

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// Connections beyond the limit are closed; when one ends, another is accepted.
func TestConnectionsAreLimited(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hs := NewServer(bodies(1000))
	go func() { _ = hs.Serve(Limit(l, 2)) }()
	defer hs.Close()

	ask := func(c net.Conn) error {
		_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first, second := dial(), dial()
	if err := ask(first); err != nil {
		t.Fatal(err)
	}
	if err := ask(second); err != nil {
		t.Fatal(err)
	}
	if err := ask(dial()); err == nil {
		t.Error("a third connection is served beside two that are open")
	}
	_ = second.Close()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if err := ask(dial()); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("no room although one was closed: %v", err)
		}
	}
}

// Connections leave most of the files that the process may open to JetStream.
func TestConnsLeaveFiles(t *testing.T) {
	if n := Conns(); n < 1 || n > MaxConns {
		t.Errorf("%d connections", n)
	}
}
