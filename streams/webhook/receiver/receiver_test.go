package receiver

import (
	"crypto/x509"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// A receiver that offers HTTP/2 gets HTTP/1.1, more headers than the bound fail the request, and no redirect is followed.
func TestWhatAReceiverMayDo(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Proto", r.Proto)
		switch r.URL.Path {
		case "/long":
			w.Header().Set("Long", strings.Repeat("x", maxHeader))
		case "/moved":
			w.Header().Set("Location", "/")
			w.WriteHeader(http.StatusFound)
		}
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(t.Output(), "", 0)
	server.StartTLS()
	defer server.Close()
	if got := server.TLS.NextProtos; got[0] != "h2" {
		t.Fatalf("the receiver offers %q", got)
	}
	transport := Transport(&net.Dialer{}, 1)
	transport.TLSClientConfig.RootCAs = x509.NewCertPool()
	transport.TLSClientConfig.RootCAs.AddCert(server.Certificate())
	client := Client(transport)
	defer client.CloseIdleConnections()
	for path, status := range map[string]int{"/": http.StatusOK, "/moved": http.StatusFound} {
		resp, err := client.Post(server.URL+path, "application/json", strings.NewReader("{}"))
		streamtest.Must(t, err)
		_ = resp.Body.Close()
		if resp.StatusCode != status || resp.Header.Get("Proto") != "HTTP/1.1" {
			t.Errorf("%s: %s over %s", path, resp.Status, resp.Header.Get("Proto"))
		}
	}
	if resp, err := client.Get(server.URL + "/long"); err == nil {
		_ = resp.Body.Close()
		t.Error("a response with more than 64 KiB of headers was read")
	}
}
