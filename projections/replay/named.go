package replay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/room"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// saveEvery is the number of bytes after which the state is saved while there is more to read.
	saveEvery = 16 << 20
	// savePause is the minimum time between saves when no more is to be read. A save takes several fsyncs, on a disk
	// that may be the log's.
	savePause = time.Second
	// tailBytes is the length of the file's end whose digest is in the state.
	tailBytes = 4 << 10
)

// namePattern matches a replay's name, which is the name of a schema or part of a file name.
var namePattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,59}$`)

// checkName validates the name of a replay.
func checkName(name string) error {
	if !namePattern.MatchString(name) {
		return invalid("name", "%q must start with a-z, followed by up to 59 of a-z 0-9 _", name)
	}
	return nil
}

// NamedFile is a sink that appends to a file and can continue later: the state file at StatePath has its position.
// Formats NDJSON and CSV only. reset empties the file first.
//
// After a crash between writing events and saving the state, the file is longer than the state's length; the next run
// truncates it to that length, so that no line is lost or repeated.
func NamedFile(path, name string, format Format, reset bool) (Sink, error) {
	if format == Parquet {
		return nil, invalid("format", "a Parquet file cannot be added to, so it can be neither followed nor resumed; give ndjson or csv, or leave out --name and --follow")
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	const remedy = "; what was saved before remains: make room and run it again, it continues there"
	return &namedFile{output: output{format: format, name: path, remedy: remedy, disk: room.At(filepath.Dir(path))}, reset: reset, state: fileState{Version: stateVersion, Name: name, Format: format}}, nil
}

// StatePath returns the path of NamedFile's state file.
func StatePath(path, name string) string { return path + "." + name + ".replay" }

// stateVersion is the format of state files. A file of a higher one is refused.
const stateVersion = 1

// fileState is the content of the state file. Everything in the file up to Length is from events up to the positions.
type fileState struct {
	Version int `json:"version"`

	Name   string `json:"name"`
	Format Format `json:"format"`
	Filter string `json:"filter"`
	Length int64  `json:"length"`
	// Tail is the SHA-256 of the last 4 KiB before Length, of all if there is less, in hex. Empty: Length is 0.
	Tail   string              `json:"tail,omitempty"`
	Places []eventlog.Position `json:"places"`
}

type namedFile struct {
	output
	reset  bool
	state  fileState // as saved
	file   *os.File
	locked bool // this process holds the file's lock

	positions map[int]eventlog.Position
	saved     time.Time // time of the last save
	unsaved   bool      // something was written since
}

func (s *namedFile) Begin(_ context.Context, _ topology.Log, f *Filter) (map[int]eventlog.Position, error) {
	flags := os.O_RDWR | os.O_CREATE
	if os.Geteuid() == 0 {
		flags |= syscall.O_NOFOLLOW // in another user's directory, a link could make root write anywhere
	}
	file, err := os.OpenFile(s.name, flags, 0o600) // it holds codes
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link, and root does not follow it: give the file that it points to: %w", s.name, err)
	}
	if err != nil {
		return nil, err
	}
	s.file, s.locked = file, false
	if err := s.resume(f); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return maps.Clone(s.positions), nil
}

// resume locks the file and truncates it to what the state covers.
func (s *namedFile) resume(f *Filter) error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return invalid("out", "%s is not a regular file, so a replay cannot continue in it; leave out --name", s.name)
	}
	// The kernel releases the lock when its owner dies.
	if !lockFile(s.file) {
		return fmt.Errorf("another process writes %s; stop it, or give another --out", s.name)
	}
	s.locked = true
	if err := s.tidy(); err != nil {
		return err
	}
	statePath := StatePath(s.name, s.state.Name)
	s.state.Filter = f.String()
	var then fileState
	err = readState(statePath, &then, &then.Version)
	switch {
	case s.reset, errors.Is(err, fs.ErrNotExist) && info.Size() == 0:
		then = s.state
	case errors.Is(err, fs.ErrNotExist):
		return invalid("out", "%s exists without its state file %s; give another file, or --reset to start again", s.name, filepath.Base(statePath))
	case err != nil:
		return fmt.Errorf("%s is not a valid state of %s: %w; or start again with --reset", statePath, s.name, err)
	case then.Format != s.state.Format:
		return invalid("format", "%s was started as %s; give that format, another --out, or --reset to start again", s.name, then.Format)
	case then.Filter != s.state.Filter:
		return filterChanged(s.name, then.Filter, s.state.Filter)
	case then.Length > info.Size():
		return fmt.Errorf("%s has %d bytes, but a replay wrote %d: the file was changed; give another --out, or --reset to start again", s.name, info.Size(), then.Length)
	}
	if tail, err := s.tail(then.Length); err != nil {
		return err
	} else if tail != then.Tail {
		return fmt.Errorf("%s does not end, at byte %d, with what a replay wrote: the file was changed, possibly by a replay of another name; give another --out, or --reset to start again", s.name, then.Length)
	}
	s.positions = map[int]eventlog.Position{}
	for _, at := range then.Places {
		s.positions[at.Lane] = at
	}
	// Before the file is truncated: otherwise, with --reset, the old state would be longer than the file.
	if err := s.save(then.Length); err != nil {
		return err
	}
	if err := s.file.Truncate(then.Length); err != nil {
		return err
	}
	if _, err := s.file.Seek(then.Length, io.SeekStart); err != nil {
		return err
	}
	return s.open(s.file, then.Length > 0)
}

// tidy makes the file's name durable by an fsync of its directory, before a state refers to it, and removes temporary
// state files that killed processes left. The state file is in the directory of the file, or of a symbolic link to it.
func (s *namedFile) tidy() error {
	target, err := filepath.EvalSymlinks(s.name)
	if err != nil {
		return err
	}
	return errors.Join(atomicfile.SyncDir(filepath.Dir(target)), atomicfile.Sweep(StatePath(s.name, s.state.Name)))
}

// filterChanged is the error of a replay that continues with another filter.
func filterChanged(what, then, now string) error {
	words := func(filter string) string {
		if filter == "" {
			return "no filter"
		}
		return filter
	}
	return invalid("name", "%s was started with %s, not with %s; give the same filters (as absolute times), another name, or --reset to start again", what, words(then), words(now))
}

// readState reads a state file into state, whose field Version is at version.
func readState(path string, state any, version *int) error {
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, state)
	}
	if err == nil && *version != stateVersion {
		err = fmt.Errorf("it has format %d, and this program reads format %d: use the scrip that wrote it", *version, stateVersion)
	}
	return err
}

// writeState replaces a state file.
func writeState(path string, state any, mode fs.FileMode) error {
	raw, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, append(raw, '\n'), mode)
}

func (s *namedFile) Write(ctx context.Context, b *Batch) error {
	if err := s.output.Write(ctx, b); err != nil {
		return err
	}
	s.positions[b.To.Lane], s.unsaved = b.To, true
	if at, err := s.length(); err != nil || at-s.state.Length < saveEvery {
		return s.failed(err)
	}
	return s.failed(s.checkpoint())
}

// Flush writes buffered events to the file, and saves the state unless that was done less than savePause ago.
func (s *namedFile) Flush(ctx context.Context) error {
	if s.unsaved && time.Since(s.saved) >= savePause {
		return s.failed(s.checkpoint())
	}
	return s.output.Flush(ctx)
}

// length returns how many bytes are in the file; those that the encoder holds come in addition.
func (s *namedFile) length() (int64, error) { return s.file.Seek(0, io.SeekCurrent) }

// tail returns the digest of the last tailBytes before length.
func (s *namedFile) tail(length int64) (string, error) {
	if length == 0 {
		return "", nil
	}
	sum := sha256.New()
	from := max(0, length-tailBytes)
	if _, err := io.Copy(sum, io.NewSectionReader(s.file, from, length-from)); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// checkpoint syncs the file, then saves the state.
func (s *namedFile) checkpoint() error {
	if err := s.enc.flush(); err != nil {
		return err
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	length, err := s.length()
	if err == nil {
		err = s.save(length)
	}
	if err == nil {
		s.saved, s.unsaved = time.Now(), false
	}
	return err
}

// save replaces the state file, with the mode of the events file.
func (s *namedFile) save(length int64) error {
	tail, err := s.tail(length)
	if err != nil {
		return err
	}
	s.state.Length, s.state.Tail, s.state.Places = length, tail, nil
	for _, lane := range slices.Sorted(maps.Keys(s.positions)) {
		s.state.Places = append(s.state.Places, s.positions[lane])
	}
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	return writeState(StatePath(s.name, s.state.Name), &s.state, info.Mode().Perm())
}

// End saves what was written, whatever the cause, unless writing the file failed.
func (s *namedFile) End(context.Context, error) (err error) {
	if !s.broken {
		err = s.failed(s.checkpoint())
	}
	return errors.Join(err, s.close())
}

// close releases the lock first: a child process that is being started shares the open file for a moment, and would
// hold the lock as long.
func (s *namedFile) close() error {
	if s.locked {
		_ = syscall.Flock(int(s.file.Fd()), syscall.LOCK_UN) // Close alone would release it only after the child's exec
	}
	return s.file.Close()
}
