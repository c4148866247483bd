package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Stream is a sink that writes to w, which it does not close: standard output, say. What was written before an error
// stays written.
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
		return nil // without its foot it is no Parquet; a foot would say that it is whole
	}
	if err := s.enc.close(); err != nil && cause == nil {
		return writeError(s.name, err)
	}
	return nil
}

// File is a sink that writes a file whole or not at all: beside it, under another name, until it is complete, then in
// place of whatever had its name. What a killed one left under that other name, the next one to the same file removes.
// Something that is no regular file, such as a pipe or a device, is written to as it is.
func File(path string, format Format) Sink {
	return &fileSink{path: path, streamSink: streamSink{format: format, name: path}}
}

type fileSink struct {
	streamSink
	path    string
	target  string // path, links followed
	partial string // what is written until it is whole; empty = target is written to directly
	file    *os.File

	limit func(io.Writer) io.Writer // set by tests that fill the disk
}

func (s *fileSink) Begin(ctx context.Context, log topology.Log, f *Filter) (map[int]eventlog.Position, error) {
	if err := s.create(); err != nil {
		return nil, err
	}
	if s.w = s.file; s.limit != nil {
		s.w = s.limit(s.file)
	}
	places, err := s.streamSink.Begin(ctx, log, f)
	if err != nil {
		err = errors.Join(err, s.discard())
	}
	return places, err
}

func (s *fileSink) create() (err error) {
	s.target = s.path
	if real, err := filepath.EvalSymlinks(s.path); err == nil {
		s.target = real
	}
	info, err := os.Stat(s.target)
	mode := fs.FileMode(0o600) // codes are as good as money
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
		return invalid("out", "there is no directory %s; make it first", filepath.Dir(s.target))
	}
	return err
}

// End renames the file into place, or removes it.
func (s *fileSink) End(ctx context.Context, cause error) error {
	err := s.streamSink.End(ctx, cause)
	if s.partial == "" { // a pipe knows no Sync
		if cerr := s.file.Close(); cerr != nil && err == nil && cause == nil {
			err = writeError(s.path, cerr)
		}
		return err
	}
	if cause != nil || err != nil {
		return errors.Join(s.kept(err), s.discard())
	}
	if err := atomicfile.Commit(s.file, s.target); err != nil {
		return errors.Join(s.kept(writeError(s.path, err)), s.discard())
	}
	// Closed last: without its lock it would be a dead one's under the other name.
	return s.file.Close()
}

// kept adds to an error of writing what became of the file.
func (s *fileSink) kept(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; nothing is left of this export: make room, or give another --out, and run it again", err)
}

func (s *fileSink) Write(ctx context.Context, b *Batch) error {
	err := s.streamSink.Write(ctx, b)
	if s.partial == "" {
		return err
	}
	return s.kept(err)
}

func (s *fileSink) Flush(ctx context.Context) error {
	err := s.streamSink.Flush(ctx)
	if s.partial == "" {
		return err
	}
	return s.kept(err)
}

func (s *fileSink) discard() error {
	defer func() { _ = s.file.Close() }() // after it is removed, for with it goes the lock
	if s.partial == "" {
		return nil
	}
	if err := os.Remove(s.partial); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil // it has its name: only the fsync of the directory failed
}
