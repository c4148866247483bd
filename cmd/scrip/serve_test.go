package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	processes "github.com/seed-4a2410e3/scrip/cmd/internal/process"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// asNobody starts a server as user nobody, if root runs the test, else as this user.
func asNobody(t *testing.T, data string) *process {
	t.Helper()
	script := `exec "$0" "$@"`
	if os.Geteuid() == 0 {
		streamtest.Must(t, os.Chmod(filepath.Dir(e2e.Binary()), 0o755))
		script = `cd / && chown nobody "$(dirname "$3")" && exec setpriv --reuid nobody --regid "$(id -g nobody)" --clear-groups "$0" "$@"`
	}
	log := filepath.Join(t.TempDir(), "log")
	streamtest.Must(t, e2e.Strict(log))
	server, err := processes.Serve(processes.Command{
		Program: "sh", Args: []string{"-c", script, e2e.Binary(), "serve", "--data", data}, Log: log,
		Env: append(os.Environ(), "SCRIP_NATS_LISTEN=127.0.0.1:0", "SCRIP_HTTP_LISTEN=127.0.0.1:0"),
	}, data)
	streamtest.Must(t, err)
	return of(t, &e2e.Process{Server: server})
}

// TestLifeOfAServer: a server needs no root. It also stops while it starts. Nothing is left of it when it has ended. What it
// publishes and answers is shown by the tests of the contract.
func TestLifeOfAServer(t *testing.T) {
	t.Parallel()
	data := filepath.Join(projtest.Dir(t), "data")
	p := asNobody(t, data)
	streamtest.Must(t, p.Logs(time.Minute, "code key"))
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d after SIGTERM at the start", code)
	}
	p = asNobody(t, data)
	p.ready()
	p.healthy()
	p.must("campaign", "create", "summer", "--codes", "2")
	code, _ := p.must("claim", "summer", "--customer", "alice")["code"].(string)
	p.row("alice claimed", `SELECT customer_id || ' ' || status FROM scrip.coupon WHERE campaign = 'summer' AND code = $1`, code)
	if got := p.run("status"); got.code != 0 || !strings.HasPrefix(got.out, "ready\n") {
		t.Errorf("status: %+v", got)
	}
	if status, body := p.get("/metrics"); status != 200 || !strings.Contains(body, "scrip_build_info") || !strings.Contains(body, "scrip_projection_position") {
		t.Errorf("/metrics: %d %.300s", status, body)
	}
	if code := p.stop(syscall.SIGINT); code != 0 {
		t.Errorf("exit code %d after Ctrl-C", code)
	}
	if _, err := datadir.Find(data); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("scrip.json is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(data, "postgres", "data", "postmaster.pid")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("PostgreSQL still runs: %v", err)
	}
	if strings.Contains(p.Output(), "level=ERROR") || strings.Contains(p.Output(), "level=WARN") {
		t.Errorf("a life without trouble has trouble in its log:\n%s", p.Output())
	}
}

// TestRefusedStarts: every refusal has a reason and the next step, and exit code 1. Other refusals of a data directory, of addresses
// and of PostgreSQL are shown by the packages datadir, natsd and pgd.
func TestRefusedStarts(t *testing.T) {
	t.Parallel()
	running := serve(t, projtest.Dir(t), "--roles", "lanes,scheduler,api")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	streamtest.Must(t, err)
	defer taken.Close()
	stopped := serve(t, projtest.Dir(t), "--roles", "lanes")
	stopped.stop(syscall.SIGTERM)
	// As it is between the first byte and the last of a restore.
	restoring := t.TempDir()
	streamtest.Must(t, os.MkdirAll(filepath.Join(restoring, "nats.restoring", "jetstream", "$G", "streams", "KV_SCRIP_STATE"), 0o700))
	for _, c := range []struct {
		name, data string
		args       []string
		want       []string
	}{
		{"second server", running.Data, nil, []string{"in use by process " + strconv.Itoa(running.PID()), "--data"}},
		{"another key", stopped.Data, []string{"SCRIP_CODE_KEY=" + strings.Repeat("ab", 32)}, []string{"SCRIP_CODE_KEY", "fingerprint"}},
		{"other lanes", stopped.Data, []string{"--lanes", "7"}, []string{"4 lanes", "--lanes 4"}},
		{"HTTP port", t.TempDir(), []string{"--http-listen", taken.Addr().String()}, []string{taken.Addr().String(), "--http-listen"}},
		{"no PostgreSQL", t.TempDir(), []string{"SCRIP_PG_BIN=/nowhere", "--roles", "lanes,projector"}, []string{"install PostgreSQL", "--roles lanes,scheduler,api"}},
		{"data is a file", e2e.Binary(), nil, []string{"data directory", "--data DIR"}},
		{"a restore was interrupted", restoring, nil, []string{"scrip restore"}},
		{"a log here, and none there", stopped.Data, []string{"--nats", natsOnly(t)}, []string{"scrip backup", "scrip restore"}},
		{"no log to answer for", t.TempDir(), []string{"--nats", natsOnly(t), "--roles", "api"}, []string{"start a server with the lanes role first"}},
	} {
		p := launch(t, c.data, append([]string{"SCRIP_ROLES=lanes"}, c.args...)...)
		code := p.Wait()
		for _, want := range c.want {
			if code != cli.ExitFailed || !strings.Contains(p.Output(), want) {
				t.Errorf("%s: exit %d, want 1 and %q in:\n%s", c.name, code, want, p.Output())
			}
		}
	}
	running.expect(cli.ExitDone, "", "status")
}

