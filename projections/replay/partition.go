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
	"time"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/room"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// partitionBytes, of lines, is after how much the open files of a data set are completed, and partitionAge after how long.
	partitionBytes = 256 << 20
	partitionAge   = 5 * time.Minute
	// partitionState is the state file of a data set, and partitionLock the file that its writer locks.
	partitionState, partitionLock = ".scrip-replay", ".scrip-replay.lock"
	// partialFiles are those that are not complete.
	partialFiles = ".*.partial"
)

// Partitions is a sink that adds to a data set of Parquet files: DIR/day=2026-11-26/LANE-FIRST-LAST.parquet has the events of
// one lane and one day (UTC) in its messages FIRST to LAST. Each file is whole, or not there.
//
// The state file is written after the files that it covers. What a killed run left, partial files and whole ones that the state
// does not cover, is removed by the next run, which writes these events again: none is lost, and none is there twice.
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
	open  map[partition]*partitionFile
	size  int       // of the lines in open files
	since time.Time // of the first change that is not saved; zero = there is none
}

// partitionedState is the content of the state file.
type partitionedState struct {
	Version int                       `json:"version"`
	Filter  string                    `json:"filter"`
	Places  map[int]eventlog.Position `json:"places"`
	// Through are by lane the last messages that files have.
	Through map[int]uint64 `json:"through"`
}

type partition struct {
	day  string
	lane int
}

type partitionFile struct {
	*parquetEncoder
	file        *os.File
	first, last uint64
}

func (s *partitions) Begin(_ context.Context, _ topology.Log, f *Filter) (map[int]eventlog.Position, error) {
	if err := atomicfile.MkdirAll(s.name, 0o700); err != nil { // it holds codes
		return nil, invalid("out", "%v; give a directory", err)
	}
	lock, err := atomicfile.Lock(filepath.Join(s.name, partitionLock))
	if err != nil {
		return nil, fmt.Errorf("%w; stop the other replay to this directory, or give another --out", err)
	}
	s.lock, s.open, s.size, s.since, s.broken = lock, map[partition]*partitionFile{}, 0, time.Time{}, false
	if err := s.resume(f.String()); err != nil {
		return nil, errors.Join(err, atomicfile.Unlock(s.lock))
	}
	return maps.Clone(s.state.Places), nil
}

// resume reads the state, and removes what it does not cover.
func (s *partitions) resume(filter string) error {
	s.state = partitionedState{Version: stateVersion, Filter: filter, Places: map[int]eventlog.Position{}, Through: map[int]uint64{}}
	left, _ := filepath.Glob(filepath.Join(s.name, partialFiles)) // well formed, as the other one
	files, _ := filepath.Glob(filepath.Join(s.name, "day=*", "*-*-*.parquet"))
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
		var lane int
		var first, last uint64
		if n, _ := fmt.Sscanf(filepath.Base(path), "%d-%d-%d.parquet", &lane, &first, &last); n == 3 && last > s.state.Through[lane] {
			left = append(left, path)
		}
	}
	for _, path := range left {
		err = errors.Join(err, atomicfile.Remove(path))
	}
	return err
}

// Write adds a batch to the files of its lane. One that spans midnight completes them: the position of the batch then covers
// both days.
func (s *partitions) Write(_ context.Context, b *Batch) error {
	for rest := b.Events; len(rest) > 0; {
		day := rest[0].day()
		n := slices.IndexFunc(rest, func(e Event) bool { return e.day() != day })
		if n < 0 {
			n = len(rest)
		}
		if err := s.add(partition{day, b.Lane}, rest[:n]); err != nil {
			return s.failed(err)
		}
		rest = rest[n:]
	}
	if s.since.IsZero() {
		s.since = time.Now()
	}
	s.state.Places[b.To.Lane], s.state.Through[b.Lane] = b.To, max(b.Last, s.state.Through[b.Lane])
	days := 0
	for p := range s.open {
		if p.lane == b.Lane {
			days++
		}
	}
	if days > 1 || s.size >= s.bytes || time.Since(s.since) >= s.age {
		return s.failed(s.complete())
	}
	return nil
}

func (e *Event) day() string { return e.At.Time().UTC().Format(time.DateOnly) }

func (s *partitions) add(p partition, events []Event) (err error) {
	f := s.open[p]
	if f == nil {
		f = &partitionFile{first: events[0].Position.Sequence}
		if f.file, err = os.CreateTemp(s.name, partialFiles); err != nil {
			return err
		}
		s.open[p] = f
		w := s.disk.Writer(f.file)
		if s.limit != nil {
			w = s.limit(w)
		}
		f.parquetEncoder = newParquet(w)
	}
	f.last = events[len(events)-1].Position.Sequence
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
	for p, f := range s.open {
		dir := filepath.Join(s.name, "day="+p.day)
		err := errors.Join(f.close(), atomicfile.MkdirAll(dir, 0o700))
		if err == nil {
			err = atomicfile.Commit(f.file, filepath.Join(dir, fmt.Sprintf("%d-%d-%d.parquet", p.lane, f.first, f.last)))
		}
		if err != nil {
			return err
		}
		delete(s.open, p)
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
