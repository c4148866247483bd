package pgd

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// closedDir returns a data directory below one that only the user who runs the test may pass.
func closedDir(t *testing.T) string {
	t.Helper()
	closed := filepath.Join(filepath.Dir(openDir(t)), "closed")
	mkdir(t, closed)
	streamtest.Must(t, os.Chmod(closed, 0o700))
	return filepath.Join(closed, "data")
}

func asRoot() bool { return os.Geteuid() == 0 }

// unreachable are options for closedDir, whose fallback can be reached.
func unreachable(t *testing.T) Options {
	t.Helper()
	dir := closedDir(t)
	opts := testOptions(dir)
	opts.FallbackBase = filepath.Join(filepath.Dir(filepath.Dir(dir)), "elsewhere")
	return opts
}

// elsewhere is the place outside the data directory.
func elsewhere(opts Options) place {
	sum := sha256.Sum256([]byte(opts.DataDir))
	return place(filepath.Join(opts.FallbackBase, hex.EncodeToString(sum[:8])))
}

// Run as root, PostgreSQL runs as another user, who cannot reach such a directory. Run by an ordinary user it can.
func TestDataDirectoryThatOnlyTheUserCanReach(t *testing.T) {
	t.Parallel()
	var logged records
	opts := unreachable(t)
	opts.Logger = logged.logger()
	c := Open(opts)
	url := start(t, c)
	want, notices := filepath.Join(opts.DataDir, "postgres"), 0
	if asRoot() {
		want, notices = string(elsewhere(opts)), 1
	}
	if c.Dir() != want {
		t.Errorf("cluster in %s, want %s", c.Dir(), want)
	}
	streamtest.Equal(t, "times logged", logged.count("outside the data directory"), notices)
	pointer, err := os.ReadFile(filepath.Join(opts.DataDir, pointerFile))
	if asRoot() && strings.TrimSpace(string(pointer)) != want {
		t.Errorf("pointer names %q, want %q (%v)", pointer, want, err)
	}
	if !asRoot() && !os.IsNotExist(err) {
		t.Errorf("a pointer although the cluster is where it should be: %q, %v", pointer, err)
	}
	if _, err := os.Stat(filepath.Join(opts.DataDir, "postgres")); asRoot() && !os.IsNotExist(err) {
		t.Errorf("an unused directory is left: %v", err)
	}

	run(t, url, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)")
	stop(t, c)
	// Found again, and also once the directory could be reached.
	streamtest.Must(t, os.Chmod(filepath.Dir(opts.DataDir), 0o755))
	c = Open(opts)
	if keeps(t, start(t, c), "7"); c.Dir() != want {
		t.Errorf("the next start is in %s", c.Dir())
	}
}

// The data directory was removed and made again: a cluster kept outside of it belongs to the log that is gone, and its
// postmaster, which was left running, is stopped. An ordinary user's cluster goes with its data directory.
func TestNewDataDirectoryOfTheSameName(t *testing.T) {
	t.Parallel()
	opts := unreachable(t)
	opts.Tied = false
	left, keep, clusters := ownPlace(opts.DataDir), "7", 1
	if asRoot() {
		left, keep, clusters = elsewhere(opts), "", 2
		mkdir(t, opts.DataDir)
		streamtest.Must(t, remember(opts.DataDir, left))
	}
	copyPlace(t, left)
	o := startOwner(t, opts)
	o.kill(t)
	if !serves(o.postmaster, left) {
		t.Fatal("there is no postmaster to test with")
	}
	if asRoot() {
		streamtest.Must(t, os.RemoveAll(opts.DataDir))
	}
	c := Open(opts)
	url := start(t, c)
	if adopted := c.PID() == o.postmaster; adopted == asRoot() {
		t.Errorf("adopted: %v", adopted)
	}
	if got := queryText(t, url, "SELECT (to_regclass('kept') IS NULL)::text"); got != fmt.Sprint(keep == "") {
		t.Errorf("tables of an earlier log are gone: %s", got)
	}
	if got, err := filepath.Glob(left.path("data*")); err != nil || len(got) != clusters {
		t.Errorf("left %q, want %d, %v", got, clusters, err)
	}
}

// The data directory may belong to a user who must not lead root elsewhere.
func TestPointerLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/etc", "elsewhere/0123456789abcdef", "BASE/../0123456789abcdef", "BASE/summer", ""} {
		opts := testOptions(openDir(t))
		mkdir(t, opts.DataDir)
		write(t, filepath.Join(opts.DataDir, pointerFile), strings.Replace(path, "BASE", opts.FallbackBase, 1)+"\n")
		got, err := Open(opts).pointed(opts.DataDir)
		if err == nil || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("%q: led to %q, %v", path, got, err)
		}
	}
	opts := testOptions(openDir(t))
	mkdir(t, opts.DataDir)
	if got, err := Open(opts).pointed(opts.DataDir); got != "" || err != nil {
		t.Errorf("without a pointer: %q, %v", got, err)
	}
	want := elsewhere(opts)
	streamtest.Must(t, remember(opts.DataDir, want))
	if got, err := Open(opts).pointed(opts.DataDir); got != want || err != nil {
		t.Errorf("remembered %q, got %q, %v", want, got, err)
	}
}
