package pgd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// A cluster on another disk: it is there at later starts, with the option and without, and is not left behind or taken over.
func TestTablesDir(t *testing.T) {
	t.Parallel()
	base := openDir(t)
	data, disk := filepath.Join(base, "data"), filepath.Join(base, "disk")
	mkdir(t, disk)
	mkdir(t, filepath.Join(disk, "lost+found"))
	run := func(dir string) error {
		opts := testOptions(data)
		opts.Dir = dir
		c := Open(opts)
		defer stop(t, c)
		_, err := c.Start(t.Context())
		return err
	}
	streamtest.Must(t, run(disk))
	if _, err := os.Stat(filepath.Join(disk, "data", "PG_VERSION")); err != nil {
		t.Errorf("the cluster is not in the directory: %v", err)
	}
	streamtest.Must(t, run(""))
	streamtest.Must(t, run(disk))
	if err := run(filepath.Join(base, "other")); err == nil || !strings.Contains(err.Error(), "leave out --tables-dir") {
		t.Errorf("another directory: %v", err)
	}
	data = filepath.Join(base, "second")
	if err := run(disk); err == nil || !strings.Contains(err.Error(), "give an empty directory") {
		t.Errorf("of another data directory: %v", err)
	}
}

// TestAPlaceThatIsReplaced: an owner whose directory was moved stops its own PostgreSQL, and not the one that is there now.
func TestAPlaceThatIsReplaced(t *testing.T) {
	t.Parallel()
	dir := madeDir(t)
	first := Open(testOptions(dir))
	_, err := first.Start(t.Context())
	streamtest.Must(t, err)
	pid := first.PID()
	streamtest.Must(t, os.Rename(dir, dir+".old"))
	copyPlace(t, ownPlace(dir))
	next := Open(testOptions(dir))
	url := start(t, next)
	has(t, first.Stop(t.Context()), dir, "moved")
	streamtest.Eventually(t, "its own postmaster ends", func() bool { return commandLine(pid) == "" })
	keeps(t, url, "7")
	if next.PID() == 0 || next.PID() == pid {
		t.Errorf("process %d runs the next cluster", next.PID())
	}
}