// natsOnly is a NATS server without a log.
func natsOnly(t *testing.T) string {
	t.Helper()
	ns, err := natsd.Start(natsd.Options{StoreDir: t.TempDir(), Listen: "127.0.0.1:0"})
	streamtest.Must(t, err)
	t.Cleanup(ns.Shutdown)
	return ns.ClientURL()
}

// TestClaimsWithoutPostgreSQL: claims work without a reachable database.
func TestClaimsWithoutPostgreSQL(t *testing.T) {
	t.Parallel()
	away := serve(t, projtest.Dir(t), "--postgres", "postgres://nobody@127.0.0.1:1/none")
	away.must("campaign", "create", "summer", "--codes", "10")
	code, _ := away.must("claim", "summer", "--customer", "alice")["code"].(string)
	away.must("redeem", code, "--order", "1")
	if r := away.healthy(); r.Checks["projector"].OK || r.Checks["projector"].Needed {
		t.Errorf("/readyz: %+v", r)
	}
	away.expect(cli.ExitDone, "projector", "status")
	away.expect(cli.ExitFailed, "read tables", "codes", "export", "summer")
}

// TestExternal: one server decides, another projects, a third answers, on an external NATS and PostgreSQL. The status names the
// owner of each lane, its pending reminders, and a server that hangs (SIGSTOP).
func TestExternal(t *testing.T) {
	t.Parallel()
	natsURL, db := natsOnly(t), projtest.URL(t)
	lanes := serve(t, projtest.Dir(t), "--nats", natsURL, "--lanes", "1", "--roles", "lanes,scheduler")
	key, err := os.ReadFile(filepath.Join(lanes.Data, "code.key"))
	streamtest.Must(t, err)
	api := serve(t, projtest.Dir(t), "--nats", natsURL, "--roles", "api", "SCRIP_CODE_KEY="+string(key))
	projector := serve(t, projtest.Dir(t), "--nats", natsURL, "--postgres", db, "--roles", "projector")
	if d := projector.ready(); d.PostgresURL != db || d.Lanes != 1 || d.NATSURL != natsURL {
		t.Errorf("scrip.json: %+v", d)
	}
	api.must("campaign", "create", "summer", "--codes", "10")
	code, _ := api.must("claim", "summer", "--customer", "alice")["code"].(string)
	projector.row("alice", `SELECT customer_id FROM scrip.coupon WHERE code = $1`, code)

	// That NATS has no subject mapping: the api role forwards what producers publish.
	nc, err := nats.Connect(natsURL)
	streamtest.Must(t, err)
	defer nc.Close()
	ack, err := nc.Request("scrip.cmd.summer", []byte(`{"id":"plain","type":"claim","customer_id":"bob"}`), time.Minute)
	if err != nil || !strings.Contains(string(ack.Data), `"stream":"SCRIP_CMD_`) {
		t.Fatalf("publishing as a plain producer: %v %+v", err, ack)
	}
	projector.row("bob", `SELECT customer_id FROM scrip.coupon WHERE campaign = 'summer' AND n = 2`)
	// --nats is enough to be a client.
	if got := scrip(t, nil, "customer", "show", "bob", "--nats", natsURL, "-o", "json"); got.code != 0 || !strings.Contains(got.out, `"n":2`) {
		t.Errorf("%+v", got)
	}

	opens := time.Now().Add(30 * time.Hour).Format(time.RFC3339) // the command line's clock stands still in tests
	api.must("campaign", "create", "later", "--codes", "10", "--opens", opens)
	api.must("remind", "later", "--customer", "bob", "--kind", "opens", "--before", "10m")
	streamtest.Eventually(t, "the status has the owner and the reminder", func() bool {
		st := api.must("status")
		lane := st["lane"].([]any)[0].(map[string]any)
		backlog, known := lane["backlog"].(map[string]any)
		owner := false
		for _, s := range st["server"].([]any) {
			s := s.(map[string]any)
			roles, _ := s["roles"].([]any)
			owner = owner || s["server"] == lane["holder"] && s["ready"] == true && len(roles) == 2 && roles[0] == "lanes"
		}
		return known && backlog["pending"] == 1.0 && owner
	})
	streamtest.Must(t, lanes.Signal(syscall.SIGSTOP))
	if got := api.run("status"); got.code == cli.ExitDone || !strings.Contains(got.out, "does not answer") || !strings.Contains(got.out, "NOT READY") {
		t.Errorf("%+v", got)
	}
	if got := scrip(t, nil, "claim", "summer", "--customer", "cid", "--nats", natsURL, "--timeout", "500ms"); got.code != cli.ExitFailed ||
		!strings.Contains(got.err, "unknown outcome, the command may have taken effect") || !strings.Contains(got.err, "; retry with --id ") {
		t.Errorf("a claim without an answer: %+v", got)
	}
}

