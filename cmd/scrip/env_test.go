package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// shell runs a script in a POSIX shell with the program as `scrip`, on the data directory of a server.
func (p *process) shell(script string, env ...string) (string, error) {
	p.t.Helper()
	path, err := binary()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.CommandContext(p.t.Context(), "sh", "-euc", script)
	cmd.Env = append(append(os.Environ(), "PATH="+filepath.Dir(path)+":"+os.Getenv("PATH"), "SCRIP_DATA="+p.data), env...)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// TestDefaultCredentials: without a flag a server requires generated credentials. Commands of its own user find them; other
// clients are refused with the path of the file.
func TestDefaultCredentials(t *testing.T) {
	t.Parallel()
	p := serve(t, dataDir(t))
	d := p.ready()
	p.must("campaign", "create", "summer", "--codes", "10")
	p.must("claim", "summer", "--customer", "alice")

	file := filepath.Join(p.data, "credentials")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%s: %v, %v", file, info, err)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	made := strings.TrimSpace(string(raw))
	if !strings.Contains(d.NATSURL, "//"+made+"@") || !strings.Contains(d.HTTPURL, "//"+made+"@") {
		t.Errorf("scrip.json has %s and %s, not the credentials", d.NATSURL, d.HTTPURL)
	}
	_, password, _ := strings.Cut(made, ":")
	if log := p.log.String(); strings.Contains(log, password) {
		t.Errorf("the password is in the log:\n%s", log)
	}
	if got := p.run("status"); strings.Contains(got.out+got.err, password) {
		t.Errorf("the password is in the status:\n%s", got.out)
	}
	bare := "nats://" + d.NATSURL[strings.LastIndexByte(d.NATSURL, '@')+1:]
	if nc, err := nats.Connect(bare); err == nil {
		nc.Close()
		t.Error("a client without credentials is connected")
	}
	for _, got := range []result{scrip(t, nil, "campaign", "list", "--nats", bare, "--data", p.data), p.run("campaign", "list", "--nats", bare)} {
		if got.code != cli.ExitFailed || !strings.Contains(got.err, file) {
			t.Errorf("the refusal does not name %s: %+v", file, got)
		}
	}
	if got := scrip(t, nil, "campaign", "list", "--nats", bare, "--data", t.TempDir()); got.code != cli.ExitFailed || !strings.Contains(got.err, "credentials in its data directory") {
		t.Errorf("with another data directory: %+v", got)
	}
	if status, body := p.get("/readyz"); status != 200 || !strings.Contains(body, `"detail"`) {
		t.Errorf("/readyz with scrip.json's URL: %d %s", status, body)
	}
}

// TestWhatIsDangerousIsShown: with --insecure no credentials are required; with --sync interval the log, /readyz and the status
// warn.
func TestWhatIsDangerousIsShown(t *testing.T) {
	t.Parallel()
	p := serve(t, dataDir(t), "--insecure", "--sync", "interval", "--roles", "lanes,api")
	d := p.ready()
	if d.Sync != "interval" {
		t.Errorf("scrip.json: %+v", d)
	}
	_, ready := p.get("/readyz")
	for what, text := range map[string]string{"the log": p.log.String(), "/readyz": ready, "the status": p.run("status").out} {
		if !strings.Contains(text, "may lose the last seconds on power loss") {
			t.Errorf("no warning in %s: %s", what, text)
		}
	}
	if strings.Contains(d.NATSURL, "@") {
		t.Errorf("nats_url %s", d.NATSURL)
	}
	if got := scrip(t, nil, "campaign", "list", "--nats", d.NATSURL); got.code != cli.ExitDone {
		t.Errorf("%+v", got)
	}
}

// TestEnvironmentForOthers: `scrip env` prints the variables that psql and NATS clients need, and no others.
func TestEnvironmentForOthers(t *testing.T) {
	p := shared(t)
	p.must("campaign", "create", "environment", "--codes", "10")
	p.row("1", `SELECT count(*)::text FROM scrip.campaign WHERE campaign = 'environment'`)
	if _, err := exec.LookPath("psql"); err != nil {
		t.Skip("there is no psql on this machine")
	}
	out, err := p.shell(`eval "$(scrip env)"; psql -AtXc "select campaign from scrip.campaign where campaign = 'environment'"; echo "$NATS_URL $NATS_USER $NATS_PASSWORD"`, "PGSSLMODE=prefer", "PGHOST=elsewhere.invalid")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	first, rest, _ := strings.Cut(out, "\n")
	words := strings.Fields(rest)
	if first != "environment" || len(words) != 3 {
		t.Fatalf("%s", out)
	}
	for name, options := range map[string][]nats.Option{words[0]: nil, "nats://" + p.ready().NATSURL[strings.LastIndexByte(p.ready().NATSURL, '@')+1:]: {nats.UserInfo(words[1], words[2])}} {
		nc, err := nats.Connect(name, options...)
		if err != nil {
			t.Fatal(err)
		}
		nc.Close()
	}
	if v := p.must("env"); v["PGUSER"] == "" || v["NATS_URL"] != words[0] {
		t.Errorf("as JSON: %v", v)
	}
}

// Nothing in a URL reaches the shell as anything but one word, and variables of another server are unset.
func TestEnvironmentIsQuoted(t *testing.T) {
	t.Parallel()
	list, err := environment(datadir.Descriptor{
		NATSURL:     "nats://127.0.0.1:4222",
		PostgresURL: "postgres://o%27brien%24%28id%29:p%20%22%60x%0Ay%5C@db1:5433,db2:5432/shop%3Bls?sslmode=verify-full&sslrootcert=%2Fca+1.pem&application_name=x",
	})
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	m := &Main{Out: &script}
	if err := m.printEnvironment(list); err != nil {
		t.Fatal(err)
	}
	script.WriteString(`printf '<%s>' "$PGHOST" "$PGPORT" "$PGUSER" "$PGPASSWORD" "$PGDATABASE" "$PGSSLMODE" "$PGSSLROOTCERT" "$NATS_URL" "${NATS_USER-none}"`)
	cmd := exec.CommandContext(context.Background(), "sh", "-euc", script.String())
	cmd.Env = []string{"NATS_USER=old", "PATH=/nowhere"}
	out, err := cmd.CombinedOutput()
	want := "<db1,db2><5433,5432><o'brien$(id)><p \"`x\ny\\><shop;ls><verify-full></ca 1.pem><nats://127.0.0.1:4222><none>"
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
		if err != nil || len(printed) != 3 || printed[0] != (setting{"NATS_URL", list}) ||
			printed[1] != (setting{"NATS_USER", want[0]}) || printed[2] != (setting{"NATS_PASSWORD", want[1]}) {
			t.Errorf("%s: %v, %v", list, printed, err)
		}
	}
	for _, list := range []string{"nats://a:b@n1:4222,nats://a:b@n2:port", "nats://n1,nats://a b@n2"} {
		if printed, err := environment(datadir.Descriptor{NATSURL: list}); err == nil || strings.Contains(err.Error(), "a:b") {
			t.Errorf("%s: %v, %v", list, printed, err)
		}
	}
}

