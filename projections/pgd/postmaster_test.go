package pgd

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A log that cannot be opened does not keep PostgreSQL from starting, and a link in its place is not followed.
func TestStartWithoutLog(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		plant func(log, victim string) error
	}{
		{"a link", func(log, victim string) error { return os.Symlink(victim, log) }},
		{"a directory", func(log, _ string) error { return os.Mkdir(log, 0o755) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			opts := testOptions(madeDir(t))
			var logged records
			opts.Logger = logged.logger()
			log, victim := place(filepath.Join(opts.DataDir, "postgres")).log(), filepath.Join(filepath.Dir(opts.DataDir), "victim")
			if err := os.Remove(log); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			write(t, victim, "untouched")
			if err := tc.plant(log, victim); err != nil {
				t.Fatal(err)
			}
			if got := queryText(t, start(t, Open(opts)), "SELECT 'alive'"); got != "alive" {
				t.Errorf("got %q", got)
			}
			if logged.count("without its log") != 1 || logged.count(log) == 0 {
				t.Errorf("no warning names %s: %q", log, logged.kept)
			}
			if raw, err := os.ReadFile(victim); err != nil || string(raw) != "untouched" {
				t.Errorf("the file behind the link contains %q, %v", raw, err)
			}
		})
	}
}

// A shutdown is clean also while the programs of PostgreSQL are being replaced by an upgrade.
func TestStopWithoutPrograms(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	var logged records
	opts.Logger = logged.logger()
	c := Open(opts)
	start(t, c)
	c.mu.Lock()
	c.home.bin.Dir = filepath.Join(opts.DataDir, "none")
	c.mu.Unlock()
	stop(t, c)
	if got := logged.count("without a clean shutdown"); got != 0 {
		t.Error("the shutdown was not clean")
	}
}

// Single-user mode, left by a scrip that was killed while it set the roles, is shut down like a postmaster.
func TestHaltEndsSingleUserMode(t *testing.T) {
	t.Parallel()
	opts := testOptions(madeDir(t))
	c := Open(opts)
	start(t, c)
	c.mu.Lock()
	h := c.home
	c.mu.Unlock()
	stop(t, c)

	cmd := h.user.command(t.Context(), string(h.place), h.bin.postgres(), "--single", "-D", h.place.data(), "-j",
		"-c", "exit_on_error=on", "-c", "fsync=off", "template1")
	cmd.Stdin = bytes.NewBufferString("DO $$ BEGIN RAISE WARNING 'begun'; PERFORM pg_sleep(600); END $$;\n\n")
	var out records
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // also takes the process off the table, where it would count as alive
	until(t, "it runs the statement", func() bool { return out.count("begun") > 0 })
	clean, err := h.halt(t.Context(), limit)
	if !clean || err != nil {
		t.Errorf("clean %v, %v; its output: %q", clean, err, out.kept)
	}
	<-ended // with an error: the statement was cancelled
	if _, err := os.Lstat(h.place.pidfile()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it left its lock file: %v", err)
	}
}

// A postmaster may come up between the check for one and a start. Its lock file stays as it is, and no second one is started.
func TestLaunchLeavesARunningPostmasterAlone(t *testing.T) {
	t.Parallel()
	c := Open(testOptions(madeDir(t)))
	url := start(t, c)
	c.mu.Lock()
	h := c.home
	c.mu.Unlock()
	before, err := os.ReadFile(h.place.pidfile())
	if err != nil {
		t.Fatal(err)
	}
	if pm, err := h.launch(t.Context(), c.port, 0); pm != nil || !errors.Is(err, errStillUsed) {
		t.Errorf("launched %v, %v; want that the cluster is still used", pm, err)
	}
	if after, err := os.ReadFile(h.place.pidfile()); err != nil || !bytes.Equal(after, before) {
		t.Errorf("postmaster.pid of the running one was %q, is %q, %v", before, after, err)
	}
	if got := queryText(t, url, "SELECT 'alive'"); got != "alive" {
		t.Errorf("got %q", got)
	}
}
