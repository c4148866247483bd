package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/room"
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
	disk  *room.Disk                // of a file; nil = no file
}

func (o *output) Begin(context.Context, topology.Log, *Filter) (map[int]eventlog.Position, error) {
	return nil, o.open(o.w, false)
}

// open starts the output; resumed: it has events already.
func (o *output) open(w io.Writer, resumed bool) (err error) {
	w = o.disk.Writer(w)
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
// renames it to path when it is complete. Two at once are refused. A partial file that a killed process left is removed by the
// next File with the same path. A pipe or a device is written to directly.
func File(path string, format Format) Sink {
	return &fileSink{output: output{format: format, name: path, disk: room.At(filepath.Dir(path))}}
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
		s.disk = nil
		s.file, err = os.OpenFile(s.target, os.O_WRONLY, 0)
		return err
	case err == nil:
		mode = info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	s.remedy = "; the partial export was removed: make room, or give another --out, and run it again"
	s.partial = filepath.Join(filepath.Dir(s.target), "."+filepath.Base(s.target)+".partial")
	s.file, err = createPartial(s.partial, mode)
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

// createPartial creates and locks a partial file. The kernel releases the lock when its writer dies: what a killed replay left has
// none, and is removed.
func createPartial(path string, mode fs.FileMode) (*os.File, error) {
	taken := fmt.Errorf("another replay writes %s; wait for it, or give another --out", path)
	if left, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0); err == nil {
		defer left.Close()
		if !lockFile(left) {
			return nil, taken
		}
		if leadsTo(path, left) { // its writer may have renamed it before it released the lock
			_ = os.Remove(path)
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil, taken
	}
	if err == nil && !(lockFile(file) && leadsTo(path, file)) { // another replay has removed it as a leftover
		return nil, errors.Join(taken, file.Close())
	}
	return file, err
}

// lockFile reports whether no other process has locked a file. It does so, too, where the file system has no locks.
func lockFile(f *os.File) bool {
	return !errors.Is(syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// leadsTo reports whether a path refers to an open file.
func leadsTo(path string, f *os.File) bool {
	there, err1 := os.Lstat(path)
	open, err2 := f.Stat()
	return err1 == nil && err2 == nil && os.SameFile(there, open)
}
