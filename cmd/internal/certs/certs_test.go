package certs

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestACertificateIsReplacedUnderConnections: a connection that exists goes on; new ones get the new certificate; files that
// cannot be used change nothing and are reported.
func TestACertificateIsReplacedUnderConnections(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	put := func(cert, key []byte) {
		t.Helper()
		for file, text := range map[string][]byte{certFile: cert, keyFile: key} {
			if text == nil {
				continue
			}
			if err := os.WriteFile(file+".new", text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(file+".new", file); err != nil {
				t.Fatal(err)
			}
		}
	}
	soon := time.Now().Add(24 * time.Hour)
	firstCert, firstKey := streamtest.Certificate(t, 1, soon)
	if _, err := Open(certFile, keyFile, nil); err == nil || !strings.Contains(err.Error(), "--tls-cert") {
		t.Errorf("without files: %v", err)
	}
	put(firstCert, nil)
	if _, err := Open(certFile, keyFile, nil); err == nil || !strings.Contains(err.Error(), "--tls-key") {
		t.Errorf("without a key: %v", err)
	}
	put(nil, firstKey)
	p, err := Open(certFile, keyFile, streamtest.Logger(t))
	if err != nil {
		t.Fatal(err)
	}
	p.every = 5 * time.Millisecond
	p.looked.Watch()
	// The looks come in order, and the test changes the files after each of these.
	fails := func(why string) bool { return why != "" }
	uses := func(why string) bool { return why == "" }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hs := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }), ReadHeaderTimeout: time.Minute}
	go func() { _ = hs.Serve(tls.NewListener(l, p.Server())) }()
	t.Cleanup(func() { _ = hs.Close() })

	// dial makes a connection, and serial reads the certificate that it began with.
	dial := func(config *tls.Config) (*tls.Conn, error) { return tls.Dial("tcp", l.Addr().String(), config) }
	serial := func() int64 {
		t.Helper()
		c, err := dial(p.Own())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	old, err := dial(OfFile(certFile))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = old.Close() })
	if n := serial(); n != 1 {
		t.Errorf("certificate %d", n)
	}

	secondCert, secondKey := streamtest.Certificate(t, 2, soon)
	put(secondCert, nil) // the key follows later, as with every tool that writes two files
	p.looked.WaitFor(t, func(why string) bool { return strings.Contains(why, "belong together") })
	if ok, s := p.Status(time.Now()); ok || !strings.Contains(s.Error, "belong together") {
		t.Errorf("a pair that does not fit: %t %+v", ok, s)
	}
	if n := serial(); n != 1 {
		t.Errorf("between the two files: certificate %d", n)
	}
	put(nil, secondKey)
	p.looked.WaitFor(t, uses)
	if ok, _ := p.Status(time.Now()); !ok || serial() != 2 {
		t.Error("the new certificate is not in use")
	}

	if _, err := io.WriteString(old, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		t.Errorf("a connection that existed: %v", err)
	}
	if body, err := io.ReadAll(old); err != nil || !strings.HasSuffix(string(body), "ok") {
		t.Errorf("a connection that existed: %q %v", body, err)
	}

	for _, bad := range [][]byte{[]byte("no PEM"), {}} {
		put(bad, nil)
		p.looked.WaitFor(t, fails)
		if n := serial(); n != 2 {
			t.Errorf("with a bad file: certificate %d", n)
		}
		put(secondCert, nil)
		p.looked.WaitFor(t, uses)
	}
	if ok, s := p.Status(soon.Add(time.Minute)); ok || !strings.Contains(s.Error, "expired") || s.Names[0] != "scrip.example" {
		t.Errorf("after its end: %t %+v", ok, s)
	}
	// Another server's certificate is refused.
	otherCert, _ := streamtest.Certificate(t, 3, soon)
	other := filepath.Join(dir, "other.crt")
	if err := os.WriteFile(other, otherCert, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{other, filepath.Join(dir, "missing.crt")} {
		if c, err := dial(OfFile(file)); err == nil {
			_ = c.Close()
			t.Errorf("the certificate of %s was accepted", file)
		}
	}
}
