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
	return &streamSink{format: format, w: w, name: "the output"}
}

type streamSink struct {
	format Format
	name   string
	w      io.Writer
	enc    encoder
}

func (s *streamSink) Begin(context.Context, topology.Log, *Filter) (_ map[int]eventlog.Position, err error) {
	s.enc, err = newEncoder(s.format, s.w, false)
	return nil, err
}

func (s *streamSink) Write(_ context.Context, b *Batch) error {
	if err := s.enc.encode(b.Events); err != nil {
		return writeError(s.name, err)
	}
	return nil
}

func (s *streamSink) Flush(context.Context) error {
	if err := s.enc.flush(); err != nil {
		return writeError(s.name, err)
	}
	return nil
}

func (s *streamSink) End(_ context.Context, cause error) error {
	if cause != nil && s.format == Parquet {
		return nil // no footer: it would make an incomplete file look complete
	}
	if err := s.enc.close(); err != nil && cause == nil {
		return writeError(s.name, err)
	}
	return nil
}

// File is a sink that writes a file completely or not at all: it writes a partial file in the same directory and
// renames it to path when it is complete. A partial file that a killed process left is removed by the next File with
// the same path. A pipe or a device is written to directly.
func File(path string, format Format) Sink {
	return &fileSink{path: path, streamSink: streamSink{format: format, name: path}}
}

type fileSink struct {
	streamSink
	path    string
	target  string // path, links followed
	partial string // the partial file; empty = target is written to directly
	file    *os.File

	limit func(io.Writer) io.Writer // set by tests that simulate a full disk
}

func (s *fileSink) Begin(ctx context.Context, log topology.Log, f *Filter) (map[int]eventlog.Position, error) {
	if err := s.create(); err != nil {
		return nil, err
	}
	if s.w = s.file; s.limit != nil {
		s.w = s.limit(s.file)
	}
	positions, err := s.streamSink.Begin(ctx, log, f)
	if err != nil {
		err = errors.Join(err, s.discard())
	}
	return positions, err
}

func (s *fileSink) create() (err error) {
	s.target = s.path
	if real, err := filepath.EvalSymlinks(s.path); err == nil {
		s.target = real
	}
	info, err := os.Stat(s.target)
	mode := fs.FileMode(0o600) // it holds codes
	switch {
	case err == nil && info.IsDir():
		return invalid("out", "%s is a directory; give a file in it", s.path)
	case err == nil && !info.Mode().IsRegular():
		s.file, err = os.OpenFile(s.target, os.O_WRONLY, 0)
		return err
	case err == nil:
		mode = info.Mode().Perm()
	case errors.Is(err, fs.ErrNotExist):
	default:
		return err
	}
	removeLeftovers(s.target)
	s.partial, s.file, err = createPartial(s.target, mode)
	if errors.Is(err, fs.ErrNotExist) {
		return invalid("out", "there is no directory %s; create it first", filepath.Dir(s.target))
	}
	return err
}

// End renames the file into place, or removes it.
func (s *fileSink) End(ctx context.Context, cause error) error {
	err := s.streamSink.End(ctx, cause)
	if s.partial == "" { // a pipe has no Sync
		if cerr := s.file.Close(); cerr != nil && err == nil && cause == nil {
			err = writeError(s.path, cerr)
		}
		return err
	}
	if cause != nil || err != nil {
		return errors.Join(s.explainRemains(err), s.discard())
	}
	if err := atomicfile.Commit(s.file, s.target); err != nil {
		return errors.Join(s.explainRemains(writeError(s.path, err)), s.discard())
	}
	// Closed last: without its lock another process would remove it as a leftover.
	return s.file.Close()
}

// explainRemains adds to a write error what remains of the file.
func (s *fileSink) explainRemains(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; the partial export was removed: make room, or give another --out, and run it again", err)
}

func (s *fileSink) Write(ctx context.Context, b *Batch) error {
	err := s.streamSink.Write(ctx, b)
	if s.partial == "" {
		return err
	}
	return s.explainRemains(err)
}

func (s *fileSink) Flush(ctx context.Context) error {
	err := s.streamSink.Flush(ctx)
	if s.partial == "" {
		return err
	}
	return s.explainRemains(err)
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
