package backup

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
	"github.com/seed-4a2410e3/scrip/streams/room"
	"github.com/seed-4a2410e3/scrip/streams/seal"
)

const (
	incompleteSuffix = ".incomplete"
	// lockFile is in a directory for as long as it is incomplete. A process that writes the backup has its flock.
	lockFile = "scrip-backup.lock"
)

// workdir is a backup being written: DIR.incomplete until it is complete.
type workdir struct {
	final, path string
	lock        *os.File
	// create makes a file of the backup, on the disk.
	create func(path string) (file, error)
	disk   *room.Disk

	mu   sync.Mutex
	sums map[string]string // by file name
}

type file interface {
	io.Writer
	Sync() error
	Close() error
}

func createFile(path string) (file, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// newWorkdir makes the directory beside the final name. It removes what a dead backup left there, and nothing else.
func newWorkdir(final string) (*workdir, error) {
	final, err := filepath.Abs(final)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(final); err == nil {
		return nil, fmt.Errorf("%s exists already; name a directory that does not, such as %s-2", final, final)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("checking the backup's directory: %w; name another one", err)
	}
	w := &workdir{final: final, path: final + incompleteSuffix, sums: map[string]string{}, create: createFile, disk: room.At(filepath.Dir(final))}
	if err := w.take(); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *workdir) take() error {
	if _, err := os.Lstat(w.path); err == nil {
		if err := w.removeDead(); err != nil {
			return err
		}
	}
	// 0700: it holds the key.
	if err := os.Mkdir(w.path, 0o700); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("making the backup's directory: %w; make its parent directory first", err)
		}
		return fmt.Errorf("making the backup's directory: %w; name one that can be written", err)
	}
	var err error
	if w.lock, err = atomicfile.Lock(filepath.Join(w.path, lockFile)); err != nil {
		return fmt.Errorf("locking the backup's directory: %w", err)
	}
	// Before any other file: without it the directory is not recognised as an unfinished backup after a power cut.
	return atomicfile.SyncDir(w.path)
}

// removeDead removes what an interrupted backup left. The kernel released its lock when it died.
func (w *workdir) removeDead() error {
	path := filepath.Join(w.path, lockFile)
	if _, err := os.Lstat(path); err != nil {
		return fmt.Errorf("%s exists and is no unfinished backup; move it away, or name another directory", w.path)
	}
	held, err := atomicfile.Lock(path)
	if err != nil {
		return fmt.Errorf("another backup is writing %s (%w); wait for it, or name another directory", w.path, err)
	}
	defer held.Close()
	if err := removeKeepingLast(w.path, lockFile); err != nil {
		return fmt.Errorf("removing what an interrupted backup left: %w; remove %s yourself", err, w.path)
	}
	return nil
}

// removeKeepingLast removes a directory, and in it the identifying file last: a crash in between leaves it recognisable.
func removeKeepingLast(dir, last string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != last {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(dir)
}

// write makes one file, complete and on disk, and returns its size.
func (w *workdir) write(name string, fill func(io.Writer) error) (size int64, err error) {
	f, err := w.create(filepath.Join(w.path, name))
	if err != nil {
		return 0, noRoom(err)
	}
	to := &summed{to: w.disk.Writer(f), digest: sha256.New()}
	if err = fill(to); err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, noRoom(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sums[name] = hexSum(to.digest)
	return to.size, nil
}

// summed is a file that is written.
type summed struct {
	to     io.Writer
	digest hash.Hash
	size   int64
}

func (s *summed) Write(p []byte) (int, error) {
	n, err := s.to.Write(p)
	_, _ = s.digest.Write(p[:n])
	s.size += int64(n)
	return n, err
}

// bytes makes a small file.
func (w *workdir) bytes(name string, data []byte) error {
	_, err := w.write(name, func(to io.Writer) error {
		_, err := to.Write(data)
		return err
	})
	return err
}

// remove removes a file that is to be written again.
func (w *workdir) remove(name string) error {
	err := os.Remove(filepath.Join(w.path, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// finish renames the directory to its final name. A crash before the rename leaves an incomplete one, after it a complete
// one. The key seals the checksums.
func (w *workdir) finish(key *seal.Key) error {
	var sums strings.Builder
	names := make([]string, 0, len(w.sums))
	for name := range w.sums {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		sums.WriteString(w.sums[name] + "  " + name + "\n")
	}
	if err := w.bytes(sumsFile, []byte(sums.String())); err != nil {
		return err
	}
	if err := w.bytes(sealFile, []byte(sealOf(key, []byte(sums.String())))); err != nil {
		return err
	}
	// The lock is on the open file: no other backup takes the directory for a dead one between here and the rename.
	if err := os.Remove(filepath.Join(w.path, lockFile)); err != nil {
		return err
	}
	if err := atomicfile.SyncDir(w.path); err != nil {
		return err
	}
	if err := atomicfile.Rename(w.path, w.final); err != nil {
		return fmt.Errorf("giving the backup its name: %w; it is complete, rename %s yourself", err, w.path)
	}
	return w.lock.Close()
}

// discard removes what was written; a directory that has its final name stays.
func (w *workdir) discard() error {
	err := removeKeepingLast(w.path, lockFile)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	_ = w.lock.Close() // closed already, after a rename
	return err
}

// noRoom adds to the error of a full disk what to do.
func noRoom(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("no space for the backup: %w; free some, or name a directory on another disk", err)
	}
	return err
}
