package web

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a network in memory, so that a server's own limits pass at once in a bubble of synctest.
type pipes struct{ accepted chan net.Conn }

func (p *pipes) Accept() (net.Conn, error) {
	if c, ok := <-p.accepted; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p *pipes) Close() error   { close(p.accepted); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// dial opens a connection to the server.
func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.accepted <- server
	return client
}

// inMemory runs a test with a server of this package in a bubble: its limits are those of NewServer, at most `most`
// connections are open.
func inMemory(t *testing.T, most int, h http.Handler, f func(t *testing.T, net *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{make(chan net.Conn)}
		hs := NewServer(h)
		served := make(chan error, 1)
		go func() { served <- NewConns(most, most, nil).Serve(hs, p, nil) }()
		f(t, p)
		_ = hs.Close()
		<-served
		time.Sleep(time.Hour) // what still sends ends
	})
}

// talk sends parts of a request, each after a pause, and returns the answer, nil if the connection ended without one. What the
// server does not take any more is not sent.
func talk(c net.Conn, pause func(), parts ...string) *http.Response {
	go func() {
		for _, part := range parts {
			if _, err := io.WriteString(c, part); err != nil {
				return
			}
			pause()
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil
	}
	return resp
}
