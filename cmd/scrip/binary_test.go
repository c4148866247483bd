package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m, stopCommon)) }

// process is a running `scrip serve`, for one test.
type process struct {
	*e2e.Process
	t *testing.T
}

// common is the server that tests of commands use together; it is started once.
var common struct {
	*e2e.Process
	once sync.Once
	dir  string
	err  error
}

// shared is the server of all roles that tests of commands use together. Such a test is not parallel, and its campaigns, keys
// and customers have names of their own.
func shared(t *testing.T) *process {
	t.Helper()
	common.once.Do(func() {
		if common.dir, common.err = os.MkdirTemp("", "scrip-test-"); common.err == nil {
			common.err = os.Chmod(common.dir, 0o711) // an unprivileged PostgreSQL must pass through
		}
		if common.err == nil {
			common.Process, common.err = start(filepath.Join(common.dir, "data"), filepath.Join(common.dir, "log"), []string{"--webhook-allow", "127.0.0.1/32"})
		}
	})
	if common.err != nil {
		t.Fatal(common.err)
	}
	p := &process{common.Process, t}
	p.ready()
	return p
}

func stopCommon() {
	if common.Process != nil {
		if code, err := common.Stop(); code != 0 || err != nil {
			fmt.Fprintf(os.Stderr, "the shared server stopped with exit code %d, %v\n%s", code, err, common.Output())
		}
	}
	_ = os.RemoveAll(common.dir)
}

// start starts `scrip serve` on free ports, with further arguments; those of the form SCRIP_NAME=value are variables.
func start(data, log string, args []string) (*e2e.Process, error) {
	env, flags := []string{"SCRIP_NATS_LISTEN=127.0.0.1:0"}, []string(nil)
	for _, a := range args {
		if strings.HasPrefix(a, "SCRIP_") {
			env = append(env, a)
		} else {
			flags = append(flags, a)
		}
	}
	return e2e.Start(data, log, flags, env)
}

// launch starts one that is killed at the end of the test if it still runs.
func launch(t *testing.T, data string, args ...string) *process {
	t.Helper()
	p, err := start(data, filepath.Join(t.TempDir(), "log"), args)
	streamtest.Must(t, err)
	return of(t, p)
}

func of(t *testing.T, p *e2e.Process) *process {
	t.Cleanup(func() {
		p.End()
		if t.Failed() {
			t.Logf("log of scrip serve:\n%s", p.Output())
		}
	})
	return &process{p, t}
}

// serve launches and waits until the server can be found.
func serve(t *testing.T, data string, args ...string) *process {
	t.Helper()
	p := launch(t, data, args...)
	p.ready()
	return p
}

func (p *process) ready() e2e.Descriptor {
	p.t.Helper()
	d, err := p.Ready()
	streamtest.Must(p.t, err)
	return d
}

// stop sends a signal, waits for the end and returns the exit code.
func (p *process) stop(by syscall.Signal) int {
	p.t.Helper()
	streamtest.Must(p.t, p.Signal(by))
	return p.Wait()
}

// run is the program in process, as a client of this server.
func (p *process) run(args ...string) result {
	p.t.Helper()
	return scrip(p.t, nil, append(args, "--data", p.Data)...)
}

// expect runs a command and expects an exit code and a text.
func (p *process) expect(code int, want string, args ...string) {
	p.t.Helper()
	if got := p.run(args...); got.code != code || !strings.Contains(got.out+got.err, want) {
		p.t.Errorf("scrip %s: exit %d, want %d and %q\n%s%s", strings.Join(args, " "), got.code, code, want, got.out, got.err)
	}
}

// must runs a command that has to be done, and returns its JSON.
func (p *process) must(args ...string) map[string]any {
	p.t.Helper()
	return done(p.t, []string{"SCRIP_TIMEOUT=2m"}, append(args, "--data", p.Data)...) // the default is too short for machines under load
}

// done runs a command that has to succeed and returns its JSON.
func done(t *testing.T, env []string, args ...string) (answer map[string]any) {
	t.Helper()
	got := scrip(t, env, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(got.out), &answer); got.code != cli.ExitDone || err != nil {
		t.Fatalf("scrip %v: %+v (%v)", args, got, err)
	}
	return answer
}

// row waits until a query's one value is as wanted.
func (p *process) row(want, query string, args ...any) {
	p.t.Helper()
	db := p.postgres()
	streamtest.Eventually(p.t, fmt.Sprintf("%q from %s", want, query), func() bool {
		var got string
		return db.QueryRow(p.t.Context(), query, args...).Scan(&got) == nil && got == want
	})
}

// postgres is a connection to the server's tables.
func (p *process) postgres() *pgx.Conn {
	p.t.Helper()
	db, err := pgx.Connect(p.t.Context(), p.ready().PostgresURL)
	streamtest.Must(p.t, err)
	p.t.Cleanup(func() { _ = db.Close(context.Background()) })
	return db
}

// tables is the schema of the tables in use.
func (p *process) tables() (name string) {
	p.t.Helper()
	streamtest.Must(p.t, p.postgres().QueryRow(p.t.Context(), "SELECT live::text FROM scrip_meta.format").Scan(&name))
	return name
}

// nats connects to the server's NATS.
func (p *process) nats() jetstream.JetStream {
	p.t.Helper()
	nc, err := nats.Connect(p.ready().NATSURL)
	streamtest.Must(p.t, err)
	p.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	streamtest.Must(p.t, err)
	return js
}

// get sends an HTTP request to the server.
func (p *process) get(path string) (int, string) {
	p.t.Helper()
	resp, err := http.Get(p.ready().HTTPURL + path)
	streamtest.Must(p.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	streamtest.Must(p.t, err)
	return resp.StatusCode, string(body)
}

// healthy waits until the server is ready: on a busy machine a check may fail for a moment.
func (p *process) healthy() (r status.Readiness) {
	p.t.Helper()
	streamtest.Eventually(p.t, "the server is ready", func() bool {
		code, body := p.get("/readyz")
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			p.t.Fatalf("/readyz: %v: %s", err, body)
		}
		return code == 200 && r.Ready
	})
	return r
}
