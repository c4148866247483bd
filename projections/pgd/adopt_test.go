package pgd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// leave starts a cluster in another process and kills that one (-9). It returns the postmaster that goes on running.
func leave(t *testing.T, opts Options) (postmaster int, url string) {
	t.Helper()
	opts.Tied = false
	o := startOwner(t, opts)
	url = urlOf(t, opts.DataDir)
	client := connect(t, url)
	if _, err := client.Exec(t.Context(), "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.kill(t)
	if !serves(o.postmaster, place(filepath.Join(opts.DataDir, "postgres"))) {
		t.Fatal("the postmaster ended with its owner, there is none to adopt")
	}
	return o.postmaster, url
}

// After kill -9 of its owner a cluster goes on, and so do its clients when the next owner comes.
func TestAdoptedClusterGoesOn(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	pid, url := leave(t, opts)
	client := connect(t, url)
	if _, err := client.Exec(t.Context(), "BEGIN; INSERT INTO kept VALUES (8)"); err != nil {
		t.Fatal(err)
	}
	var logged records
	opts.Logger = logged.logger()
	c := Open(opts)
	got := start(t, c)
	if got != url || c.PID() != pid || logged.count("adopting the PostgreSQL") != 1 {
		t.Errorf("process %d, was %d; same URL %v; logged %d times", c.PID(), pid, got == url, logged.count("adopting the PostgreSQL"))
	}
	if _, err := client.Exec(t.Context(), "COMMIT"); err != nil {
		t.Errorf("a transaction of a client: %v", err)
	}
	if got := queryText(t, url, "SELECT string_agg(n::text, ',') FROM kept"); got != "7,8" {
		t.Errorf("kept %q, want 7,8", got)
	}
	// It is watched and stopped like one that this process started.
	superviseIt(t, c)
	comesBack(t, c, killPostmaster(t, c))
	h := c.home
	stop(t, c)
	if pm := h.running(); pm != nil {
		t.Errorf("process %d runs after Stop", pm.pid)
	}
}

// A cluster that is not what a start would make is not adopted but started again.
func TestAdoptedOnlyIfCurrent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(t *testing.T, dir string, opts *Options)
	}{
		{"other settings", func(_ *testing.T, _ string, opts *Options) {
			opts.Settings = map[string]string{"fsync": "off", "shared_buffers": "17MB"}
		}},
		{"another minor version", func(t *testing.T, _ string, opts *Options) {
			var err error
			if opts.Binaries, err = Find(); err != nil {
				t.Fatal(err)
			}
			opts.Binaries.Version += " (newer)"
		}},
		{"other rules of access", func(t *testing.T, dir string, _ *Options) {
			write(t, filepath.Join(dir, "pg_hba.conf"), "local all all trust\n")
		}},
		{"password lost", func(t *testing.T, dir string, _ *Options) { remove(t, filepath.Join(dir, "password")) }},
		{"moved", func(t *testing.T, _ string, opts *Options) {
			rename(t, opts.DataDir, opts.DataDir+".old")
			opts.DataDir += ".old"
		}},
		{"moved, and a link in its place", func(t *testing.T, _ string, opts *Options) {
			rename(t, opts.DataDir, opts.DataDir+".old")
			if err := os.Symlink(opts.DataDir+".old", opts.DataDir); err != nil {
				t.Fatal(err)
			}
		}},
		{"password of the superuser lost", func(t *testing.T, dir string, _ *Options) { remove(t, filepath.Join(dir, "admin.password")) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			opts := testOptions(madeDir(t))
			pid, _ := leave(t, opts)
			tc.change(t, filepath.Join(opts.DataDir, "postgres"), &opts)
			var logged records
			opts.Logger = logged.logger()
			c := Open(opts)
			url := start(t, c)
			if got := queryText(t, url, "SELECT string_agg(n::text, ',') FROM kept"); got != "7" {
				t.Errorf("kept %q, want 7", got)
			}
			if c.PID() == pid || logged.count("left running") != 1 {
				t.Errorf("process %d, was %d; logged %d times that it is stopped", c.PID(), pid, logged.count("left running"))
			}
			if admin := c.AdminURL(); admin != "" && queryText(t, admin, "SELECT 'alive'") != "alive" { // "" where the path of a socket is too long
				t.Error("the superuser has no answer")
			}
		})
	}
}

// Somebody had it stop once its clients leave, and one stays: it is stopped without waiting, and started again.
func TestAdoptedWhileItStops(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	pid, url := leave(t, opts)
	connect(t, url)
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil { // a smart shutdown
		t.Fatal(err)
	}
	h := &home{place: place(filepath.Join(opts.DataDir, "postgres"))}
	until(t, "it is stopping", func() bool { pm := h.running(); return pm != nil && pm.status == "stopping" })
	c := Open(opts)
	if got := queryText(t, start(t, c), "SELECT string_agg(n::text, ',') FROM kept"); got != "7" || c.PID() == pid {
		t.Errorf("kept %q, process %d, was %d", got, c.PID(), pid)
	}
}

