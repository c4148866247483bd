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
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// saveEvery is after how many bytes the state is saved while there is more to read.
	saveEvery = 16 << 20
	// savePause is how far apart the state is saved at least in pauses. Saving is some fsyncs, on a disk that may be the log's.
	savePause = time.Second
	// tailBytes is how much of the file's end the state knows by a digest.
	tailBytes = 4 << 10
)

// namePattern is what a replay's name looks like: that of a schema or of a part of a file's name.
var namePattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,59}$`)

// checkName says whether a replay may be called so.
func checkName(name string) error {
	if !namePattern.MatchString(name) {
		return invalid("name", "%q must begin with a-z and go on with up to 59 of a-z 0-9 _", name)
	}
	return nil
}

// NamedFile is a sink that adds to a file and can go on later: a file beside it, StatePath, says how far it is. Formats
// NDJSON and CSV only. reset empties the file first.
//
// A crash between writing events and saving the state leaves more in the file than the state says; the next run cuts it
// back to there, so that no line is lost and none stands there twice.
func NamedFile(path, name string, format Format, reset bool) (Sink, error) {
	if format == Parquet {
		return nil, invalid("format", "a Parquet file cannot be added to, so it can be neither followed nor resumed; give ndjson or csv, or leave out --name and --follow")
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	return &namedFile{path: path, reset: reset, state: fileState{Name: name, Format: format}}, nil
}

// StatePath is where NamedFile keeps how far it is.
func StatePath(path, name string) string { return path + "." + name + ".replay" }

// fileState is what stands there. Everything in the file up to Length is from before the places.
type fileState struct {
	Name   string `json:"name"`
	Format Format `json:"format"`
	Filter string `json:"filter"`
	Length int64  `json:"length"`
	// Tail is the SHA-256 of the last 4 KiB before Length, of all where that is less, in hex. Empty: unknown, or nothing is there.
	Tail   string              `json:"tail,omitempty"`
	Places []eventlog.Position `json:"places"`
}

type namedFile struct {
	path  string
	reset bool
	state fileState
	file  *os.File
	// locked says that the file is ours alone.
	locked bool
	enc    encoder

	length int64 // of the file, with what the encoder has let go of
	places map[int]eventlog.Position
	broken bool // a write failed: the state must not move any more

	saved   time.Time // when the state was saved last
	unsaved bool      // something was flushed since

	limit func(io.Writer) io.Writer // set by tests that fill the disk
}

func (s *namedFile) Begin(_ context.Context, _ topology.Log, f *Filter) (map[int]eventlog.Position, error) {
	flags := os.O_RDWR | os.O_CREATE
	if os.Geteuid() == 0 {
		flags |= syscall.O_NOFOLLOW // in a directory of others, a link could have root write anywhere
	}
	file, err := os.OpenFile(s.path, flags, 0o600) // codes are as good as money
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a link, and root adds to none: name the file that it leads to: %w", s.path, err)
	}
	if err != nil {
		return nil, err
	}
	s.file, s.locked = file, false
	if err := s.resume(f); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return maps.Clone(s.places), nil
}

func (s *namedFile) resume(f *Filter) error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return invalid("out", "%s is no regular file, so it cannot be gone on with; leave out --name", s.path)
	}
	// The kernel lets it go when its owner dies.
	if err := syscall.Flock(int(s.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("another process writes %s: %w; stop that one, or give another --out", s.path, err)
	}
	s.locked = true
	if err := s.tidy(); err != nil {
		return err
	}
	statePath := StatePath(s.path, s.state.Name)
	s.state.Filter = f.String()
	then, err := readState(statePath)
	switch {
	case s.reset, errors.Is(err, fs.ErrNotExist) && info.Size() == 0:
		then = s.state
	case errors.Is(err, fs.ErrNotExist):
		return invalid("out", "%s exists, and no %s beside it says how far it is; give another file, or --reset to begin it again", s.path, filepath.Base(statePath))
	case err != nil:
		return fmt.Errorf("%s does not say how far %s is: %w; begin again with --reset", statePath, s.path, err)
	case then.Format != s.state.Format:
		return invalid("format", "%s was begun as %s; give that, another --out, or --reset to begin it again", s.path, then.Format)
	case then.Filter != s.state.Filter:
		return filterChanged(s.path, then.Filter, s.state.Filter)
	case then.Length > info.Size():
		return fmt.Errorf("%s has %d bytes, and %d were written to it: somebody changed it; give another --out, or --reset to begin it again", s.path, info.Size(), then.Length)
	}
	if tail, err := s.tail(then.Length); err != nil {
		return err
	} else if then.Tail != "" && tail != then.Tail {
		return fmt.Errorf("%s does not hold what was written to it up to byte %d: somebody changed it, or a replay of another name did; give another --out, or --reset to begin it again", s.path, then.Length)
	}
	// Before the file is cut: with --reset the old state would else find a file too short.
	s.length, s.places = then.Length, map[int]eventlog.Position{}
	for _, at := range then.Places {
		s.places[at.Lane] = at
	}
	if err := s.save(); err != nil {
		return err
	}
	if err := s.file.Truncate(s.length); err != nil {
		return err
	}
	if _, err := s.file.Seek(s.length, io.SeekStart); err != nil {
		return err
	}
	w := io.Writer(s.file)
	if s.limit != nil {
		w = s.limit(w)
	}
	s.broken = false
	s.enc, err = newEncoder(s.state.Format, &lengthWriter{w, &s.length}, s.length > 0)
	return err
}

// tidy puts the file's name on disk, which a state may be about from now on, and removes what killed writers of the state
// left. The state lies beside the file, or beside a symbolic link to it.
func (s *namedFile) tidy() error {
	target, err := filepath.EvalSymlinks(s.path)
	if err != nil {
		return err
	}
	return errors.Join(atomicfile.SyncDir(filepath.Dir(target)), atomicfile.Sweep(StatePath(s.path, s.state.Name)))
}

// filterChanged refuses to mix what two filters let pass.
func filterChanged(what, then, now string) error {
	words := func(filter string) string {
		if filter == "" {
			return "no filter"
		}
		return filter
	}
	return invalid("name", "%s was begun with %s, not with %s; give the same filters (as absolute times), another name, or --reset to begin again", what, words(then), words(now))
}

func readState(path string) (s fileState, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	err = json.Unmarshal(raw, &s)
	return s, err
}

// lengthWriter counts what a file has grown by.
type lengthWriter struct {
	io.Writer
	length *int64
}

func (w *lengthWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	*w.length += int64(n)
	return n, err
}

func (s *namedFile) Write(_ context.Context, b *Batch) error {
	if err := s.enc.encode(b.Events); err != nil {
		return s.failed(err)
	}
	s.places[b.Lane] = b.To
	if s.length-s.state.Length < saveEvery {
		return nil
	}
	return s.checkpoint()
}

// Flush shows what was written, and saves the state unless that was done just now: see due.
func (s *namedFile) Flush(context.Context) error {
	if s.unsaved = true; time.Since(s.saved) >= savePause {
		return s.checkpoint()
	}
	if err := s.enc.flush(); err != nil {
		return s.failed(err)
	}
	return nil
}

// due is how long from now Flush has to be called again to save the state; 0 = it is saved.
func (s *namedFile) due() time.Duration {
	if !s.unsaved {
		return 0
	}
	return max(savePause-time.Since(s.saved), time.Millisecond)
}

// tail digests what comes before a length of the file.
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

// checkpoint makes what was written safe, then says so.
func (s *namedFile) checkpoint() error {
	if err := s.enc.flush(); err != nil {
		return s.failed(err)
	}
	if err := s.file.Sync(); err != nil {
		return s.failed(err)
	}
	if err := s.save(); err != nil {
		return s.failed(err)
	}
	s.saved, s.unsaved = time.Now(), false
	return nil
}

func (s *namedFile) failed(err error) error {
	s.broken = true
	return fmt.Errorf("%w; what was safe before stays: make room and run it again, it goes on there", writeError(s.path, err))
}

// save replaces the state. It gets the mode of the file that it is about.
func (s *namedFile) save() error {
	tail, err := s.tail(s.length)
	if err != nil {
		return err
	}
	s.state.Length, s.state.Tail, s.state.Places = s.length, tail, nil
	for _, lane := range slices.Sorted(maps.Keys(s.places)) {
		s.state.Places = append(s.state.Places, s.places[lane])
	}
	raw, err := json.Marshal(s.state)
	if err != nil {
		return err
	}
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	return atomicfile.Write(StatePath(s.path, s.state.Name), append(raw, '\n'), info.Mode().Perm())
}

// End keeps what was written, whatever the cause, unless it is the file itself.
func (s *namedFile) End(context.Context, error) (err error) {
	if !s.broken {
		err = s.checkpoint()
	}
	return errors.Join(err, s.close())
}

// close lets go of the lock first: a program that this process is just starting shares the open file for a moment, and
// would hold the lock as long.
func (s *namedFile) close() error {
	if s.locked {
		_ = syscall.Flock(int(s.file.Fd()), syscall.LOCK_UN) // Close does it, too, but for such a moment
	}
	return s.file.Close()
}
