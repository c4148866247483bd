package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/google/uuid"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

// Format is the version of the layout that this program makes, and the newest it opens.
const Format = 1

const (
	lockFile   = "lock"
	formatFile = "format"
	idFile     = "server.id"
	keyFile    = "code.key"
	descriptor = "scrip.json"

	// ownerOnly is the mode of all files here.
	ownerOnly = 0o600

	natsDir      = "nats"
	restoringDir = "nats.restoring"
)

// Dir is a data directory that this process owns.
type Dir struct {
	path string
	lock *os.File
}

// Open makes path a data directory if it is none, and takes it. It is refused while another process has it, and when a
// newer program made it. A descriptor left by a server that was killed is removed.
func Open(path string) (*Dir, error) {
	if path == "" {
		return nil, errors.New("the data directory has no name; give --data DIR")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("the data directory: %w", err)
	}
	// 0711: an unprivileged PostgreSQL has to pass through, nobody else has to look around.
	if err := atomicfile.MkdirAll(path, 0o711); err != nil {
		return nil, fmt.Errorf("making the data directory: %w; give one that can be written with --data DIR", err)
	}
	if err := refusePlanted(path); err != nil {
		return nil, err
	}
	d := &Dir{path: path}
	if d.lock, err = takeLock(d.file(lockFile)); err != nil {
		return nil, err
	}
	for _, name := range []string{formatFile, idFile, keyFile, credentialsFile, descriptor} {
		err = errors.Join(err, atomicfile.Sweep(d.file(name)))
	}
	if err := errors.Join(err, d.checkFormat(), atomicfile.Remove(d.file(descriptor))); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// takeLock locks the file and writes the pid into it, for whoever is refused.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the data directory: %w; run scrip as the user who owns it, or give another one with --data DIR", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, errors.Join(f.Truncate(0), writeAt(f, strconv.Itoa(os.Getpid())+"\n"))
	}
	defer f.Close()
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("locking the data directory: %s: %w", path, err)
	}
	owner := "another process"
	if raw, err := os.ReadFile(path); err == nil && len(raw) > 0 {
		owner = "process " + strings.TrimSpace(string(raw))
	}
	return nil, fmt.Errorf("the data directory %s is in use by %s; stop that one, or give another directory with --data DIR (and other ports)",
		filepath.Dir(path), owner)
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// checkFormat reads the format, or writes it into a directory that has none: it is the first thing written after the
// lock, so a directory without it holds nothing of ours.
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
		return fmt.Errorf("%s says %q instead of a version such as %d; restore it", d.file(formatFile), strings.TrimSpace(string(raw)), Format)
	case version > Format:
		return fmt.Errorf("the data directory %s has format %d, this program knows formats up to %d; use the newer scrip that made it, or give another directory with --data DIR",
			d.path, version, Format)
	}
	return nil
}

// Close lets go of the directory.
func (d *Dir) Close() error { return d.lock.Close() }

// Path is the directory, absolute.
func (d *Dir) Path() string { return d.path }

// NATS is where the embedded NATS server keeps its store.
func (d *Dir) NATS() string { return d.file(natsDir) }

// Restoring is where a restore builds a NATS store; it becomes NATS when it is whole.
func (d *Dir) Restoring() string { return d.file(restoringDir) }

// Interrupted says whether a restore into this directory did not come to its end.
func (d *Dir) Interrupted() bool {
	_, err := os.Lstat(d.Restoring())
	return err == nil
}

// BeginRestore removes what an interrupted restore left and makes the directory that says so of this one. It is refused
// where there is a store.
func (d *Dir) BeginRestore() error {
	if _, err := os.Lstat(d.NATS()); err == nil {
		return fmt.Errorf("the data directory %s holds a log already, in %s; restore into another one with --data DIR, or move that one away first: mv %s %s.old", d.path, d.NATS(), d.NATS(), d.NATS())
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("looking at the data directory: %w", err)
	}
	if err := os.RemoveAll(d.Restoring()); err != nil {
		return fmt.Errorf("removing what an interrupted restore left: %w", err)
	}
	// On disk before the code key of the restored log is: after a power cut a server would else start a new log under that
	// key.
	if err := atomicfile.MkdirAll(d.Restoring(), 0o700); err != nil {
		return fmt.Errorf("making the directory to restore into: %w", err)
	}
	return nil
}

// FinishRestore puts everything that was restored on disk and makes it the store, in one rename: a crash before it leaves
// an interrupted restore, after it a whole one.
func (d *Dir) FinishRestore() error {
	err := atomicfile.SyncTree(d.Restoring())
	if err == nil {
		err = atomicfile.Rename(d.Restoring(), d.NATS())
	}
	if err != nil {
		return fmt.Errorf("putting the restored log on disk: %w", err)
	}
	return nil
}

// AbortRestore removes what a restore has made so far.
func (d *Dir) AbortRestore() error { return os.RemoveAll(d.Restoring()) }

// ServerID is who this server is, for the life of the directory.
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
		return "", fmt.Errorf("%s holds no UUID; remove it, a new one is made: %w", path, err)
	}
	return id.String(), nil
}

func (d *Dir) file(name string) string { return filepath.Join(d.path, name) }
