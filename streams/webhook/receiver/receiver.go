// Package receiver makes the HTTP clients for servers that users name and scrip does not trust: receivers of webhooks, and
// the gateway of pushsender.
//
//	webhook, pushsender ──> Client ──> Transport ── HTTP/1.1, 64 KiB of headers, no redirect ──> receiver
//
// With HTTP/2 a receiver could send frames without end on an open connection; package http logs a line for each that it
// does not expect. Requests have one answer each, so nothing needs HTTP/2.
//
// Owner: the caller, who also bounds what is read of a body.
//
// What a crash does: nothing here is stored. A request in flight may have been delivered, and is made again.
package receiver

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// maxHeader is how many bytes of headers of a response are read.
const maxHeader = 64 << 10

// Transport returns a transport that uses no proxy, and keeps up to idle connections to a receiver. The caller may set what
// else it needs.
func Transport(dialer *net.Dialer, idle int) *http.Transport {
	one := new(http.Protocols)
	one.SetHTTP1(true)
	return &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, Protocols: one,
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: idle, MaxResponseHeaderBytes: maxHeader,
	}
}

// Client returns a client that follows no redirect: package http would request the target with GET and without the body, and
// its 200 would count as a delivery. It would also lead past the check of the URL.
func Client(transport http.RoundTripper) *http.Client {
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}
