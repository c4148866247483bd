package main

import (
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// TestLifeOfAServer: what it publishes while it serves, and that nothing is left of it. What commands answer is shown by the tests
// of the contract.
func TestLifeOfAServer(t *testing.T) {
	t.Parallel()
	p := serve(t, filepath.Join(dataDir(t), "data"))
	if info, err := os.Stat(filepath.Join(p.data, "scrip.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("scrip.json: %v, %v", info, err)
	}
	p.healthy()
	if status, _ := p.get("/healthz"); status != 200 {
		t.Errorf("/healthz: %d", status)
	}
	p.must("campaign", "create", "summer", "--codes", "2")
	code, _ := p.must("claim", "summer", "--customer", "alice")["code"].(string)
	p.row("alice claimed", `SELECT customer_id || ' ' || status FROM scrip.coupon WHERE campaign = 'summer' AND code = $1`, code)
	// Refusals: exit 3, the answer on stdout in either form.
	for _, form := range []string{"text", "json"} {
		if got := p.run("claim", "bad.name", "--customer", "alice", "-o", form); got.code != cli.ExitRefused || !strings.Contains(got.out, "invalid") || got.err != "" {
			t.Errorf("-o %s: %+v", form, got)
		}
	}
	p.must("campaign", "update", "summer", "--codes", "3", "--closes", "+240h")
	if got := p.run("status"); got.code != 0 || !strings.HasPrefix(got.out, "ready\n") {
		t.Errorf("status: %+v", got)
	}
	if status, body := p.get("/metrics"); status != 200 || !strings.Contains(body, "scrip_build_info") || !strings.Contains(body, "scrip_projection_position") {
		t.Errorf("/metrics: %d %.300s", status, body)
	}

	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	if _, err := datadir.Find(p.data); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("scrip.json is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(p.data, "postgres", "data", "postmaster.pid")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("PostgreSQL still runs: %v", err)
	}
	if strings.Contains(p.log.String(), "level=ERROR") || strings.Contains(p.log.String(), "level=WARN") {
		t.Errorf("a life without trouble has trouble in its log:\n%s", p.log.String())
	}
}

// TestRefusedStarts: every refusal has a reason and the next step, and exit code 1.
func TestRefusedStarts(t *testing.T) {
	t.Parallel()
	running := serve(t, dataDir(t), "--roles", "lanes,scheduler,api")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	newer := t.TempDir()
	if err := os.WriteFile(filepath.Join(newer, "format"), []byte("99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stopped := serve(t, dataDir(t), "--roles", "lanes")
	stopped.signal(syscall.SIGTERM)
	stopped.exit()
	keyless := filepath.Join(t.TempDir(), "keyless")
	if err := os.CopyFS(keyless, os.DirFS(stopped.data)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(keyless, "code.key")); err != nil {
		t.Fatal(err)
	}
	// As it is between the first byte and the last of a restore.
	restoring := t.TempDir()
	if err := os.MkdirAll(filepath.Join(restoring, "nats.restoring", "jetstream", "$G", "streams", "KV_SCRIP_STATE"), 0o700); err != nil {
		t.Fatal(err)
	}
	nobodys := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(nobodys, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		name, data string
		args       []string
		want       []string
	}{
		{"second server", running.data, nil, []string{"in use by process " + strconv.Itoa(running.cmd.Process.Pid), "--data"}},
		{"newer format", newer, nil, []string{"format 99", "newer scrip"}},
		{"another key", stopped.data, []string{"SCRIP_CODE_KEY=" + strings.Repeat("ab", 32)}, []string{"SCRIP_CODE_KEY", "fingerprint"}},
		{"bad key", stopped.data, []string{"SCRIP_CODE_KEY=abc"}, []string{"SCRIP_CODE_KEY", "64 hex digits"}},
		{"lost key", keyless, nil, []string{"code.key", "SCRIP_CODE_KEY"}},
		{"other lanes", stopped.data, []string{"--lanes", "7"}, []string{"4 lanes", "--lanes 4"}},
		{"NATS port", t.TempDir(), []string{"--nats-listen", taken.Addr().String()}, []string{taken.Addr().String(), "--nats-listen"}},
		{"HTTP port", t.TempDir(), []string{"--http-listen", taken.Addr().String()}, []string{taken.Addr().String(), "--http-listen"}},
		{"no PostgreSQL", t.TempDir(), []string{"SCRIP_PG_BIN=/nowhere", "--roles", "lanes,projector"}, []string{"install PostgreSQL", "--roles lanes,scheduler,api"}},
		{"data is a file", nobodys, nil, []string{"data directory", "--data DIR"}},
		{"a restore was interrupted", restoring, nil, []string{"scrip restore"}},
		{"a log here, and none there", stopped.data, []string{"--nats", natsOnly(t)}, []string{"scrip backup", "scrip restore"}},
		{"no log to answer for", t.TempDir(), []string{"--nats", natsOnly(t), "--roles", "api"}, []string{"start a server with the lanes role first"}},
	} {
		args := c.args
		if !strings.Contains(strings.Join(args, " "), "--roles") {
			args = append(args, "--roles", "lanes")
		}
		p := launch(t, c.data, args...)
		code, log := p.exit(), p.log.String()
		for _, want := range c.want {
			if code != cli.ExitFailed || !strings.Contains(log, want) {
				t.Errorf("%s: exit %d, want 1 and %q in:\n%s", c.name, code, want, log)
			}
		}
	}
	if got := running.run("status"); got.code != 0 {
		t.Errorf("the server that was there: %+v", got)
	}
}

// natsOnly is a NATS server without a log.
func natsOnly(t *testing.T) string {
	t.Helper()
	ns, err := natsd.Start(natsd.Options{StoreDir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ns.Shutdown)
	return ns.ClientURL()
}

// TestClaimsWithoutPostgreSQL: claims work without a reachable database.
func TestClaimsWithoutPostgreSQL(t *testing.T) {
	t.Parallel()
	away := serve(t, dataDir(t), "--postgres", "postgres://nobody@127.0.0.1:1/none")
	away.must("campaign", "create", "summer", "--codes", "10")
	code, _ := away.must("claim", "summer", "--customer", "alice")["code"].(string)
	away.must("redeem", code, "--order", "1")
	if r := away.healthy(); r.Checks["projector"].OK || r.Checks["projector"].Needed {
		t.Errorf("/readyz: %+v", r)
	}
	if got := away.run("status"); got.code != 0 || !strings.Contains(got.out, "projector") {
		t.Errorf("status: %+v", got)
	}
	if got := away.run("codes", "export", "summer"); got.code != cli.ExitFailed || !strings.Contains(got.err, "read tables") {
		t.Errorf("export: %+v", got)
	}
}

// TestExternal: one server decides, another projects, a third answers, on an external NATS and PostgreSQL.
func TestExternal(t *testing.T) {
	t.Parallel()
	natsURL, db := natsOnly(t), projtest.URL(t)
	lanes := serve(t, dataDir(t), "--nats", natsURL, "--lanes", "2", "--roles", "lanes,scheduler")
	key, err := os.ReadFile(filepath.Join(lanes.data, "code.key"))
	if err != nil {
		t.Fatal(err)
	}
	api := serve(t, dataDir(t), "--nats", natsURL, "--roles", "api", "SCRIP_CODE_KEY="+string(key))
	projector := serve(t, dataDir(t), "--nats", natsURL, "--postgres", db, "--roles", "projector")
	if d := projector.ready(); d.PostgresURL != db || d.Lanes != 2 || d.NATSURL != natsURL {
		t.Errorf("scrip.json: %+v", d)
	}
	api.must("campaign", "create", "summer", "--codes", "10")
	code, _ := api.must("claim", "summer", "--customer", "alice")["code"].(string)
	projector.row("alice", `SELECT customer_id FROM scrip.coupon WHERE code = $1`, code)

	// That NATS has no subject mapping: the api role forwards what producers publish.
	nc, err := nats.Connect(natsURL)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ack, err := nc.Request("scrip.cmd.summer", []byte(`{"id":"plain","type":"claim","customer_id":"bob"}`), startLimit)
	if err != nil || !strings.Contains(string(ack.Data), `"stream":"SCRIP_CMD_`) {
		t.Fatalf("publishing as a plain producer: %v %+v", err, ack)
	}
	projector.row("bob", `SELECT customer_id FROM scrip.coupon WHERE campaign = 'summer' AND n = 2`)
	// --nats is enough to be a client.
	if got := scrip(t, nil, "customer", "show", "bob", "--nats", natsURL, "-o", "json"); got.code != 0 || !strings.Contains(got.out, `"n":2`) {
		t.Errorf("%+v", got)
	}
}

// TestAsAnotherUser: a server needs no root. If root runs the test, the server runs as user nobody, else as this user.
func TestAsAnotherUser(t *testing.T) {
	t.Parallel()
	data := dataDir(t)
	var as *syscall.Credential
	if os.Geteuid() == 0 {
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, err := strconv.Atoi(nobody.Uid)
		if err != nil {
			t.Fatal(err)
		}
		gid, err := strconv.Atoi(nobody.Gid)
		if err != nil {
			t.Fatal(err)
		}
		as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(data, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	p := launchAs(t, as, data)
	p.ready()
	p.must("campaign", "create", "summer", "--codes", "10")
	p.must("claim", "summer", "--customer", "alice")
	p.row("alice", `SELECT customer_id FROM scrip.coupon`)
	p.signal(os.Interrupt)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d after Ctrl-C", code)
	}
}

// TestCredentials: with them scrip may listen on all addresses, and requires them of every client.
func TestCredentials(t *testing.T) {
	t.Parallel()
	p := serve(t, dataDir(t), "SCRIP_CREDENTIALS=shop:s3cret/@", "--nats-listen", "0.0.0.0:0", "--http-listen", "0.0.0.0:0", "--roles", "lanes,api")
	d := p.ready()
	if !strings.Contains(d.NATSURL, "shop:s3cret%2F%40@127.0.0.1:") || strings.Contains(p.log.String(), "s3cret") {
		t.Errorf("nats_url %s, log:\n%s", d.NATSURL, p.log.String())
	}
	p.must("campaign", "create", "summer", "--codes", "10") // by scrip.json
	bare := "nats://127.0.0.1:" + d.NATSURL[strings.LastIndexByte(d.NATSURL, ':')+1:]
	if got := scrip(t, nil, "campaign", "list", "--nats", bare); got.code != cli.ExitFailed || !strings.Contains(got.err, "USER:PASSWORD@") {
		t.Errorf("without credentials: %+v", got)
	}
	if status, _ := p.get("/metrics"); status != 200 {
		t.Errorf("/metrics with scrip.json's URL: %d", status)
	}
	for path, want := range map[string]int{"/metrics": 401, "/debug/pprof/": 401, "/readyz": 200} {
		resp, err := http.Get(natsx.WithoutUser(d.HTTPURL) + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s without credentials: %d", path, resp.StatusCode)
		}
	}
}

// TestStoppedWhileStarting: SIGTERM also stops a starting server.
func TestStoppedWhileStarting(t *testing.T) {
	t.Parallel()
	p := launch(t, dataDir(t))
	wait(t, "first sign of life", startLimit, func() bool { return strings.Contains(p.log.String(), "code key") })
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	p = serve(t, p.data)
	p.must("campaign", "create", "summer", "--codes", "10")
}
