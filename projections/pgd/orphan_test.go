package pgd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestOrphanOfAKilledOwnerIsStopped(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		busy bool // a client of the orphan has a transaction open
	}{{"idle", false}, {"with a transaction open", true}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := madeDir(t)
			opts := testOptions(dir)
			o := startOwner(t, opts, false)
			url := urlOf(t, dir)
			run(t, url, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)")
			if tc.busy {
				if _, err := connect(t, url).Exec(t.Context(), "BEGIN; INSERT INTO kept VALUES (8)"); err != nil {
					t.Fatal(err)
				}
			}
			o.kill(t)
			if data := filepath.Join(dir, "postgres", "data"); !serves(t.Context(), o.postmaster, data) {
				t.Fatal("the postmaster died with its owner, there is no orphan to test with")
			}
			var logged records
			opts.Logger = logged.logger()
			c := Open(opts)
			url = start(t, c)
			if got := queryText(t, url, "SELECT string_agg(n::text, ',') FROM kept"); got != "7" {
				t.Errorf("kept %q, want 7", got)
			}
			if c.PID() == o.postmaster {
				t.Error("the orphan still runs")
			}
			if logged.count("left running") != 1 {
				t.Errorf("logged %d times about the orphan, want once", logged.count("left running"))
			}
		})
	}
}

func TestKilledOwnerTakesItsPostmasterAlong(t *testing.T) {
	t.Parallel()
	dir := madeDir(t)
	o := startOwner(t, testOptions(dir), true)
	run(t, urlOf(t, dir), "CREATE TABLE kept (n int)")
	o.kill(t)
	if runtime.GOOS == "linux" { // no other system signals a process at its parent's death
		until(t, "the postmaster ends by itself", func() bool {
			return !serves(t.Context(), o.postmaster, filepath.Join(dir, "postgres", "data"))
		})
	}
	// Whether the orphan is still stopping or gone, the next start gets by.
	if got := queryText(t, start(t, Open(testOptions(dir))), "SELECT to_regclass('kept')::text"); got != "kept" {
		t.Errorf("kept %q", got)
	}
}

// postmaster.pid outlives a machine that is switched off; the number in it may be anybody's afterwards.
func TestStrangerWithThePostmastersNumberSurvives(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		args []string // what the stranger shows; DATA is the cluster's directory
	}{
		{"another program", []string{"sleep", "600"}},
		{"another program that names the directory", []string{"sleep", "600", "-D", "DATA"}},
		{"a backend of another cluster", []string{"postgres: walwriter", "600"}},
		{"a postmaster of another directory", []string{"postgres", "600", "-D", "/nowhere"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			opts := testOptions(madeDir(t))
			c := Open(opts)
			run(t, start(t, c), "CREATE TABLE kept (n int)")
			data := filepath.Join(c.Dir(), "data")
			c.mu.Lock()
			user := c.home.user
			c.mu.Unlock()
			raw, err := os.ReadFile(pidfilePath(data))
			if err != nil {
				t.Fatal(err)
			}
			stop(t, c)

			// The stranger runs as the user of the cluster: PostgreSQL itself would let it block the start.
			stranger := exec.CommandContext(t.Context(), "sh")
			stranger.Args = []string{tc.args[0], "-c", "read line"}
			for _, arg := range tc.args[1:] {
				stranger.Args = append(stranger.Args, strings.ReplaceAll(arg, "DATA", data))
			}
			stranger.SysProcAttr = user.attr()
			in, err := stranger.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := stranger.Start(); err != nil {
				t.Fatal(err)
			}
			_, rest, _ := strings.Cut(string(raw), "\n")
			write(t, pidfilePath(data), fmt.Sprint(stranger.Process.Pid, "\n", rest))
			if err := user.give(pidfilePath(data)); err != nil {
				t.Fatal(err)
			}

			if got := queryText(t, start(t, Open(opts)), "SELECT to_regclass('kept')::text"); got != "kept" {
				t.Errorf("kept %q", got)
			}
			if err := stranger.Process.Signal(syscall.Signal(0)); err != nil {
				t.Errorf("the stranger is gone: %v", err)
			}
			if err := in.Close(); err != nil { // its read ends, with 1 for the end of input
				t.Fatal(err)
			}
			_ = stranger.Wait()
			if ws, ok := stranger.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signaled() {
				t.Errorf("the stranger was stopped: %v", stranger.ProcessState)
			}
		})
	}
}

func TestIsPostmaster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		want bool
	}{
		{[]string{"/usr/lib/postgresql/15/bin/postgres", "-D", dir, "-p", "5432"}, true},
		{[]string{"postgres", "-p", "5432", "-D", dir + "/"}, true},
		{[]string{"postgres", "-D" + dir}, true},
		{[]string{"postgres", "-D", link}, true},
		{[]string{"postgres", "-D", dir + "2"}, false},
		{[]string{"postgres", "-D"}, false},
		{[]string{"postgres"}, false},
		{[]string{"postgres: checkpointer "}, false},
		{[]string{"less", "-D", dir}, false},
		{[]string{""}, false},
		{nil, false},
	} {
		if got := isPostmaster(tc.args, dir); got != tc.want {
			t.Errorf("%q: got %v, want %v", tc.args, got, tc.want)
		}
	}
}

func TestServesAsksTheLiving(t *testing.T) {
	t.Parallel()
	c := Open(testOptions(madeDir(t)))
	start(t, c)
	data := filepath.Join(c.Dir(), "data")
	pid := c.PID()
	if !serves(t.Context(), pid, data) || !servesByPS(t.Context(), pid, data) {
		t.Error("the running postmaster is not recognised")
	}
	if serves(t.Context(), os.Getpid(), data) || servesByPS(t.Context(), os.Getpid(), data) {
		t.Error("the test takes itself for a postmaster")
	}
	if serves(t.Context(), pid, data+"2") || servesByPS(t.Context(), pid, data+"2") {
		t.Error("the postmaster is taken for one of another directory")
	}
	stop(t, c)
	for _, gone := range []int{pid, 0, -1} {
		if serves(t.Context(), gone, data) || servesByPS(t.Context(), gone, data) {
			t.Errorf("process %d is taken for a postmaster", gone)
		}
	}
}

// urlOf returns the URL of a running cluster from its files, as another process would have to.
func urlOf(t *testing.T, dir string) string {
	t.Helper()
	home := filepath.Join(dir, "postgres")
	password, err := os.ReadFile(filepath.Join(home, "password"))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(pidfilePath(filepath.Join(home, "data")))
	if err != nil {
		t.Fatal(err)
	}
	var port int
	if _, err := fmt.Sscan(strings.Split(string(raw), "\n")[3], &port); err != nil {
		t.Fatal(err)
	}
	return databaseURL(strings.TrimSpace(string(password)), port, roleName)
}
