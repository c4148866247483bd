package pgd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// leave starts a cluster in another process and kills that one (-9). It returns the postmaster that goes on running.
func leave(t *testing.T, opts Options) (postmaster int, url string) {
	t.Helper()
	opts.Tied = false
	o := startOwner(t, opts)
	url = urlOf(t, opts.DataDir)
	o.kill(t)
	if !serves(o.postmaster, ownPlace(opts.DataDir)) {
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
	keeps(t, url, "7,8")
	// It is watched and stopped like one that this process started.
	supervise(t, c)
	comesBack(t, c)
	h := c.home
	stop(t, c)
	if pm := h.running(); pm != nil {
		t.Errorf("process %d runs after Stop", pm.pid)
	}
}

// What a start would make otherwise is not adopted.
func TestAdoptedOnlyIfCurrent(t *testing.T) {
	t.Parallel()
	p, bin, settings := place(t.TempDir()), Binaries{Dir: t.TempDir(), Major: 15, Version: "postgres (PostgreSQL) 15.1"}, map[string]string{"fsync": "off"}
	mkdir(t, p.data())
	files := map[string]string{
		filepath.Join(p.data(), "PG_VERSION"): "15\n", p.password(): "secret\n", p.admin(): "secret\n",
		p.hba(): hbaText, p.conf(): configText(p, bin, settings),
	}
	for path, text := range files {
		write(t, path, text)
	}
	h := &home{place: p, settings: settings}
	if !h.current([]Binaries{bin}) {
		t.Fatal("it is not current at first")
	}
	for path, text := range files {
		write(t, path, "")
		if h.current([]Binaries{bin}) {
			t.Errorf("current with an empty %s", path)
		}
		write(t, path, text)
	}
	newer := bin
	newer.Version = "postgres (PostgreSQL) 15.2"
	if h.current([]Binaries{newer}) || (&home{place: p}).current([]Binaries{bin}) || h.current([]Binaries{{Major: 16}}) {
		t.Error("current with another minor version, other settings, or no version that reads it")
	}
}

// A postmaster that is not adopted is stopped, and the cluster is started again.
func TestLeftPostmasterIsReplaced(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, opts *Options, pid int, url string){
		"moved, and a link in its place": func(t *testing.T, opts *Options, _ int, _ string) {
			streamtest.Must(t, os.Rename(opts.DataDir, opts.DataDir+".old"))
			streamtest.Must(t, os.Symlink(opts.DataDir+".old", opts.DataDir))
		},
		// Somebody had it stop once its clients leave, and one stays.
		"while it stops": func(t *testing.T, opts *Options, pid int, url string) {
			connect(t, url)
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil { // a smart shutdown
				t.Fatal(err)
			}
			h := &home{place: ownPlace(opts.DataDir)}
			streamtest.Eventually(t, "it is stopping", func() bool { pm := h.running(); return pm != nil && pm.status == "stopping" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := testOptions(madeDir(t))
			pid, url := leave(t, opts)
			change(t, &opts, pid, url)
			c := Open(opts)
			keeps(t, start(t, c), "7")
			if c.PID() == pid {
				t.Errorf("process %d was adopted", pid)
			}
		})
	}
}

func TestTiedClusterEndsWithItsOwner(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	o := startOwner(t, opts)
	client := connect(t, urlOf(t, opts.DataDir))
	o.kill(t)
	if _, err := client.WaitForNotification(t.Context()); err == nil || t.Context().Err() != nil {
		t.Errorf("the connection of a client did not end: %v", err)
	}
	c := Open(opts)
	keeps(t, start(t, c), "7")
	if c.PID() == o.postmaster {
		t.Error("the postmaster did not end by itself")
	}
}

// The shell of a tied cluster stops no other program.
func TestTiedLeavesAStrangerAlone(t *testing.T) {
	t.Parallel()
	place := t.TempDir()
	mkdir(t, filepath.Join(place, "data"))
	stranger := exec.CommandContext(t.Context(), "cat")
	in, err := stranger.StdinPipe()
	streamtest.Must(t, err)
	streamtest.Must(t, stranger.Start())
	write(t, filepath.Join(place, "data", "postmaster.pid"), fmt.Sprint(stranger.Process.Pid, "\n"))
	if err := self().command(t.Context(), place, "/bin/sh", "-c", tieScript).Run(); err == nil { // its input is at its end
		t.Error("the shell reports that it stopped a postmaster")
	}
	streamtest.Must(t, in.Close())
	if err := stranger.Wait(); err != nil {
		t.Errorf("the stranger was stopped: %v", err)
	}
}

// postmaster.pid outlives a machine that is switched off; the number in it may be anybody's afterwards.
func TestStrangerWithThePostmastersNumberSurvives(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	p := ownPlace(opts.DataDir)
	uid, gid, err := ownerOf(p.data())
	streamtest.Must(t, err)
	user := named(uid, gid, asRoot())
	for _, args := range [][]string{ // what the stranger shows; the last one stays for the start
		{"sleep", "600"},
		{"postgres: walwriter", "600"},
		{"postgres", "600", "-D", "/nowhere"},
		{"sleep", "600", "-D", p.data()},
	} {
		// The stranger runs as the user of the cluster: PostgreSQL itself would let it block the start.
		stranger := exec.CommandContext(t.Context(), "sh")
		stranger.Args = append([]string{args[0], "-c", "read line"}, args[1:]...)
		stranger.SysProcAttr = user.attr()
		in, err := stranger.StdinPipe()
		streamtest.Must(t, err)
		streamtest.Must(t, stranger.Start())
		write(t, p.pidfile(), fmt.Sprint(stranger.Process.Pid, "\n", p.data(), "\n1700000000\n5432\n\n127.0.0.1\n        1    1\nready   \n"))
		streamtest.Must(t, user.give(p.pidfile()))
		if pm := (&home{place: p}).running(); pm != nil {
			t.Errorf("%q is taken for a postmaster", args)
		}
		if args[len(args)-1] == p.data() {
			streamtest.Must(t, os.Remove(p.password())) // so that it is also started in single-user mode
			keeps(t, start(t, Open(opts)), "7")
		}
		if err := stranger.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("%q is gone: %v", args, err)
		}
		if err := in.Close(); err != nil { // its read ends, with 1 for the end of input
			t.Fatal(err)
		}
		_ = stranger.Wait()
		if ws, ok := stranger.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signaled() {
			t.Errorf("%q was stopped: %v", args, stranger.ProcessState)
		}
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

// urlOf returns the URL of a running cluster from its files, as another process would have to.
func urlOf(t *testing.T, dir string) string {
	t.Helper()
	home := filepath.Join(dir, "postgres")
	password, err := os.ReadFile(filepath.Join(home, "password"))
	streamtest.Must(t, err)
	raw, err := os.ReadFile(place(home).pidfile())
	streamtest.Must(t, err)
	var port int
	if _, err := fmt.Sscan(strings.Split(string(raw), "\n")[3], &port); err != nil {
		t.Fatal(err)
	}
	return databaseURL(strings.TrimSpace(string(password)), port, roleName)
}
