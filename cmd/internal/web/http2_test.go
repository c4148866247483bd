package web

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// With TLS requests of HTTP/2 share a connection, which counts as one; a connection beyond the limit is answered probes alone.
func TestHTTP2(t *testing.T) {
	cert, key := streamtest.Certificate(t, 1, time.Now().Add(time.Hour))
	pair, err := tls.X509KeyPair(cert, key)
	streamtest.Must(t, err)
	var both sync.WaitGroup
	both.Add(2)
	hs := NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/both" { // answered when the other one is here
			both.Done()
			both.Wait()
		}
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	streamtest.Must(t, err)
	conns := NewConns(1, 1, nil)
	served := make(chan error, 1)
	go func() { served <- conns.Serve(hs, l, &tls.Config{Certificates: []tls.Certificate{pair}}) }()
	defer func() { _ = hs.Close(); <-served }()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	client := func() *http.Client {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport, Timeout: time.Minute}
	}
	ask := func(c *http.Client, path string, status int) {
		t.Helper()
		resp, err := c.Get("https://" + l.Addr().String() + path)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		if resp.ProtoMajor != 2 || resp.StatusCode != status {
			t.Errorf("%s: %s %d, expected HTTP/2 and %d", path, resp.Proto, resp.StatusCode, status)
		}
	}
	one := client()
	ask(one, "/v1", 200)
	var two sync.WaitGroup
	for range 2 {
		two.Go(func() { ask(one, "/v1/both", 200) })
	}
	two.Wait()
	ask(client(), "/v1", 503)
	ask(client(), "/healthz", 200)
	if l := conns.Limits(); l[0].Used != 1 || l[0].Refused+l[1].Refused < 2 {
		t.Errorf("%+v", l)
	}
}