// TestSecretsFromFiles: a variable with _FILE names a file with the value, which is on no command line.
func TestSecretsFromFiles(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ env, want string }{
		{"SCRIP_CREDENTIALS_FILE=" + secret, "USER:PASSWORD"},
		{"SCRIP_CODE_KEY_FILE=" + secret + ".gone", "SCRIP_CODE_KEY_FILE"},
		{"SCRIP_TIMEOUT_FILE=" + secret, "nonsense"},
	} {
		if got := scrip(t, []string{c.env}, "serve", "--data", t.TempDir()); got.code != cli.ExitUsage || !strings.Contains(got.err, c.want) {
			t.Errorf("%s: %+v", c.env, got)
		}
	}
}

// TestSealKeyAlone: a replay on another machine has no code key. A forged message stops it, unless it has the seal key.
func TestSealKeyAlone(t *testing.T) {
	t.Parallel()
	p := serve(t, dataDir(t), "--roles", "lanes,api", "--lanes", "1")
	p.must("campaign", "create", "summer", "--codes", "10")
	key := p.must("key", "seal")["seal_key"].(string)
	forged := nats.NewMsg(topology.Evt(0))
	forged.Header.Set(topology.HeaderFormat, "9")
	forged.Header.Set(topology.HeaderSeal, strings.Repeat("A", 43))
	if _, err := p.nats().PublishMsg(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "seal.key")
	if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
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
	if got := scrip(t, []string{"SCRIP_SEAL_KEY=x"}, args...); got.code != cli.ExitFailed || !strings.Contains(got.err, "scrip key seal") {
		t.Errorf("with nonsense: %+v", got)
	}
}
