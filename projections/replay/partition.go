package replay

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/room"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// partitionBytes, of lines, is after how much the open files of a data set are completed, partitionAge after how long, and
	// partitionDays from how many on: each has a row group in memory.
	partitionBytes = 256 << 20
	partitionAge   = 5 * time.Minute
	partitionDays  = 8
	// partitionState is the state file of a data set, and partitionLock the file that its writer locks.
	partitionState, partitionLock = ".scrip-replay", ".scrip-replay.lock"
	// partialFiles are those that are not complete.
	partialFiles = ".*.partial"
)

// Partitions is a sink that adds to a data set of Parquet files: DIR/day=2026-11-26/NUMBER.parquet has events of one day (UTC), of
// any lanes. Each file is whole, or not there. Their number does not grow with the lanes: a replay that follows completes one of
// each day at a time.
//
// The state file is written after the files that it covers, up to a number. What a killed run left, partial files and whole ones
// with higher numbers, is removed by the next run, which writes these events again: none is lost, and none is there twice.
func Partitions(dir string) Sink {
	const remedy = "; complete files remain: make room and run it again, it continues there"
	return &partitions{output: output{format: Parquet, name: dir, remedy: remedy, disk: room.At(dir)}, bytes: partitionBytes, age: partitionAge}
}

type partitions struct {
	output
	bytes int
	age   time.Duration

	lock  *os.File
	state partitionedState
	open  map[string]*partitionFile // by day
	size  int                       // of the lines in open files
	since time.Time                 // of the first change that is not saved; zero = there is none
}

// partitionedState is the content of the state file.
type partitionedState struct {
	Version int                       `json:"version"`
	Filter  string                    `json:"filter"`
	Places  map[int]eventlog.Position `json:"places"`
	// Files is the number of the last file.
	Files uint64 `json:"files"`
}

type partitionFile struct {
	*parquetEncoder
	file *os.File
}

func (s *partitions) Begin(_ context.Context, _ topology.Log, f *Filter) (map[int]eventlog.Position, error) {
	if err := atomicfile.MkdirAll(s.name, 0o700); err != nil { // it holds codes
		return nil, invalid("out", "%v; give a directory", err)
	}
	lock, err := atomicfile.Lock(filepath.Join(s.name, partitionLock))
	if err != nil {
		return nil, fmt.Errorf("%w; stop the other replay to this directory, or give another --out", err)
	}
	s.lock, s.open, s.size, s.since, s.broken = lock, map[string]*partitionFile{}, 0, time.Time{}, false
	if err := s.resume(f.String()); err != nil {
		return nil, errors.Join(err, atomicfile.Unlock(s.lock))
	}
	return maps.Clone(s.state.Places), nil
}

// resume reads the state, and removes what it does not cover.
func (s *partitions) resume(filter string) error {
	s.state = partitionedState{Version: stateVersion, Filter: filter, Places: map[int]eventlog.Position{}}
	left, _ := filepath.Glob(filepath.Join(s.name, partialFiles)) // well formed, as the other one
	files, _ := filepath.Glob(filepath.Join(s.name, "day=*", "*.parquet"))
	err := readState(filepath.Join(s.name, partitionState), &s.state, &s.state.Version)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(files) > 0:
		return invalid("out", "%s has files of a replay without its state file %s; give another directory", s.name, partitionState)
	case errors.Is(err, fs.ErrNotExist):
		err = s.save() // before the first file
	}
	switch {
	case err != nil:
		return fmt.Errorf("the state file of %s: %w; or give another --out", s.name, err)
	case s.state.Filter != filter:
		return invalid("out", "%s was started with filters %q, not with %q; give the same (as absolute times), or another directory", s.name, s.state.Filter, filter)
	}
	for _, path := range files {
		number, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(path), ".parquet"), 10, 64)
		if err == nil && number > s.state.Files { // other names are not of a replay
			left = append(left, path)
		}
	}
	for _, path := range left {
		err = errors.Join(err, atomicfile.Remove(path))
	}
	return err
}

// Write adds a batch to the files of its days. All of them are completed together: the positions cover what is in any of them.
func (s *partitions) Write(_ context.Context, b *Batch) error {
	for rest := b.Events; len(rest) > 0; {
		day := rest[0].day()
		n := slices.IndexFunc(rest, func(e Event) bool { return e.day() != day })
		if n < 0 {
			n = len(rest)
		}
		if err := s.add(day, rest[:n]); err != nil {
			return s.failed(err)
		}
		rest = rest[n:]
	}
	if s.since.IsZero() {
		s.since = time.Now()
	}
	s.state.Places[b.To.Lane] = b.To
	if len(s.open) >= partitionDays || s.size >= s.bytes || time.Since(s.since) >= s.age {
		return s.failed(s.complete())
	}
	return nil
}

func (e *Event) day() string { return e.At.Time().UTC().Format(time.DateOnly) }

func (s *partitions) add(day string, events []Event) (err error) {
	f := s.open[day]
	if f == nil {
		f = &partitionFile{}
		if f.file, err = os.CreateTemp(s.name, partialFiles); err != nil {
			return err
		}
		s.open[day] = f
		w := s.disk.Writer(f.file)
		if s.limit != nil {
			w = s.limit(w)
		}
		f.parquetEncoder = newParquet(w)
	}
	for i := range events {
		s.size += len(events[i].Raw)
	}
	return f.encode(events)
}

// Flush completes files that are old enough.
func (s *partitions) Flush(context.Context) error {
	if s.since.IsZero() || time.Since(s.since) < s.age {
		return nil
	}
	return s.failed(s.complete())
}

// complete completes the open files and saves the state that covers them.
func (s *partitions) complete() error {
	for _, day := range slices.Sorted(maps.Keys(s.open)) {
		f, dir := s.open[day], filepath.Join(s.name, "day="+day)
		err := errors.Join(f.close(), atomicfile.MkdirAll(dir, 0o700))
		if err == nil {
			s.state.Files++
			err = atomicfile.Commit(f.file, filepath.Join(dir, fmt.Sprintf("%06d.parquet", s.state.Files)))
		}
		if err != nil {
			return err
		}
		delete(s.open, day)
		_ = f.file.Close() // it is on disk
	}
	s.size, s.since = 0, time.Time{}
	return s.save()
}

func (s *partitions) save() error {
	return writeState(filepath.Join(s.name, partitionState), &s.state, 0o600)
}

// End completes what was written unless the replay failed, and removes partial files.
func (s *partitions) End(_ context.Context, cause error) (err error) {
	if cause == nil && !s.since.IsZero() {
		err = s.failed(s.complete())
	}
	for _, f := range s.open {
		_ = f.file.Close()
		err = errors.Join(err, os.Remove(f.file.Name()))
	}
	return errors.Join(err, atomicfile.Unlock(s.lock))
}
