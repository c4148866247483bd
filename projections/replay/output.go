package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"syscall"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Stream is a sink that writes to w, for instance standard output, and does not close it. What was written before an
// error remains.
func Stream(w io.Writer, format Format) Sink {
	return &output{format: format, name: "the output", w: w}
}

// output writes events in a format: Stream, and what File and NamedFile have in common.
type output struct {
	format Format
	name   string // for errors
	remedy string // ends errors of writing: what remains, and what to do
	w      io.Writer
	enc    encoder
	broken bool // a write failed

	limit func(io.Writer) io.Writer // set by tests that simulate a full disk
}

func (o *output) Begin(context.Context, topology.Log, *Filter) (map[int]eventlog.Position, error) {
	return nil, o.open(o.w, false)
}

// open begins the output; resumed: it has events already.
func (o *output) open(w io.Writer, resumed bool) (err error) {
	if o.limit != nil {
		w = o.limit(w)
	}
	o.broken = false
	o.enc, err = newEncoder(o.format, w, resumed)
	return err
}

func (o *output) Write(_ context.Context, b *Batch) error { return o.failed(o.enc.encode(b.Events)) }

func (o *output) Flush(context.Context) error { return o.failed(o.enc.flush()) }

func (o *output) End(_ context.Context, cause error) error {
	if cause != nil && o.format == Parquet {
		return nil // no footer: it would make an incomplete file look complete
	}
	err := o.enc.close()
	if cause != nil {
		return nil
	}
	return o.failed(err)
}

// failed adds to an error of writing the name of the output and what to do; nil for nil.
func (o *output) failed(err error) error {
	if err == nil {
		return nil
	}
	o.broken = true
	return fmt.Errorf("writing %s: %w%s", o.name, err, o.remedy)
}

// File is a sink that writes a file completely or not at all: it writes a partial file in the same directory and
// renames it to path when it is complete. A partial file that a killed process left is removed by the next File with
// the same path. A pipe or a device is written to directly.
func File(path string, format Format) Sink {
	return &fileSink{output: output{format: format, name: path}}
}

type fileSink struct {
	output
	target  string // name, links followed
	partial string // the partial file; empty = target is written to directly
	file    *os.File
}

func (s *fileSink) Begin(context.Context, topology.Log, *Filter) (map[int]eventlog.Position, error) {
	if err := s.create(); err != nil {
		return nil, err
	}
	if err := s.open(s.file, false); err != nil {
		return nil, errors.Join(err, s.discard())
	}
	return nil, nil
}

func (s *fileSink) create() (err error) {
	s.target = s.name
	if real, err := filepath.EvalSymlinks(s.name); err == nil {
		s.target = real
	}
	info, err := os.Stat(s.target)
	mode := fs.FileMode(0o600) // it holds codes
	switch {
	case err == nil && info.IsDir():
		return invalid("out", "%s is a directory; give a file in it", s.name)
	case err == nil && !info.Mode().IsRegular():
		s.file, err = os.OpenFile(s.target, os.O_WRONLY, 0)
		return err
	case err == nil:
		mode = info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	removeLeftovers(s.target)
	s.remedy = "; the partial export was removed: make room, or give another --out, and run it again"
	s.partial, s.file, err = createPartial(s.target, mode)
	if errors.Is(err, fs.ErrNotExist) {
		return invalid("out", "there is no directory %s; create it first", filepath.Dir(s.target))
	}
	return err
}

// End renames the file into place, or removes it.
func (s *fileSink) End(ctx context.Context, cause error) error {
	err := s.output.End(ctx, cause)
	if s.partial == "" { // a pipe has no Sync
		if closed := s.file.Close(); err == nil && cause == nil {
			err = s.failed(closed)
		}
		return err
	}
	if err == nil && cause == nil {
		if err = s.failed(atomicfile.Commit(s.file, s.target)); err == nil {
			return s.file.Close() // last: without its lock another process would remove it as a leftover
		}
	}
	return errors.Join(err, s.discard())
}

func (s *fileSink) discard() error {
	defer func() { _ = s.file.Close() }() // after the removal, because closing releases the lock
	if s.partial == "" {
		return nil
	}
	if err := os.Remove(s.partial); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil // it is renamed: only the fsync of the directory failed
}

// A partial file is in the directory of its target, named .NAME.<8 hex digits>.partial and locked by its writer. The
// kernel releases the lock when the writer dies, so a partial file without a lock is a leftover. If the file system has
// no locks, nothing is removed.

// partialTries bounds the attempts: one fails only if another replay removes leftovers between creation and locking of
// the file.
const partialTries = 100

// createPartial creates and locks a partial file.
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
		_ = file.Close() // another replay removes it as a leftover
	}
	return "", nil, fmt.Errorf("another replay removes the partial files of %s; wait for it, or give another --out", target)
}

// removeLeftovers removes partial files of dead writers. Errors are ignored: a leftover only takes room, and the next
// export tries again.
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

// removeUnheld removes a file that no process has locked. It holds the lock meanwhile, so that a writer that has just
// created the file notices.
func removeUnheld(path string) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	// A writer renames its file before it releases the lock; so the name is checked under the lock.
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil && leadsTo(path, f) {
		_ = os.Remove(path)
	}
}

// leadsTo reports whether a path refers to an open file.
func leadsTo(path string, f *os.File) bool {
	there, err1 := os.Lstat(path)
	open, err2 := f.Stat()
	return err1 == nil && err2 == nil && os.SameFile(there, open)
}
