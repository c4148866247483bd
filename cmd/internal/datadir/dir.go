package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

// Format is the version of the layout that this program creates, and the newest that it opens.
const Format = 1

const (
	lockFile   = "lock"
	formatFile = "format"
	idFile     = "server.id"
	keyFile    = "code.key"
	descriptor = "scrip.json"

	// ownerOnly is the mode of all files here.
	ownerOnly = 0o600

	// Backups is the directory of backups, unless another one is given.
	Backups = "backups"

	natsDir      = "nats"
	restoringDir = "nats.restoring"
)

// Dir is a data directory that this process owns.
type Dir struct {
	path string
	lock *os.File
	// Narrowed are the files whose modes Open has put right: others could read or change them.
	Narrowed []string
}

// private are the files and directories here that others may neither read nor change. The private PostgreSQL narrows its own.
// Who may fetch backups is the operator's choice: each backup is made with mode 0700.
func (d *Dir) private() (all []atomicfile.Private) {
	for _, name := range []string{lockFile, formatFile, idFile, keyFile, credentialsFile, descriptor} {
		all = append(all, atomicfile.Private{Path: d.file(name), Most: ownerOnly})
	}
	for _, name := range []string{natsDir, restoringDir} {
		all = append(all, atomicfile.Private{Path: d.file(name), Most: fs.ModeDir | 0o700})
	}
	return all
}