func TestTiedClusterEndsWithItsOwner(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	o := startOwner(t, opts)
	run(t, urlOf(t, opts.DataDir), "CREATE TABLE kept (n int)")
	o.kill(t)
	until(t, "the postmaster ends by itself", func() bool { return !serves(o.postmaster, place(filepath.Join(opts.DataDir, "postgres"))) })
	if got := queryText(t, start(t, Open(opts)), "SELECT to_regclass('kept')::text"); got != "kept" {
		t.Errorf("kept %q", got)
	}
}

// The shell of a tied cluster stops no other program.
func TestTiedLeavesAStrangerAlone(t *testing.T) {
	t.Parallel()
	place := t.TempDir()
	mkdir(t, filepath.Join(place, "data"))
	stranger := exec.CommandContext(t.Context(), "cat")
	in, err := stranger.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(place, "data", "postmaster.pid"), fmt.Sprint(stranger.Process.Pid, "\n"))
	if err := self().command(t.Context(), place, "/bin/sh", "-c", tieScript).Run(); err == nil { // its input is at its end
		t.Error("the shell reports that it stopped a postmaster")
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := stranger.Wait(); err != nil {
		t.Errorf("the stranger was stopped: %v", err)
	}
}

// postmaster.pid outlives a machine that is switched off; the number in it may be anybody's afterwards.
func TestStrangerWithThePostmastersNumberSurvives(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		args []string // what the stranger shows; DATA is the cluster's directory
		lost bool     // the password is lost, too
	}{
		{"another program", []string{"sleep", "600"}, false},
		{"another program, and no password", []string{"sleep", "600"}, true},
		{"another program that names the directory", []string{"sleep", "600", "-D", "DATA"}, false},
		{"a backend of another cluster", []string{"postgres: walwriter", "600"}, false},
		{"a postmaster of another directory", []string{"postgres", "600", "-D", "/nowhere"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			opts := testOptions(madeDir(t))
			c := Open(opts)
			run(t, start(t, c), "CREATE TABLE kept (n int)")
			p, data := place(c.Dir()), filepath.Join(c.Dir(), "data")
			c.mu.Lock()
			user := c.home.user
			c.mu.Unlock()
			raw, err := os.ReadFile(p.pidfile())
			if err != nil {
				t.Fatal(err)
			}
			stop(t, c)
			if tc.lost {
				remove(t, p.password())
			}

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
			write(t, p.pidfile(), fmt.Sprint(stranger.Process.Pid, "\n", rest))
			if err := user.give(p.pidfile()); err != nil {
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
	const dir = "/var/lib/my scrip"
	for command, want := range map[string]bool{
		"/usr/lib/postgresql/15/bin/postgres -D " + dir + " -c config_file=x -p 5432": true,
		"/my programs/postgres -D " + dir:                                             true,
		"/usr/lib/postgresql/15/bin/postgres --single -D " + dir + " -j template1":    true,
		"postgres -D " + dir + "2":                                                    false,
		"postgres -D":                                                                 false,
		"postgres":                                                                    false,
		"postgres: checkpointer ":                                                     false,
		"less -D " + dir:                                                              false,
		"less postgres -D " + dir:                                                     false,
		"":                                                                            false,
	} {
		if got := isPostmaster(command, dir); got != want {
			t.Errorf("%q: got %v, want %v", command, got, want)
		}
		if got, want := isPostmaster(command, ""), want || strings.HasPrefix(command, "postgres -D"); got != want {
			t.Errorf("%q: got %v for any directory, want %v", command, got, want)
		}
	}
}

func TestServesIsOfTheLiving(t *testing.T) {
	t.Parallel()
	c := Open(testOptions(madeDir(t)))
	start(t, c)
	p, pid := place(c.Dir()), c.PID()
	if !serves(pid, p) || !isPostmaster(commandByPS(pid), p.data()) {
		t.Error("the running postmaster is not recognised")
	}
	if serves(os.Getpid(), p) || isPostmaster(commandByPS(os.Getpid()), p.data()) {
		t.Error("the test takes itself for a postmaster")
	}
	if serves(pid, p+"2") {
		t.Error("the postmaster is taken for one of another directory")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(string(p), link); err != nil {
		t.Fatal(err)
	}
	if !serves(pid, place(link)) {
		t.Error("the postmaster is not recognised by another path of its directory")
	}
	stop(t, c)
	for _, gone := range []int{pid, 0, -1} {
		if serves(gone, p) || isPostmaster(commandByPS(gone), p.data()) {
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
	raw, err := os.ReadFile(place(home).pidfile())
	if err != nil {
		t.Fatal(err)
	}
	var port int
	if _, err := fmt.Sscan(strings.Split(string(raw), "\n")[3], &port); err != nil {
		t.Fatal(err)
	}
	return databaseURL(strings.TrimSpace(string(password)), port, roleName)
}
