package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

const (
	// startLimit and stopLimit are far above what is needed, for machines under load.
	startLimit = 3 * time.Minute
	stopLimit  = 3 * time.Minute
	poll       = 20 * time.Millisecond
)

// binary builds the program once for all tests of this binary.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "scrip-binary-")
	if err != nil {
		return "", err
	}
	// Others than its owner run it, too.
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "scrip")
	return path, e2e.Build(path)
})

// common is the server that tests of commands use together; it is started once.
var common struct {
	once sync.Once
	dir  string
	p    *process
	err  error
}

// shared is the server of all roles that tests of commands use together. Such a test is not parallel, and its campaigns, keys
// and customers have names of their own.
func shared(t *testing.T) *process {
	t.Helper()
	common.once.Do(func() {
		if common.dir, common.err = openDir(); common.err == nil {
			common.p, common.err = start(nil, filepath.Join(common.dir, "data"))
		}
	})
	if common.err != nil {
		t.Fatal(common.err)
	}
	p := *common.p
	p.t = t
	p.ready()
	return &p
}

func TestMain(m *testing.M) {
	code := m.Run()
	if p := common.p; p != nil {
		if err := p.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "the shared server:", err)
			code = max(code, 1)
		}
	}
	_ = os.RemoveAll(common.dir)
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// dataDir is a directory that other users can pass through, as an unprivileged PostgreSQL must: t.TempDir's are closed,
// and a server started by root would make its cluster elsewhere.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := openDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func openDir() (string, error) {
	dir, err := os.MkdirTemp("", "scrip-test-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}

// process is a running `scrip serve`.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	data string
	log  *streamtest.Buffer
	done chan struct{} // closed when it has ended
}

// launch starts `scrip serve` on data, on free ports, with further arguments; those of the form NAME=value are
// variables. It is killed at the end of the test if it still runs.
func launch(t *testing.T, data string, args ...string) *process {
	t.Helper()
	return launchAs(t, nil, data, args...)
}

func launchAs(t *testing.T, as *syscall.Credential, data string, args ...string) *process {
	t.Helper()
	p, err := start(as, data, args...)
	if err != nil {
		t.Fatal(err)
	}
	p.t = t
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of scrip serve:\n%s", p.log.String())
		}
	})
	return p
}

func start(as *syscall.Credential, data string, args ...string) (*process, error) {
	path, err := binary()
	if err != nil {
		return nil, err
	}
	p := &process{data: data, log: new(streamtest.Buffer), done: make(chan struct{})}
	p.cmd = exec.Command(path, "serve", "--data", data)
	p.cmd.Env = append(os.Environ(), "SCRIP_NATS_LISTEN=127.0.0.1:0", "SCRIP_HTTP_LISTEN=127.0.0.1:0")
	for _, a := range args {
		if strings.HasPrefix(a, "SCRIP_") {
			p.cmd.Env = append(p.cmd.Env, a)
		} else {
			p.cmd.Args = append(p.cmd.Args, a)
		}
	}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	if as != nil {
		p.cmd.Dir = "/"
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	return p, nil
}

// stop ends the server politely, so that its PostgreSQL goes with it.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	if p.ended(stopLimit) {
		return nil
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return fmt.Errorf("scrip serve did not stop within %s:\n%s", stopLimit, p.log.String())
}

// serve launches and waits until the server can be found.
func serve(t *testing.T, data string, args ...string) *process {
	t.Helper()
	p := launch(t, data, args...)
	p.ready()
	return p
}

func (p *process) ready() datadir.Descriptor {
	p.t.Helper()
	var d datadir.Descriptor
	wait(p.t, "scrip.json of process "+fmt.Sprint(p.cmd.Process.Pid), startLimit, func() bool {
		select {
		case <-p.done:
			p.t.Fatalf("scrip serve ended with exit code %d before it was ready:\n%s", p.cmd.ProcessState.ExitCode(), p.log.String())
		default:
		}
		var err error
		d, err = datadir.Find(p.data)
		return err == nil && d.PID == p.cmd.Process.Pid
	})
	return d
}

func (p *process) ended(within time.Duration) bool {
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case <-p.done:
		return true
	case <-limit.C:
		return false
	}
}

// exit waits for the end and returns the exit code.
func (p *process) exit() int {
	p.t.Helper()
	if !p.ended(startLimit) {
		p.t.Fatalf("scrip serve still runs:\n%s", p.log.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// run is the program in process, as a client of this server.
func (p *process) run(args ...string) result {
	p.t.Helper()
	return p.within(nil, args)
}

func (p *process) within(env, args []string) result {
	p.t.Helper()
	return scrip(p.t, env, append(args, "--data", p.data)...)
}

// must runs a command that has to be done, and returns its JSON.
func (p *process) must(args ...string) map[string]any {
	p.t.Helper()
	got := p.within([]string{"SCRIP_TIMEOUT=2m"}, append(args, "-o", "json")) // the default is too short for machines under load
	if got.code != cli.ExitDone {
		p.t.Fatalf("scrip %v: exit %d\n%s%s", args, got.code, got.out, got.err)
	}
	var v map[string]any
	if err := json.Unmarshal([]byte(got.out), &v); err != nil {
		p.t.Fatalf("scrip %v: %q is no JSON object: %v", args, got.out, err)
	}
	return v
}

// row waits until a query's one value is as wanted.
func (p *process) row(want, query string, args ...any) {
	p.t.Helper()
	d, err := datadir.Find(p.data)
	if err != nil {
		p.t.Fatal(err)
	}
	var got string
	wait(p.t, fmt.Sprintf("%q from %s", want, query), stopLimit, func() bool {
		ctx, cancel := context.WithTimeout(p.t.Context(), stopLimit)
		defer cancel()
		db, err := pgx.Connect(ctx, d.PostgresURL)
		if err != nil {
			got = err.Error()
			return false
		}
		defer db.Close(ctx)
		if err := db.QueryRow(ctx, query, args...).Scan(&got); err != nil {
			got = err.Error()
		}
		return got == want
	})
}

// get sends an HTTP request to the server.
func (p *process) get(path string) (int, string) {
	p.t.Helper()
	d, err := datadir.Find(p.data)
	if err != nil {
		p.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, d.HTTPURL+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func (p *process) readiness() (int, status.Readiness) {
	p.t.Helper()
	code, body := p.get("/readyz")
	var r status.Readiness
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		p.t.Fatalf("/readyz: %v: %s", err, body)
	}
	return code, r
}

// healthy waits until the server is ready: on a busy machine a check may fail for a moment.
func (p *process) healthy() (r status.Readiness) {
	p.t.Helper()
	wait(p.t, "the server is ready", time.Minute, func() bool {
		var code int
		code, r = p.readiness()
		return code == 200 && r.Ready
	})
	return r
}

// wait polls for a fact.
func wait(t *testing.T, what string, limit time.Duration, fact func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for !fact() {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %s", what, limit)
		}
		<-tick.C
	}
}
