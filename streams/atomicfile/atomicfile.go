package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Write replaces or creates path with data and exactly this mode. A symbolic link at path is replaced, not followed.
func Write(path string, data []byte, mode fs.FileMode) error {
	return WriteFunc(path, mode, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
}

// WriteFunc is Write for contents that fill writes. If fill fails, path stays as it was and its error is returned.
func WriteFunc(path string, mode fs.FileMode, fill func(*os.File) error) error {
	return viaTemporary(path, mode, fill, os.Rename)
}

// Create is Write for a file that must not exist: it returns fs.ErrExist and changes nothing if path exists,
// a dangling symbolic link included. Of several processes that create the same path, one succeeds.
func Create(path string, data []byte, mode fs.FileMode) error {
	return viaTemporary(path, mode, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	}, func(temporary, path string) error {
		// Unlike a rename, a link never replaces.
		return errors.Join(os.Link(temporary, path), os.Remove(temporary))
	})
}

func viaTemporary(path string, mode fs.FileMode, fill func(*os.File) error, place func(temporary, path string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), temporaryPrefix(path)+"*")
	if err != nil {
		return err
	}
	if err := errors.Join(fill(f), f.Chmod(mode)); err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if err := commit(f, path, place); err != nil {
		return errors.Join(err, f.Close(), removeIfThere(f.Name()))
	}
	return f.Close()
}

// Commit renames an open file, which was written under f.Name(), to its final name, and replaces an existing file. It returns
// when data and name are on disk. The file stays open, and locked if it was.
func Commit(f *os.File, path string) error { return commit(f, path, os.Rename) }

func commit(f *os.File, path string, place func(from, to string) error) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := place(f.Name(), path); err != nil {
		return err
	}
	return syncParents(f.Name(), path)
}

// Rename renames a file or directory, whose contents must be on disk, and returns when the new name is. It replaces a file
// at to as os.Rename does.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncParents(from, to)
}

// syncParents syncs the new parent first: a power cut in between may leave both names, never none.
func syncParents(from, to string) error {
	err := SyncDir(filepath.Dir(to))
	if filepath.Dir(from) != filepath.Dir(to) {
		err = errors.Join(err, SyncDir(filepath.Dir(from)))
	}
	return err
}

// Remove removes a file, or nothing if there is none, and returns when the removal is on disk.
func Remove(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// MkdirAll is os.MkdirAll, and returns when all directories that it made are on disk.
func MkdirAll(path string, mode fs.FileMode) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	var missing []string
	for dir := path; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, dir)
	}
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	for _, dir := range missing {
		if err := SyncDir(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	return nil
}

// SyncDir syncs the names in a directory. The files must be synced by themselves.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("syncing the directory %s: %w", path, err)
	}
	return nil
}

// SyncTree syncs a directory with all files and directories in it. Symbolic links are not followed. Its name in its
// parent is not synced.
func SyncTree(path string) error {
	return filepath.WalkDir(path, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() && !e.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}

// Sweep removes the temporary files that killed writers of path left. The caller must be the only writer of path.
func Sweep(path string) error {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	for _, e := range entries {
		random, found := strings.CutPrefix(e.Name(), temporaryPrefix(path))
		if found && random != "" && strings.Trim(random, "0123456789") == "" && e.Type().IsRegular() {
			err = errors.Join(err, removeIfThere(filepath.Join(filepath.Dir(path), e.Name())))
		}
	}
	return err
}

func temporaryPrefix(path string) string { return "." + filepath.Base(path) + "-" }

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Locked is the error of a lock that another process has.
type Locked struct {
	// Owner is "process 7", or "another process".
	Owner string
}

func (l *Locked) Error() string { return "locked by " + l.Owner }

// Lock locks a file, which it makes if needed, until the file is closed. The kernel releases the lock when the process dies, however
// it dies. A symbolic link is not followed. The file has the process's number, for the error of a second one: *Locked. Closing it
// releases the lock a moment later if another goroutine starts a program, which has the file until its exec: see Unlock.
func Lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		}
		if err == nil {
			return f, nil
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		locked := &Locked{Owner: "another process"}
		if raw, err := os.ReadFile(path); err == nil && len(raw) > 0 {
			locked.Owner = "process " + strings.TrimSpace(string(raw))
		}
		err = locked
	} else {
		err = fmt.Errorf("locking %s: %w", path, err)
	}
	return nil, errors.Join(err, f.Close())
}

// ErrReplaced is the error of Held.
var ErrReplaced = errors.New("it was moved, replaced or removed")

// Held fails with ErrReplaced if path does not lead to the open file any more: the file, or a directory above it, was moved, replaced or
// removed. Any other error leaves that unknown.
func Held(f *os.File, path string) error {
	now, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return ErrReplaced
	}
	if err != nil {
		return err
	}
	mine, err := f.Stat()
	if err == nil && !os.SameFile(mine, now) {
		err = ErrReplaced
	}
	return err
}

// Unlock releases the lock at once, and closes the file.
func Unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}
