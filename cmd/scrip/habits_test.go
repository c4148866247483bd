package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	processes "github.com/seed-4a2410e3/scrip/cmd/internal/process"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// apart starts a server without a terminal, lanes and api alone. Its output goes to a file, or to a pipe.
func apart(t *testing.T, output *os.File, args ...string) *process {
	t.Helper()
	data := filepath.Join(projtest.Dir(t), "data")
	server, err := processes.Serve(processes.Command{
		Program: e2e.Binary(), Args: append([]string{"serve", "--data", data, "--roles", "lanes,api", "--nats-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"}, args...),
		Env: os.Environ(), Log: filepath.Join(t.TempDir(), "log"), Output: output, Apart: true,
	}, data)
	streamtest.Must(t, err)
	p := of(t, &e2e.Process{Server: server})
	p.ready()
	return p
}

// TestAServerWithoutItsLog: who does not read the log of a server, or is gone, stops neither its start nor claims nor
// its end. What was lost is counted.
func TestAServerWithoutItsLog(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"nobody reads", "the reader is gone"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r, w, err := os.Pipe()
			streamtest.Must(t, err)
			defer r.Close()
			gone := what == "the reader is gone"
			if !gone { // the pipe is full
				streamtest.Must(t, w.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
				if n, err := w.Write(make([]byte, 1<<20)); err == nil {
					t.Fatalf("a pipe has room for %d bytes", n)
				}
			}
			p := apart(t, w, "--log-level", "debug")
			if gone {
				streamtest.Must(t, r.Close())
			}
			_, address, _ := strings.Cut(p.ready().NATSURL, "@")
			if _, err := nats.Connect("nats://x:y@" + address); !errors.Is(err, nats.ErrAuthorization) { // nats-server logs it
				t.Fatal(err)
			}
			p.must("campaign", "create", "summer", "--codes", "100")
			for i := range 3 {
				p.must("claim", "summer", "--customer", fmt.Sprint("c", i))
			}
			count := regexp.MustCompile(`(?m)^scrip_log_lines_dropped_total (\d+)`)
			if _, body := p.get("/metrics"); gone && strings.HasSuffix(count.FindString(body), " 0") || !count.MatchString(body) {
				t.Errorf("metrics: %q", count.FindString(body))
			}
			began := time.Now()
			if code := p.stop(syscall.SIGTERM); code != cli.ExitDone || time.Since(began) > 30*time.Second {
				t.Errorf("SIGTERM: exit code %d after %s", code, time.Since(began))
			}
		})
	}
}

// TestSignals: each signal has a meaning for a server. SIGTERM and SIGINT alone, which stop it, are in
// TestLifeOfAServer.
func TestSignals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		send []syscall.Signal
		says []string // in the log after each
		ends string
	}{
		"none that ends it": {
			[]syscall.Signal{syscall.SIGPIPE, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM},
			[]string{"", "signal=hangup", `signal="user defined signal 1"`, `signal="user defined signal 2"`, "msg=stopping"}, "exit status 0",
		},
		"the second stop": {[]syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}, []string{"msg=stopping", ""}, "signal: terminated"},
		"the dump":        {[]syscall.Signal{syscall.SIGQUIT}, []string{"\ngoroutine 1 "}, "exit status 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := apart(t, nil)
			if name == "the second stop" { // a request in progress makes the first one take two seconds
				answer, err := http.Get(p.ready().HTTPURL + "/debug/pprof/trace?seconds=60")
				streamtest.Must(t, err)
				defer answer.Body.Close()
				_, err = io.ReadFull(answer.Body, make([]byte, 1))
				streamtest.Must(t, err)
			}
			for i, sig := range c.send {
				streamtest.Must(t, p.Signal(sig))
				if c.says[i] != "" && !signal.Ignored(sig) { // as by nohup: programs inherit that
					streamtest.Must(t, p.Logs(time.Minute, c.says[i]))
				}
			}
			if ended := p.Ended(); ended != c.ends {
				t.Errorf("%v: %s, want %s", c.send, ended, c.ends)
			}
		})
	}
}

// TestADataDirectoryThatIsReplaced: a server whose directory was moved ends before it writes into the directory, or
// removes the addresses, of the server that has its place, whose log shows no trouble.
func TestADataDirectoryThatIsReplaced(t *testing.T) {
	t.Parallel()
	data := filepath.Join(projtest.Dir(t), "data")
	first := serve(t, data, "--roles", "lanes,api")
	first.must("campaign", "create", "summer", "--codes", "10")
	first.must("claim", "summer", "--customer", "alice")
	streamtest.Must(t, os.Rename(data, data+".old"))
	next := serve(t, data, "--roles", "lanes,api")
	if ended := first.Ended(); ended != "exit status 1" || !strings.Contains(first.Output(), "not the one that this server started on") || strings.Contains(first.Output(), "msg=stopping") {
		t.Errorf("the first server: %s", ended)
	}
	next.must("campaign", "create", "winter", "--codes", "10")
	next.must("claim", "winter", "--customer", "alice")
	if code := next.stop(syscall.SIGTERM); code != cli.ExitDone || strings.Contains(next.Output(), "level=WARN") || strings.Contains(next.Output(), "level=ERROR") {
		t.Errorf("the next server: exit code %d:\n%s", code, next.Output())
	}
	// Nothing that was answered is lost. A platform has changed the modes meanwhile: what is private is private again.
	streamtest.Must(t, exec.CommandContext(t.Context(), "chmod", "-R", "g+rwX", data+".old").Run())
	again := serve(t, data+".old", "--roles", "lanes,api")
	again.expect(cli.ExitDone, "claimed", "customer", "show", "alice")
	entries, err := os.ReadDir(again.Data)
	streamtest.Must(t, err)
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v, %v", e.Name(), info.Mode(), err)
		}
	}
	if !strings.Contains(again.Output(), "their modes were put right") {
		t.Error("no line of the log has what was put right")
	}
}
