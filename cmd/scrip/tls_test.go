package main

import (
	"crypto/tls"
	"errors"
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
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestTLS: HTTP and the embedded NATS require TLS; scrip's own commands find the certificate; others check it by its CA. A new
// certificate is used without a restart, and connections to NATS go on; those to HTTP, and bad files, are shown by package certs.
func TestTLS(t *testing.T) {
	data := projtest.Dir(t)
	cert, key := filepath.Join(data, "tls.crt"), filepath.Join(data, "tls.key")
	certify := func(serial int64) {
		t.Helper()
		certText, keyText := streamtest.Certificate(t, serial, time.Now().Add(24*time.Hour))
		streamtest.Must(t, errors.Join(os.WriteFile(cert, certText, 0o644), os.WriteFile(key, keyText, 0o644)))
	}
	certify(1)
	p := serve(t, data, "--roles", "lanes,scheduler,api", "--tls-cert", cert, "--tls-key", key, "--ops-listen", "127.0.0.1:0")
	desc, err := datadir.Find(data)
	if err != nil || !strings.HasPrefix(desc.NATSURL, "tls://") || !strings.HasPrefix(desc.HTTPURL, "https://") || desc.NATSCert != cert || desc.HTTPCert != cert {
		t.Fatalf("%+v, %v", desc, err)
	}
	p.must("campaign", "create", "summer", "--codes", "10")
	p.must("claim", "summer", "--customer", "alice")
	p.expect(cli.ExitDone, `"tls"`, "status", "-o", "json")
	plain := strings.Replace(desc.NATSURL, "tls://", "nats://", 1)
	// From elsewhere, by the URL and the CA, or another way to be known.
	for _, c := range []struct {
		env, args string
		code      int
		want      string
	}{
		{"", "--nats-ca " + cert, cli.ExitDone, "summer"},
		{"SCRIP_NATS_CA=" + cert, "", cli.ExitDone, "summer"},
		{"", "", cli.ExitFailed, "certificate"},
		{"", "--nats " + plain, cli.ExitFailed, "certificate"},
		{"", "--nats-ca " + key, cli.ExitUsage, "no certificate in PEM"},
		{"", "--nats-ca /nowhere", cli.ExitUsage, "--nats-ca"},
		{"", "--nats-creds /nowhere", cli.ExitUsage, "--nats-creds"},
		{"", "--nats-nkey-file " + cert, cli.ExitUsage, "--nats-nkey-file"},
		{"", "--nats-token-file /dev/null", cli.ExitUsage, "is empty"},
	} {
		args := append([]string{"campaign", "list", "--nats", desc.NATSURL}, strings.Fields(c.args)...)
		if got := scrip(t, []string{c.env}, args...); got.code != c.code || !strings.Contains(got.out+got.err, c.want) {
			t.Errorf("%s %s: %+v", c.env, c.args, got)
		}
	}
	nc, err := nats.Connect(desc.NATSURL, nats.RootCAs(cert))
	streamtest.Must(t, err)
	t.Cleanup(nc.Close)
	streamtest.Must(t, nc.Flush())
	certify(2)
	streamtest.Eventually(t, "the new certificate", func() bool {
		c, err := tls.Dial("tcp", strings.SplitN(desc.HTTPURL, "@", 2)[1], &tls.Config{InsecureSkipVerify: true})
		streamtest.Must(t, err)
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64() == 2
	})
	p.must("claim", "summer", "--customer", "bob")
	if _, err := nc.Request("scrip.campaign.show", []byte(`{"campaign":"summer"}`), time.Minute); err != nil || nc.Stats().Reconnects != 0 {
		t.Errorf("a connection that existed: %v, %d reconnects", err, nc.Stats().Reconnects)
	}
	streamtest.Must(t, os.WriteFile(cert, []byte("no PEM"), 0o644))
	streamtest.Eventually(t, "the bad file is reported", func() bool { return strings.Contains(p.Output(), "the certificate before them stays in use") })

	// The listener for operators: its address is in the log.
	_, rest, found := strings.Cut(p.Output(), "serving metrics, profiles and details of readiness\" address=")
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
