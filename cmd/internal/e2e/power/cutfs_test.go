package power

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

func mounted(t *testing.T) *FS {
	t.Helper()
	if err := Missing(); err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	f, err := Mount(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *FS) path(name string) string { return filepath.Join(f.Dir, name) }

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func cut(t *testing.T, f *FS, plan Plan, seed uint64) {
	t.Helper()
	report, err := f.Cut(plan, seed)
	must(t, err)
	t.Log(report)
}

// put writes a file, and syncs it and its directory where the arguments require it.
func (f *FS) put(t *testing.T, name, text string, syncFile, syncDir bool) {
	t.Helper()
	w, err := os.OpenFile(f.path(name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	must(t, err)
	_, err = w.WriteString(text)
	must(t, err)
	if syncFile {
		must(t, w.Sync())
	}
	must(t, w.Close())
	if syncDir {
		must(t, atomicfile.SyncDir(filepath.Dir(f.path(name))))
	}
}

// holds compares a file; absent means that there must be none.
func (f *FS) holds(t *testing.T, name, want string) {
	t.Helper()
	raw, err := os.ReadFile(f.path(name))
	got := string(raw)
	if errors.Is(err, fs.ErrNotExist) {
		got = absent
	} else if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("%s holds %.60q (%d bytes), not %.60q (%d)", name, got, len(got), want, len(want))
	}
}

const absent = "(absent)"

func TestWhatACutLeaves(t *testing.T) {
	old, long := "old", strings.Repeat("0123456789abcdef", 1000)
	cases := []struct {
		name        string
		syncs       [2]bool // of the file, of the directory
		drop, names string
	}{
		{"nothing synced", [2]bool{false, false}, absent, ""},
		{"file synced", [2]bool{true, false}, absent, long},
		{"directory synced", [2]bool{false, true}, "", ""},
		{"both synced", [2]bool{true, true}, long, long},
	}
	f := mounted(t)
	for _, c := range cases {
		for plan, want := range map[Plan]string{DropAll: c.drop, KeepNames: c.names, KeepAll: long} {
			t.Run(fmt.Sprint(c.name, " ", plan), func(t *testing.T) {
				f.put(t, "a", long, c.syncs[0], c.syncs[1])
				f.holds(t, "a", long)
				cut(t, f, plan, 1)
				f.holds(t, "a", want)
				must(t, atomicfile.Remove(f.path("a")))
			})
		}
	}
	change := map[string]func(*testing.T){
		"overwritten": func(t *testing.T) { f.put(t, "b", "new", false, false) },
		"renamed":     func(t *testing.T) { must(t, os.Rename(f.path("b"), f.path("c"))) },
		"removed":     func(t *testing.T) { must(t, os.Remove(f.path("b"))) },
		"grown":       func(t *testing.T) { must(t, os.Truncate(f.path("b"), 10000)) },
		"replaced": func(t *testing.T) {
			f.put(t, "new", "new", true, false)
			must(t, os.Rename(f.path("new"), f.path("b")))
		},
		"given away": func(t *testing.T) { must(t, os.Chmod(f.path("b"), 0o644), os.Chown(f.path("b"), 7, 8)) },
	}
	for name, do := range change {
		t.Run(name, func(t *testing.T) {
			f.put(t, "b", old, true, true)
			do(t)
			cut(t, f, DropAll, 1)
			f.holds(t, "b", old)
			info, err := os.Stat(f.path("b"))
			must(t, err)
			if owner := info.Sys().(*syscall.Stat_t); info.Mode() != 0o600 || owner.Uid != 0 || owner.Gid != 0 {
				t.Errorf("mode %v, owner %d:%d", info.Mode(), owner.Uid, owner.Gid)
			}
			entries, err := os.ReadDir(f.Dir)
			must(t, err)
			if len(entries) != 1 {
				t.Errorf("%v", entries)
			}
		})
	}
}

// mapped writes a file through its mapping, and calls msync if there are flags.
func mapped(fd int, text string, flags uintptr) error {
	m, err := syscall.Mmap(fd, 0, len(text), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	copy(m, text)
	if flags != 0 {
		if _, _, errno := syscall.Syscall(syscall.SYS_MSYNC, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), flags); errno != 0 {
			return errno
		}
	}
	return syscall.Munmap(m)
}

func TestWhatCountsAsASync(t *testing.T) {
	f := mounted(t)
	text := []byte("text")
	for name, c := range map[string]struct {
		flags int
		sync  func(fd int) error
		kept  bool
	}{
		"fsync":           {0, syscall.Fsync, true},
		"fdatasync":       {0, syscall.Fdatasync, true},
		"O_SYNC":          {syscall.O_SYNC, nil, true},
		"O_DSYNC":         {syscall.O_DSYNC, nil, true},
		"close":           {0, nil, false},
		"sync_file_range": {0, func(fd int) error { return syscall.SyncFileRange(fd, 0, 0, 7) }, false},
		"syncfs":          {0, func(int) error { return exec.Command("sync", "-f", f.Dir).Run() }, false},
		"mapped":          {0, func(fd int) error { return mapped(fd, "text", 0) }, false},
		"msync":           {0, func(fd int) error { return mapped(fd, "text", syscall.MS_SYNC) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			fd, err := syscall.Open(f.path("a"), syscall.O_RDWR|syscall.O_CREAT|c.flags, 0o600)
			must(t, err, atomicfile.SyncDir(f.Dir))
			_, err = syscall.Write(fd, text)
			must(t, err)
			if c.sync != nil {
				must(t, c.sync(fd))
			}
			must(t, syscall.Close(fd))
			cut(t, f, DropAll, 1)
			want := ""
			if c.kept {
				want = "text"
			}
			f.holds(t, "a", want)
			must(t, atomicfile.Remove(f.path("a")))
		})
	}
}

// TestLooseKeepsTheNamesOfSyncedFiles: and of new directories above them, but not those of files made later, or elsewhere.
func TestLooseKeepsTheNamesOfSyncedFiles(t *testing.T) {
	f := mounted(t)
	must(t, f.Loose("x"), os.MkdirAll(f.path("a/x/y"), 0o700), os.MkdirAll(f.path("b"), 0o700))
	f.put(t, "a/x/y/synced", "text", true, false)
	f.put(t, "a/x/later", "text", false, false)
	f.put(t, "b/elsewhere", "text", true, false)
	cut(t, f, DropAll, 1)
	f.holds(t, "a/x/y/synced", "text")
	f.holds(t, "a/x/later", absent)
	f.holds(t, "b/elsewhere", absent)
}

// TestCutsBetweenTheStepsOfAnAtomicFile cuts before each change that a replacement of a file makes. The helper leaves
// the old or the new file under every plan; without the fsyncs the test finds a damaged one.
func TestCutsBetweenTheStepsOfAnAtomicFile(t *testing.T) {
	f := mounted(t)
	careless := func(path string) error {
		if err := os.WriteFile(path+".new", []byte("new"), 0o600); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	}
	careful := func(path string) error { return atomicfile.Write(path, []byte("new"), 0o600) }
	for name, c := range map[string]struct {
		write   func(string) error
		damaged bool
	}{"without fsync": {careless, true}, "atomicfile.Write": {careful, false}} {
		t.Run(name, func(t *testing.T) {
			damaged, kept, cuts := 0, 0, 0
			for _, plan := range Plans {
				for step, done := 1, false; !done; step++ {
					f.put(t, "a", "old", true, true)
					must(t, f.After(step))
					result := make(chan error, 1)
					go func() { result <- c.write(f.path("a")) }()
					select {
					case <-f.Frozen():
					case err := <-result:
						must(t, err)
						done = true
					}
					_, err := f.Cut(plan, uint64(step))
					must(t, err)
					cuts++
					raw, err := os.ReadFile(f.path("a"))
					must(t, err)
					switch {
					case string(raw) == "new":
						kept++
					case string(raw) != "old" || done && !c.damaged:
						damaged++
					}
					if !done {
						<-result // an error of the old mount
					}
					must(t, atomicfile.Sweep(f.path("a")), os.RemoveAll(f.path("a.new")), atomicfile.SyncDir(f.Dir))
				}
			}
			if (damaged > 0) != c.damaged || kept == 0 {
				t.Errorf("%d cuts: %d damaged files, %d new ones", cuts, damaged, kept)
			}
		})
	}
}
