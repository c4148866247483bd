package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/cmd/internal/process"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// runner is what `make cluster` starts.
type runner struct {
	*process.Process
	t      *testing.T
	folder string
	flags  []string
}

// start starts a cluster that ends with the test, if that does not end it before.
func start(t *testing.T, folder string) *runner {
	t.Helper()
	r := &runner{t: t, folder: folder, flags: []string{"-data", folder, "-port", fmt.Sprint(freePort(t)), "-lanes", fmt.Sprint(lanes)}}
	err := os.Symlink(e2e.Binary(), filepath.Join(programs, "scrip"))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	r.Process, err = process.Start(process.Command{Program: filepath.Join(programs, "up"), Args: r.flags, Env: os.Environ(), Log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.StopWithin(time.Minute) // a second time does nothing
		e2e.EndPostgres(filepath.Join(folder, "postgres"))
		logs, _ := filepath.Glob(filepath.Join(folder, "*.log"))
		for _, log := range logs {
			text, _ := os.ReadFile(log)
			streamtest.NoViolation(t, string(text))
			if t.Failed() {
				t.Logf("%s ends:\n%s", filepath.Base(log), text[max(0, len(text)-3000):])
			}
		}
	})
	r.prints("\nready. ")
	return r
}

// freePort is the first of as many free ports as a cluster needs.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		first, taken := 26000+50*rand.IntN(120), false
		for port := first; port < first+50; port++ {
			ln, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
			if err != nil {
				taken = true
				break
			}
			_ = ln.Close()
		}
		if !taken {
			return first
		}
	}
	t.Fatal("no ports are free")
	return 0
}

// prints waits until the runner prints a text.
func (r *runner) prints(text string) {
	r.t.Helper()
	if err := r.Logs(patience, text); err != nil {
		r.t.Fatalf("%v\n%s", err, r.Output())
	}
}

// command gives a command to the cluster, as a user in another terminal does.
func (r *runner) command(words ...string) (string, error) {
	out, err := exec.CommandContext(r.t.Context(), filepath.Join(programs, "up"), append([]string{"-data", r.folder}, words...)...).CombinedOutput()
	return string(out), err
}

// do gives a command that must succeed.
func (r *runner) do(words ...string) string {
	r.t.Helper()
	out, err := r.command(words...)
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", words, err, out)
	}
	return out
}

// server is the data directory of a server, and what clients read in it.
func (r *runner) server() (data string, d e2e.Descriptor) {
	r.t.Helper()
	_, after, _ := strings.Cut(r.do("status"), "--data ")
	data, _, _ = strings.Cut(after, "\n")
	raw, err := os.ReadFile(filepath.Join(data, "scrip.json"))
	if err == nil {
		err = json.Unmarshal(raw, &d)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return data, d
}

// faults kills, stops and pauses one service after the other, for as long as the flag says.
func (r *runner) faults(l *load) {
	t := r.t
	t.Helper()
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", s)
	rng := rand.New(rand.NewPCG(s, 0))
	kinds := []struct{ fault, end string }{{"kill", "start"}, {"stop", "start"}, {"pause", "resume"}}
	victims := []func() string{
		func() string { return l.leader(0) },
		func() string { return "scrip-2" },
		func() string { return "postgres" },
	}
	started, n := time.Now(), 0
	for once := true; once || time.Since(started) < *lasting; once = false {
		kind, name := kinds[0], victims[0]()
		if n > 0 {
			kind, name = kinds[rng.IntN(len(kinds))], victims[rng.IntN(len(victims))]()
		}
		n++
		at := time.Now()
		r.make(kind.fault, name)
		l.works()
		took := time.Since(at)
		r.make(kind.end, name)
		l.works()
		l.whole()
		t.Logf("%s %s: every lane answers again after %s", kind.fault, name, took.Round(10*time.Millisecond))
	}
	t.Logf("soak: %d faults of services", n)
}

// make gives a command, or pauses or resumes a service, which no command does.
func (r *runner) make(what, name string) {
	r.t.Helper()
	sig, is := map[string]syscall.Signal{"pause": syscall.SIGSTOP, "resume": syscall.SIGCONT}[what]
	if !is {
		r.do(what, name)
		return
	}
	for line := range strings.Lines(r.do("status")) {
		if fields := strings.Fields(line); fields[0] == name {
			pid, err := strconv.Atoi(fields[2])
			if err == nil {
				err = process.SignalFamily(pid, sig)
			}
			if err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// refuses gives commands that cannot be done; each is answered with what can.
func (r *runner) refuses() {
	r.t.Helper()
	for _, c := range []struct{ line, want string }{
		{"start nats-1", "runs already"},
		{"kill nats-9", "no service; the services are nats-1, nats-2, nats-3, postgres, scrip-1"},
		{"burn nats-1", "no command; the commands are status, and start, stop, kill"},
		{"kill", "is no service; the services are nats-1"},
	} {
		if out, err := r.command(strings.Fields(c.line)...); err == nil || !strings.Contains(out, c.want) {
			r.t.Errorf("%s: %v\n%s\nwant %q", c.line, err, out, c.want)
		}
	}
	second, err := exec.CommandContext(r.t.Context(), filepath.Join(programs, "up"), r.flags...).CombinedOutput()
	if err == nil || !strings.Contains(string(second), "runs already on "+r.folder) {
		r.t.Errorf("a second runner: %v\n%s", err, second)
	}
}

// interrupt is Ctrl-C: all processes end.
func (r *runner) interrupt() {
	t := r.t
	t.Helper()
	running := r.do("status")
	if err := r.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if exit := r.Wait(); exit != 0 {
		t.Fatalf("the runner ended with %d\n%s", exit, r.Output())
	}
	for line := range strings.Lines(running) {
		if fields := strings.Fields(line); fields[0] != "SERVICE" && alive(fields[2]) {
			t.Errorf("%s still runs after Ctrl-C", fields[0])
		}
	}
	if out := r.do("status"); strings.Count(out, " down ") != len(services) {
		t.Errorf("status after the end:\n%s", out)
	}
}

func alive(pid string) bool {
	out, err := exec.Command("ps", "-p", pid, "-o", "stat=").Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}
