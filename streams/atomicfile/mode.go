package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Private is a file or directory that other users may not read or change.
type Private struct {
	Path string
	// Most is the mode that it has at most; with fs.ModeDir it is a directory, else a regular file.
	Most fs.FileMode
}

// Narrow takes from files the rights of others beyond Most: a platform (fsGroup of Kubernetes, chmod -R, a copy with
// another umask) may have given them. What is not there, is of another type or a symbolic link is left alone. It
// returns the paths that it has changed. The error names the first one that is not this user's to change.
func Narrow(files ...Private) (changed []string, err error) {
	for _, f := range files {
		was, err := os.Lstat(f.Path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return changed, err
		}
		if was.Mode().Type() != f.Most.Type() || was.Mode().Perm()&^f.Most.Perm() == 0 {
			continue
		}
		to := was.Mode().Perm()&f.Most.Perm() | f.Most.Perm()&0o700 // its owner's are whole
		if err := narrow(f.Path, was, to); err != nil {
			return changed, fmt.Errorf("%s has mode %04o, so that others may read or change it; its owner or root mends that: chmod %o %s: %w", f.Path, was.Mode().Perm(), to, f.Path, err)
		}
		changed = append(changed, f.Path)
	}
	return changed, nil
}

// narrow changes the mode of the file that was looked at, which may have been exchanged for a link since.
func narrow(path string, was fs.FileInfo, to fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	now, err := f.Stat()
	if err == nil && !os.SameFile(was, now) {
		err = errors.New("it was replaced meanwhile")
	}
	if err == nil {
		err = f.Chmod(to)
	}
	return err
}
