package replay

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/streams/room"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// Only the two top-level fields of a rejected command are renamed, wherever those words occur.
func TestRejectedCommandsKeepTheirText(t *testing.T) {
	e := Event{Position: Position{1, 2, 3}, Event: wire.Event{Type: wire.CommandRejected}, Raw: []byte(`{"type":"command.rejected","sequence":7,"reason":"line","x":{"line":[1,{"sequence":2}],"sequence":3},"line":4,"payload":"{\"line\":\"sequence\",\\"}`)}
	got := string(e.AppendPositioned(nil))
	want := `{"lane":1,"sequence":2,"line":3,"type":"command.rejected","command_sequence":7,"reason":"line","x":{"line":[1,{"sequence":2}],"sequence":3},"command_line":4,"payload":"{\"line\":\"sequence\",\\"}`
	if got != want || !json.Valid([]byte(got)) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// full is a disk with room for so many bytes.
type full struct {
	io.Writer
	room int
}

func (f *full) Write(p []byte) (int, error) {
	if len(p) > f.room {
		n, _ := f.Writer.Write(p[:f.room])
		f.room = 0
		return n, syscall.ENOSPC
	}
	f.room -= len(p)
	return f.Writer.Write(p)
}

// A full disk, at whatever byte: a clear error, and nothing left, neither of the file nor beside it. What had its name
// before keeps it.
func TestFullDisk(t *testing.T) {
	r := newRig(t)
	r.work()
	for _, format := range []Format{NDJSON, CSV, Parquet} {
		for _, left := range []int{0, 3, 1000} {
			for _, before := range []string{"", "what was there"} {
				dir := t.TempDir()
				path := filepath.Join(dir, "out")
				if before != "" {
					streamtest.Must(t, os.WriteFile(path, []byte(before), 0o600))
				}
				sink := File(path, format).(*fileSink)
				sink.limit = func(w io.Writer) io.Writer { return &full{w, left} }
				_, err := r.try(sink, Options{Limits: fill.Limits{Lines: 1}})
				if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "make room") {
					t.Errorf("%s, room for %d: error %v", format, left, err)
				}
				there, _ := os.ReadFile(path)
				if names, _ := os.ReadDir(dir); string(there) != before || len(names) > 1 || before == "" && len(names) != 0 {
					t.Errorf("%s, room for %d: left %v, %q", format, left, names, there)
				}
			}
		}
	}
	// What the disk has left is the log's.
	dir := t.TempDir()
	sink := File(filepath.Join(dir, "out"), NDJSON).(*fileSink)
	sink.disk = room.Measured(dir, func(string) (room.Space, error) { return room.Space{Free: 1000, Total: 1 << 30}, nil })
	_, err := r.try(sink, Options{})
	if names, _ := os.ReadDir(dir); !errors.Is(err, room.ErrFull) || len(names) > 0 {
		t.Errorf("a disk at its reserve: %v, left %v", err, names)
	}
	// A device stays what it is, and has no reserve.
	_, err = r.try(File("/dev/full", NDJSON), Options{})
	if info, serr := os.Stat("/dev/full"); !errors.Is(err, syscall.ENOSPC) || serr != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("/dev/full: %v, %v", err, serr)
	}
}

// While it is written the name is free; an export that is stopped leaves nothing.
func TestAFileIsCompleteOrMissing(t *testing.T) {
	r := newRig(t)
	r.work()
	dir := t.TempDir()
	path := filepath.Join(dir, "out.ndjson")
	link := filepath.Join(dir, "link")
	streamtest.Must(t, os.Symlink(path, link))
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Run(ctx, r.JS, r.Log, File(path, NDJSON), Options{Limits: fill.Limits{Lines: 1}, Logger: loggerTo(&streamtest.Buffer{}), Progress: func(p Progress) {
		if _, err := os.Stat(path); err == nil {
			t.Error("half a file has the name")
		}
		if p.Messages > 2 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "stopped before the end") {
		t.Errorf("stopped: %v", err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("left %v", names)
	}
	streamtest.Must(t, os.WriteFile(path, nil, 0o640))
	r.run(File(link, NDJSON), Options{})
	// Events hold codes and customers: a new file is for its owner alone.
	private := filepath.Join(dir, "private")
	if r.run(File(private, NDJSON), Options{}); mode(t, private) != 0o600 {
		t.Errorf("%s has mode %v", private, mode(t, private))
	}
	info, err := os.Lstat(link)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link became %v, %v", info, err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() == 0 || info.Mode().Perm() != 0o640 {
		t.Errorf("the target of the link: %v, %v", info, err)
	}
}

// What a killed replay left beside its file is removed by the next one to the same file. While one writes, another is refused.
func TestLeftoversOfKilledReplays(t *testing.T) {
	r := newRig(t)
	r.work()
	dir := t.TempDir()
	path := filepath.Join(dir, "out.ndjson")
	for _, name := range []string{".out.ndjson.partial", ".other.ndjson.partial"} {
		streamtest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600))
	}
	var second error
	_, err := Run(t.Context(), r.JS, r.Log, File(path, NDJSON), Options{Limits: fill.Limits{Lines: 1}, Logger: loggerTo(&streamtest.Buffer{}), Progress: func(Progress) {
		if second == nil {
			_, second = r.try(File(path, NDJSON), Options{})
		}
	}})
	if err != nil || second == nil || !strings.Contains(second.Error(), "another replay writes") {
		t.Errorf("%v; the second one: %v", err, second)
	}
	if got := listed(t, dir); !slices.Equal(got, []string{".other.ndjson.partial", "out.ndjson"}) {
		t.Errorf("left %v", got)
	}
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	streamtest.Must(t, err)
	return info.Mode().Perm()
}

// listed are the names in a directory, in order.
func listed(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	streamtest.Must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWrongFiles(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct{ path, want string }{
		{t.TempDir(), "is a directory"},
		{filepath.Join(t.TempDir(), "no", "file"), "create it first"},
	} {
		_, err := r.try(File(c.path, NDJSON), Options{})
		var wrong *InvalidError
		if !errors.As(err, &wrong) || wrong.Field != "out" || !strings.Contains(wrong.Problem, c.want) {
			t.Errorf("%s: %v", c.path, err)
		}
	}
}