// Open locks the data directory at path and creates it if needed. It fails while another process holds the lock, and for
// a format of a newer program. It removes a descriptor that a killed server left.
func Open(path string) (*Dir, error) {
	if path == "" {
		return nil, errors.New("the data directory has no name; give --data DIR")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("the data directory: %w", err)
	}
	// 0711: an unprivileged PostgreSQL must traverse it; other users need not list it.
	if err := atomicfile.MkdirAll(path, 0o711); err != nil {
		return nil, fmt.Errorf("creating the data directory: %w; give a writable one with --data DIR", err)
	}
	if err := refusePlanted(path); err != nil {
		return nil, err
	}
	d := &Dir{path: path}
	var locked *atomicfile.Locked
	switch d.lock, err = atomicfile.Lock(d.file(lockFile)); {
	case errors.As(err, &locked):
		return nil, fmt.Errorf("the data directory %s is in use by %s; stop that one, or give another directory with --data DIR (and other ports)", path, locked.Owner)
	case err != nil:
		return nil, fmt.Errorf("locking the data directory: %w; run scrip as its owner, or give another one with --data DIR", err)
	}
	d.Narrowed, err = atomicfile.Narrow(d.private()...)
	for _, name := range []string{formatFile, idFile, keyFile, credentialsFile, descriptor} {
		err = errors.Join(err, atomicfile.Sweep(d.file(name)))
	}
	if err := errors.Join(err, d.checkFormat(), atomicfile.Remove(d.file(descriptor))); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// checkFormat reads the format, or writes it into a directory without one: it is the first file written after the lock,
// so a directory without it has no files of scrip.
func (d *Dir) checkFormat() error {
	raw, err := os.ReadFile(d.file(formatFile))
	if errors.Is(err, fs.ErrNotExist) {
		return atomicfile.Create(d.file(formatFile), []byte(strconv.Itoa(Format)+"\n"), ownerOnly)
	}
	if err != nil {
		return fmt.Errorf("reading the format of the data directory: %w", err)
	}
	version, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	switch {
	case err != nil || version < 1:
		return fmt.Errorf("%s contains %q instead of a version such as %d; restore it", d.file(formatFile), strings.TrimSpace(string(raw)), Format)
	case version > Format:
		return fmt.Errorf("the data directory %s has format %d, this program supports formats up to %d; use the newer scrip that created it, or give another directory with --data DIR",
			d.path, version, Format)
	}
	return nil
}

// heldEvery is how often Watch looks. A server whose directory is gone may write into the next one for so long.
const heldEvery = 250 * time.Millisecond

// Held fails with atomicfile.ErrReplaced if the directory's path leads to another directory, or to none. A server must not write by path
// then, and must not stop in order: all that would reach the directory, and the server, that are there now.
func (d *Dir) Held() error {
	err := atomicfile.Held(d.lock, d.file(lockFile))
	if errors.Is(err, atomicfile.ErrReplaced) {
		return fmt.Errorf("the data directory %s is not the one that this server started on: %w while the server ran, which ends at once and writes nothing more. "+
			"Its log is in the directory that was moved: stop a server before its directory is moved, and start one with --data where it is now", d.path, err)
	}
	return nil // also if it is unknown, as on a disk that does not answer
}

// Watch waits for the error of Held, until ctx ends.
func (d *Dir) Watch(ctx context.Context) error {
	tick := time.NewTicker(heldEvery)
	defer tick.Stop()
	for {
		if err := d.Held(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Close releases the lock.
func (d *Dir) Close() error { return atomicfile.Unlock(d.lock) }

// Path is the directory, absolute.
func (d *Dir) Path() string { return d.path }

// NATS is the directory of the embedded NATS server's store.
func (d *Dir) NATS() string { return d.file(natsDir) }

// Restoring is the directory in which a restore builds a NATS store; it is renamed to NATS when it is complete.
func (d *Dir) Restoring() string { return d.file(restoringDir) }

// Interrupted is true if a restore into this directory is incomplete.
func (d *Dir) Interrupted() bool {
	_, err := os.Lstat(d.Restoring())
	return err == nil
}

// BeginRestore removes the files of an interrupted restore and creates the directory Restoring. It fails if there is a
// store.
func (d *Dir) BeginRestore() error {
	if _, err := os.Lstat(d.NATS()); err == nil {
		return fmt.Errorf("the data directory %s has a log already, in %s; restore into another one with --data DIR, or move that one first: mv %s %s.old", d.path, d.NATS(), d.NATS(), d.NATS())
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the data directory: %w", err)
	}
	if err := os.RemoveAll(d.Restoring()); err != nil {
		return fmt.Errorf("removing the files of an interrupted restore: %w", err)
	}
	// It must be on disk before the code key of the restored log: otherwise, after a power cut, a server would create a new
	// log with that key.
	if err := atomicfile.MkdirAll(d.Restoring(), 0o700); err != nil {
		return fmt.Errorf("creating the directory to restore into: %w", err)
	}
	return nil
}

// FinishRestore syncs the restored files and renames their directory to the store's: a crash before the rename leaves an
// interrupted restore, after it a complete one.
func (d *Dir) FinishRestore() error {
	err := atomicfile.SyncTree(d.Restoring())
	if err == nil {
		err = atomicfile.Rename(d.Restoring(), d.NATS())
	}
	if err != nil {
		return fmt.Errorf("syncing the restored log: %w", err)
	}
	return nil
}

// AbortRestore removes the files of the restore.
func (d *Dir) AbortRestore() error { return os.RemoveAll(d.Restoring()) }

// ServerID is the server's UUID; it is created once for a directory.
func (d *Dir) ServerID() (string, error) {
	path := d.file(idFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		id := uuid.NewString()
		return id, atomicfile.Create(path, []byte(id+"\n"), ownerOnly)
	}
	if err != nil {
		return "", fmt.Errorf("reading the server's id: %w", err)
	}
	id, err := uuid.Parse(strings.TrimSpace(string(raw)))
	if err != nil {
		return "", fmt.Errorf("%s is not a UUID; remove it to get a new one: %w", path, err)
	}
	return id.String(), nil
}

func (d *Dir) file(name string) string { return filepath.Join(d.path, name) }

// refusePlanted refuses links in the data directory that root did not create, if root runs the server: with them another
// user could make root write or remove their targets.
func refusePlanted(dir string) error {
	if os.Geteuid() != 0 {
		return nil // a link gives no further rights to this user
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading the data directory: %w", err)
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := os.Lstat(path)
		if err != nil {
			return fmt.Errorf("reading the data directory: %w", err)
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != 0 {
			name := "another user"
			if ok {
				name = userName(owner.Uid)
			}
			return fmt.Errorf("%s is a link of %s, and root follows only its own links: remove it, or run scrip as %s", path, name, name)
		}
	}
	return nil
}

func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "uid " + id
}

// Listable is true if other users may list the data directory. They cannot read the secrets in it in any case.
func (d *Dir) Listable() bool {
	info, err := os.Stat(d.path)
	return err == nil && info.Mode().Perm()&0o044 != 0
}
