package main

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Nothing in a URL reaches the shell as anything but one word, and variables of another server are unset.
func TestEnvironmentIsQuoted(t *testing.T) {
	t.Parallel()
	list, err := environment(datadir.Descriptor{
		NATSURL: "nats://127.0.0.1:4222", NATSCA: "/etc/c a.pem",
		PostgresURL: "postgres://o%27brien%24%28id%29:p%20%22%60x%0Ay%5C@db1:5433,db2:5432/shop%3Bls?sslmode=verify-full&sslrootcert=%2Fca+1.pem&application_name=x",
	})
	streamtest.Must(t, err)
	var script strings.Builder
	m := &Main{Out: &script}
	streamtest.Must(t, m.printEnvironment(list))
	script.WriteString(`printf '<%s>' "$PGHOST" "$PGPORT" "$PGUSER" "$PGPASSWORD" "$PGDATABASE" "$PGSSLMODE" "$PGSSLROOTCERT" "$NATS_URL" "$NATS_CA" "${NATS_USER-none}"`)
	cmd := exec.CommandContext(context.Background(), "sh", "-euc", script.String())
	cmd.Env = []string{"NATS_USER=old", "PATH=/nowhere"}
	out, err := cmd.CombinedOutput()
	want := "<db1,db2><5433,5432><o'brien$(id)><p \"`x\ny\\><shop;ls><verify-full></ca 1.pem><nats://127.0.0.1:4222></etc/c a.pem><none>"
	if err != nil || string(out) != want {
		t.Errorf("got  %s (%v)\nwant %s", out, err, want)
	}
}

// TestEnvironmentOfACluster: of several NATS URLs all are printed, with the credentials of one of them.
func TestEnvironmentOfACluster(t *testing.T) {
	t.Parallel()
	for list, want := range map[string][2]string{
		"nats://scrip:p%40ss@n1:4222,nats://scrip:p%40ss@n2:4222": {"scrip", "p@ss"},
		"nats://scrip:one@n1:4222,scrip:two@n2:4222":              {"scrip", "one"},
		"nats://n1:4222, nats://scrip:secret@n2:4222":             {"scrip", "secret"},
		"scrip:secret@n1:4222,scrip:secret@n2:4222":               {"scrip", "secret"},
		"nats://sk_support_x@n1:4222,nats://sk_support_x@n2:4222": {"sk_support_x", ""},
		"nats://[::1]:4222,nats://[::1]:4223":                     {"", ""},
		"n1,n2":                                                   {"", ""},
	} {
		printed, err := environment(datadir.Descriptor{NATSURL: list})
		if err != nil || len(printed) != 4 || printed[0] != (setting{"NATS_URL", list}) || printed[1] != (setting{"NATS_CA", ""}) ||
			printed[2] != (setting{"NATS_USER", want[0]}) || printed[3] != (setting{"NATS_PASSWORD", want[1]}) {
			t.Errorf("%s: %v, %v", list, printed, err)
		}
	}
	for _, list := range []string{"nats://a:b@n1:4222,nats://a:b@n2:port", "nats://n1,nats://a b@n2"} {
		if printed, err := environment(datadir.Descriptor{NATSURL: list}); err == nil || strings.Contains(err.Error(), "a:b") {
			t.Errorf("%s: %v, %v", list, printed, err)
		}
	}
}

// TestOpen: a link of the server's owner, and of a key, each once; exit codes as those of other commands.
func TestOpen(t *testing.T) {
	p := shared(t)
	at := natsx.WithoutUser(p.ready().HTTPURL)
	_, key := p.keyURL("olga", "support")
	_, other := p.keyURL("open-shop", "producer")
	secret := func(natsURL string) string {
		return "SCRIP_KEY=" + strings.TrimPrefix(strings.Split(natsURL, "@")[0], "nats://")
	}
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, link := range []string{
		strings.TrimSpace(p.run("open", "--no-browser").out), p.must("open", "--no-browser")["url"].(string),
		done(t, []string{secret(key)}, "open", "--no-browser", "--http", at+"/")["url"].(string),
	} {
		for _, want := range []int{http.StatusSeeOther, http.StatusUnauthorized} {
			resp, err := browser.Get(link)
			streamtest.Must(t, err)
			streamtest.Must(t, resp.Body.Close())
			if resp.StatusCode != want || !strings.HasPrefix(link, at+"/login?token=") {
				t.Errorf("%s: %d, want %d", link, resp.StatusCode, want)
			}
		}
	}
	for _, c := range []struct {
		code      int
		env, want string
		args      []string
	}{
		{cli.ExitRefused, secret(other), `"refusal":"forbidden"`, []string{"--http", at, "-o", "json"}},
		{cli.ExitUsage, "X=", "--http URL", []string{"--nats", "nats://127.0.0.1:1"}},
		{cli.ExitUsage, "X=", "--key-file", []string{"--http", at}},
		{cli.ExitFailed, secret(key), "no link was made", []string{"--http", "http://127.0.0.1:1"}},
	} {
		if got := scrip(t, []string{c.env}, append([]string{"open", "--no-browser"}, c.args...)...); got.code != c.code || !strings.Contains(got.out+got.err, c.want) {
			t.Errorf("scrip open %v: %+v, want exit %d and %s", c.args, got, c.code, c.want)
		}
	}
}

// TestSealKeyAlone: a replay on another machine has no code key. A forged message stops it, unless it has the seal key.
func TestSealKeyAlone(t *testing.T) {
	t.Parallel()
	p := serve(t, projtest.Dir(t), "--roles", "lanes,api", "--lanes", "1")
	p.must("campaign", "create", "summer", "--codes", "10")
	key := p.must("key", "seal")["seal_key"].(string)
	forged := nats.NewMsg(topology.Evt(0))
	forged.Header.Set(topology.HeaderFormat, "9")
	forged.Header.Set(topology.HeaderSeal, strings.Repeat("A", 43))
	if _, err := p.nats().PublishMsg(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "seal.key")
	streamtest.Must(t, os.WriteFile(file, []byte(key+"\n"), 0o600))
	args := []string{"replay", "--data", t.TempDir(), "--nats", p.ready().NATSURL}
	if got := scrip(t, nil, args...); got.code != cli.ExitFailed || !strings.Contains(got.err, "format") {
		t.Errorf("without a key: %+v", got)
	}
	for _, got := range []result{
		scrip(t, nil, append(args, "--seal-key-file", file)...), scrip(t, []string{"SCRIP_SEAL_KEY_FILE=" + file}, args...), scrip(t, []string{"SCRIP_SEAL_KEY=" + key}, args...),
	} {
		if got.code != cli.ExitDone || !strings.Contains(got.out, "campaign.created") {
			t.Errorf("with the seal key: %+v", got)
		}
	}
	failed(t, []string{"SCRIP_SEAL_KEY=x"}, "scrip key seal", args...)
}
