package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// certificate writes streamtest.Certificate to two files.
func certificate(t *testing.T, dir string, serial int64) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	certText, keyText := streamtest.Certificate(t, serial, time.Now().Add(24*time.Hour))
	for file, text := range map[string][]byte{cert: certText, key: keyText} {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestTLS: HTTP and the embedded NATS require TLS; scrip's own commands find the certificate; others check it by its CA; a new
// certificate is used without a restart, and connections that exist go on.
func TestTLS(t *testing.T) {
	data := dataDir(t)
	cert, key := certificate(t, data, 1)
	p := serve(t, data, "--roles", "lanes,scheduler,api", "--tls-cert", cert, "--tls-key", key, "--ops-listen", "127.0.0.1:0")
	desc := p.ready()
	if !strings.HasPrefix(desc.NATSURL, "tls://") || !strings.HasPrefix(desc.HTTPURL, "https://") || desc.TLSCert != cert {
		t.Fatalf("%+v", desc)
	}
	p.must("campaign", "create", "summer", "--codes", "10")
	p.must("claim", "summer", "--customer", "alice")
	if got := p.run("status", "-o", "json"); got.code != 0 || !strings.Contains(got.out, `"tls"`) {
		t.Errorf("status: %+v", got)
	}
	// From elsewhere, by the URL and the CA.
	if got := scrip(t, nil, "campaign", "list", "--nats", desc.NATSURL, "--nats-ca", cert); got.code != 0 || !strings.Contains(got.out, "summer") {
		t.Errorf("with the CA: %+v", got)
	}
	if got := scrip(t, []string{"SCRIP_NATS_CA=" + cert}, "campaign", "list", "--nats", desc.NATSURL); got.code != 0 {
		t.Errorf("with the CA in a variable: %+v", got)
	}
	for _, args := range [][]string{{"--nats", desc.NATSURL}, {"--nats", strings.Replace(desc.NATSURL, "tls://", "nats://", 1)}} {
		if got := scrip(t, nil, append([]string{"campaign", "list"}, args...)...); got.code != cli.ExitFailed || !strings.Contains(got.err, "certificate") {
			t.Errorf("without the CA: %+v", got)
		}
	}
	// A key in a file. Its connection is kept over the change of the certificate.
	for _, bad := range []struct{ flag, file, want string }{
		{"--nats-ca", key, "no certificate in PEM"}, {"--nats-ca", "/nowhere", "--nats-ca"}, {"--nats-creds", "/nowhere", "--nats-creds"},
		{"--nats-nkey-file", cert, "--nats-nkey-file"}, {"--nats-token-file", "/dev/null", "is empty"},
	} {
		if got := scrip(t, nil, "campaign", "list", "--nats", desc.NATSURL, bad.flag, bad.file); got.code != cli.ExitUsage || !strings.Contains(got.err, bad.want) {
			t.Errorf("%s %s: %+v", bad.flag, bad.file, got)
		}
	}
	nc, err := nats.Connect(desc.NATSURL, nats.RootCAs(cert))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	serial := func() int64 {
		c, err := tls.Dial("tcp", strings.SplitN(strings.TrimPrefix(desc.HTTPURL, "https://"), "@", 2)[1], &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if n := serial(); n != 1 {
		t.Errorf("certificate %d", n)
	}
	before := nc.Stats().Reconnects
	certificate(t, data, 2)
	wait(t, "the new certificate", startLimit, func() bool { return serial() == 2 })
	p.must("claim", "summer", "--customer", "bob")
	if _, err := nc.Request("scrip.campaign.show", []byte(`{"campaign":"summer"}`), time.Minute); err != nil || nc.Stats().Reconnects != before {
		t.Errorf("a connection that existed: %v, %d reconnects", err, nc.Stats().Reconnects-before)
	}
	if err := os.WriteFile(cert, []byte("no PEM"), 0o644); err != nil {
		t.Fatal(err)
	}
	wait(t, "the bad file is reported", startLimit, func() bool { return strings.Contains(p.log.String(), "the certificate before them stays in use") })
	if n := serial(); n != 2 {
		t.Errorf("with a bad file: certificate %d", n)
	}

	// The listener for operators: its address is in the log.
	_, rest, found := strings.Cut(p.log.String(), "serving metrics, profiles and details of readiness\" address=")
	if !found {
		t.Fatal("the address of --ops-listen is not in the log")
	}
	addr, _, _ := strings.Cut(rest, "\n")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	for path, want := range map[string]string{"/metrics": "scrip_tls_reload_failed 1", "/readyz": "belong together", "/debug/pprof/": "goroutine"} {
		resp, err := client.Get(fmt.Sprintf("https://%s%s", strings.Fields(addr)[0], path))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s: %v, no %q", path, err, want)
		}
	}
}
