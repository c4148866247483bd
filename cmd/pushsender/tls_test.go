package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// both is why a server cannot be of some kinds.
const both = "--tls-cert is for HTTP and the embedded NATS, so both have TLS or neither"

// TestEachAddressIsChecked: scrip.json names how each of its addresses is checked, and commands on the server's machine need no
// flag. Those elsewhere have the URL, and the CA if it is not the system's. The health check of the image works like either: the
// server is configured by flags, or by variables, which it sees, too.
func TestEachAddressIsChecked(t *testing.T) {
	for _, c := range []struct {
		external, natsTLS, httpTLS bool
		cannot                     string
	}{
		{false, false, false, ""},
		{false, false, true, both},
		{false, true, false, both},
		{false, true, true, ""},
		{true, false, false, ""},
		{true, false, true, ""},
		{true, true, false, ""},
		{true, true, true, ""},
	} {
		if c.cannot != "" {
			continue
		}
		t.Run(fmt.Sprintf("external %v, TLS of NATS %v, of HTTP %v", c.external, c.natsTLS, c.httpTLS), func(t *testing.T) {
			t.Parallel()
			m := &machine{Server: e2e.NewServer(t, "--roles", "lanes,api", "--lanes", "1", "--nats-listen", "127.0.0.1:0"), t: t}
			if c.httpTLS {
				cert, key := certificate(t)
				m.Args = append(m.Args, "--tls-cert", cert, "--tls-key", key)
				if !c.external {
					m.ca = cert
				}
			}
			if c.external {
				m.external(c.natsTLS)
			}
			m.Up()
			if m.nats == "" {
				m.nats = m.Desc.NATSURL
			}
			m.onThisMachine(c.natsTLS, c.httpTLS)
			m.elsewhere()
		})
	}
}

// machine is that of a server.
type machine struct {
	*e2e.Server
	t        *testing.T
	nats, ca string   // its address elsewhere, and the file of its CA, "" without TLS
	settings []string // variables of the server, besides its data directory
}

// certificate returns the files of a certificate that no other signs, and of its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	certText, keyText := streamtest.Certificate(t, time.Now().UnixNano(), time.Now().Add(24*time.Hour))
	streamtest.Must(t, errors.Join(os.WriteFile(cert, certText, 0o600), os.WriteFile(key, keyText, 0o600)))
	return cert, key
}

// external is a NATS server that is not scrip's.
func (m *machine) external(withTLS bool) {
	t, scheme := m.t, "nats"
	t.Helper()
	own := streamtest.Start(t, func(o *natsd.Options) {
		o.Username, o.Password = "scrip", "secret"
		if withTLS {
			cert, key := certificate(t)
			pair, err := tls.LoadX509KeyPair(cert, key)
			streamtest.Must(t, err)
			m.ca, scheme, o.TLS = cert, "tls", &tls.Config{Certificates: []tls.Certificate{pair}}
		}
	})
	m.nats = scheme + "://scrip:secret@" + own.Nats().Addr().String()
	m.settings = []string{"SCRIP_NATS=" + m.nats}
	if withTLS {
		here, err := os.Getwd()
		streamtest.Must(t, err)
		relative, err := filepath.Rel(here, m.ca) // the commands run in another directory than the server
		streamtest.Must(t, err)
		m.settings = append(m.settings, "SCRIP_NATS_CA="+relative)
	}
	m.Env = m.settings
}

// scrip runs a command that has to succeed, in a directory, with no variables but these.
func (m *machine) scrip(dir string, env []string, args ...string) string {
	m.t.Helper()
	out, err := m.try(dir, env, args...)
	if err != nil {
		m.t.Errorf("scrip %v with %v: %v\n%s", args, env, err, out)
	}
	return out
}

func (m *machine) try(dir string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(m.t.Context(), e2e.Binary(), args...)
	cmd.Dir, cmd.Env = dir, append([]string{"HOME=/nowhere"}, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// onThisMachine runs what finds the server by its data directory.
func (m *machine) onThisMachine(natsTLS, httpTLS bool) {
	t, dir, data := m.t, m.t.TempDir(), []string{"SCRIP_DATA=" + m.Data}
	t.Helper()
	m.scrip(dir, data, "campaign", "create", "summer", "--codes", "10")
	m.scrip(dir, data, healthCheck(t)...)
	if link := m.scrip(dir, data, "open", "--no-browser"); strings.HasPrefix(link, "https://") != httpTLS {
		t.Errorf("a link is %s", link)
	}
	if natsTLS { // flags win
		other, _ := certificate(t)
		if out, err := m.try(dir, data, "status", "--nats-ca", other); err == nil || !strings.Contains(out, "certificate") {
			t.Errorf("with another CA: %v\n%s", err, out)
		}
	}
	delivered := make(chan struct{}, 1)
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { delivered <- struct{}{} }))
	defer hook.Close()
	sender := start(t, map[string]string{"SCRIP_DATA": m.Data}, "--webhook", hook.URL, "--since", "start")
	m.log().fire(t, "ann")
	select {
	case <-delivered:
	case <-sender.ended:
	case <-time.After(time.Minute):
		t.Error("the reminder is not delivered")
	}
	if sender.stop(); sender.code != cli.ExitDone {
		t.Errorf("pushsender: exit code %d: %s", sender.code, sender.err.String())
	}
}

// elsewhere runs what has the address.
func (m *machine) elsewhere() {
	m.t.Helper()
	args := []string{"replay", "--nats", m.nats, "--data", "/nowhere"}
	if m.ca != "" {
		args = append(args, "--nats-ca", m.ca)
	}
	if out := m.scrip(m.t.TempDir(), nil, args...); !strings.Contains(out, `"campaign.created"`) {
		m.t.Errorf("a replay has no event:\n%s", out)
	}
	m.scrip("", append([]string{"SCRIP_DATA=" + m.Data}, m.settings...), healthCheck(m.t)...)
}

// log is the log of the server, on which the test fires reminders.
func (m *machine) log() *log {
	m.t.Helper()
	var opts []nats.Option
	if m.ca != "" {
		opts = append(opts, nats.RootCAs(m.ca))
	}
	nc, err := nats.Connect(m.nats, opts...)
	streamtest.Must(m.t, err)
	m.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	streamtest.Must(m.t, err)
	return &log{js: js}
}

// healthCheck is the arguments of scrip in the health check of the image.
func healthCheck(t *testing.T) (args []string) {
	t.Helper()
	text, err := os.ReadFile("../../docker/Dockerfile")
	streamtest.Must(t, err)
	found := regexp.MustCompile(`(?m)^HEALTHCHECK .*CMD (\[.*\])$`).FindSubmatch(text)
	if found == nil || json.Unmarshal(found[1], &args) != nil || args[0] != "scrip" {
		t.Fatalf("the health check of docker/Dockerfile is %q", found)
	}
	return args[1:]
}