// TestCredentials: without a flag a server requires generated credentials, with it those that are given, and may then listen on all
// addresses. Commands of its own user find them; other clients are refused with where they are. They are not shown.
func TestCredentials(t *testing.T) {
	t.Parallel()
	made := serve(t, projtest.Dir(t), "--roles", "lanes,api")
	file := filepath.Join(made.Data, "credentials")
	raw, err := os.ReadFile(file)
	streamtest.Must(t, err)
	user, password, _ := strings.Cut(strings.TrimSpace(string(raw)), ":")
	given := serve(t, projtest.Dir(t), "--roles", "lanes,api", "SCRIP_CREDENTIALS=shop:s3cret/@", "--nats-listen", "0.0.0.0:0", "--http-listen", "0.0.0.0:0")
	if v := given.must("env"); v["NATS_USER"] != "shop" || v["NATS_PASSWORD"] != "s3cret/@" || v["NATS_URL"] != given.ready().NATSURL {
		t.Errorf("for other programs: %v", v)
	}
	elsewhere := []string{"--data", t.TempDir()}
	for _, c := range []struct {
		p                   *process
		inURL, secret, want string
		args                []string
	}{
		{made, user + ":" + password, password, file, []string{"--data", made.Data}},
		{made, user + ":" + password, password, "credentials in its data directory", elsewhere},
		{given, "shop:s3cret%2F%40", "s3cret", "USER:PASSWORD@", elsewhere},
	} {
		d := c.p.ready()
		_, address, _ := strings.Cut(d.NATSURL, "@")
		if !strings.Contains(d.NATSURL, "//"+c.inURL+"@127.0.0.1:") || !strings.Contains(d.HTTPURL, "//"+c.inURL+"@127.0.0.1:") {
			t.Errorf("scrip.json has %s and %s", d.NATSURL, d.HTTPURL)
		}
		listed, status := c.p.run("campaign", "list"), c.p.run("status")
		if shown := c.p.Output() + listed.out + status.out + status.err; listed.code != cli.ExitDone || strings.Contains(shown, c.secret) {
			t.Errorf("by scrip.json: %+v, shown: %s", listed, shown)
		}
		if got := scrip(t, nil, append([]string{"campaign", "list", "--nats", "nats://" + address}, c.args...)...); got.code != cli.ExitFailed || !strings.Contains(got.err, c.want) {
			t.Errorf("without credentials: %+v, want %q", got, c.want)
		}
		if status, body := c.p.get("/readyz"); status != 200 || !strings.Contains(body, `"detail"`) {
			t.Errorf("/readyz with scrip.json's URL: %d %s", status, body)
		}
	}
}

// TestWhatIsDangerousIsShown: with --insecure no credentials are required; with --sync interval the log, /readyz and the status
// warn.
func TestWhatIsDangerousIsShown(t *testing.T) {
	t.Parallel()
	p := serve(t, projtest.Dir(t), "--insecure", "--sync", "interval", "--roles", "lanes,api")
	d := p.ready()
	if d.Sync != "interval" || strings.Contains(d.NATSURL, "@") {
		t.Errorf("scrip.json: %+v", d)
	}
	_, ready := p.get("/readyz")
	for what, text := range map[string]string{"the log": p.Output(), "/readyz": ready, "the status": p.run("status").out} {
		if !strings.Contains(text, "may lose the last seconds on power loss") {
			t.Errorf("no warning in %s: %s", what, text)
		}
	}
	if got := scrip(t, nil, "campaign", "list", "--nats", d.NATSURL); got.code != cli.ExitDone {
		t.Errorf("%+v", got)
	}
}
