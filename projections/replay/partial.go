package replay

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
)

// A file that is being written stands beside its target as .NAME.<8 hex digits>.partial, locked by its writer. The kernel
// lets the lock go when the writer dies, so what has the name and no lock is a dead one's. Where the file system knows
// no locks, nothing is removed.

// partialTries bounds how often a new name is tried: each is lost only to another replay that cleans up in the moment
// between making a file and locking it.
const partialTries = 100

// createPartial makes and locks a file to write in.
func createPartial(target string, mode fs.FileMode) (path string, file *os.File, err error) {
	for range partialTries {
		path = filepath.Join(filepath.Dir(target), fmt.Sprintf(".%s.%08x.partial", filepath.Base(target), rand.Uint32()))
		file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", nil, err
		}
		locked := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(locked, syscall.EWOULDBLOCK) && leadsTo(path, file) {
			return path, file, nil
		}
		_ = file.Close() // somebody who cleans up has it: it is gone, or will be
	}
	return "", nil, fmt.Errorf("another replay removes what is written beside %s; wait for it, or give another --out", target)
}

// removeLeftovers removes what dead writers left of a target. What does not work is left for the next one: it takes room,
// and nothing else.
func removeLeftovers(target string) {
	dir := filepath.Dir(target)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	left := regexp.MustCompile(`^\.` + regexp.QuoteMeta(filepath.Base(target)) + `\.[0-9a-f]{8}\.partial$`)
	for _, e := range entries {
		if e.Type().IsRegular() && left.MatchString(e.Name()) {
			removeUnheld(filepath.Join(dir, e.Name()))
		}
	}
}

// removeUnheld removes a file whose lock nobody has. It holds the lock meanwhile, so that a writer who has just made the
// file finds out.
func removeUnheld(path string) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	// A writer renames its file before it lets go of the lock; the name is asked for under the lock.
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil && leadsTo(path, f) {
		_ = os.Remove(path)
	}
}

// leadsTo says whether a path leads to an open file.
func leadsTo(path string, f *os.File) bool {
	there, err1 := os.Lstat(path)
	open, err2 := f.Stat()
	return err1 == nil && err2 == nil && os.SameFile(there, open)
}
