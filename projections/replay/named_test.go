package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/golden"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// The state file has a format of its own.
func TestStateGolden(t *testing.T) {
	state := fileState{
		Version: stateVersion, Name: "daily", Format: CSV, Filter: "--campaign summer", Length: 4711, Tail: strings.Repeat("0f", 32),
		Places: []eventlog.Position{{Log: "0193a7b2-7000-7000-8000-000000000001", Lane: 0, Sequence: 12, Digest: strings.Repeat("a1", 16)},
			{Log: "0193a7b2-7000-7000-8000-000000000001", Lane: 3, Sequence: 9, Digest: strings.Repeat("b2", 16)}},
	}
	raw, err := json.Marshal(&state)
	streamtest.Must(t, err)
	golden.Bytes(t, "state.json", append(raw, '\n'))
	var got fileState
	if err := readState("testdata/state.json", &got, &got.Version); err != nil || !reflect.DeepEqual(got, state) {
		t.Errorf("decoded %+v, %v", got, err)
	}
}

// A followed file shows what arrives, but its state, which costs some fsyncs, is saved once a second at most.
func TestFollowedFileIsSavedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "all.ndjson")
		sink := named(t, path, NDJSON, false)
		ctx := t.Context()
		if _, err := sink.Begin(ctx, topology.Log{}, &Filter{}); err != nil {
			t.Fatal(err)
		}
		saves, saved := 0, int64(0)
		for i := range 100 { // in ten seconds
			e := Event{Position: Position{0, uint64(i + 1), 1}, Event: wire.Event{Type: wire.CouponVoided, Campaign: "c", At: 1}, Raw: []byte(`{"type":"coupon.voided"}`)}
			if err := errors.Join(sink.Write(ctx, &Batch{First: uint64(i + 1), Last: uint64(i + 1), Events: []Event{e}}), sink.Flush(ctx)); err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(path)
			if err != nil || bytes.Count(raw, []byte("\n")) != i+1 {
				t.Fatalf("%d events are in the file after %d, %v", bytes.Count(raw, []byte("\n")), i+1, err)
			}
			var state fileState
			streamtest.Must(t, readState(StatePath(path, "daily"), &state, &state.Version))
			if state.Length != saved {
				saves, saved = saves+1, state.Length
			}
			<-time.After(100 * time.Millisecond)
		}
		if saves != 10 {
			t.Errorf("saved %d times in ten seconds", saves)
		}
		streamtest.Must(t, sink.End(ctx, nil))
		var state fileState
		if err := readState(StatePath(path, "daily"), &state, &state.Version); err != nil || state.Length <= saved {
			t.Errorf("the last events were not saved: %+v, %v", state, err)
		}
	})
}

func named(t *testing.T, path string, format Format, reset bool) *namedFile {
	t.Helper()
	s, err := NamedFile(path, "daily", format, reset)
	streamtest.Must(t, err)
	return s.(*namedFile)
}

// claimOnce writes something new to both lanes, campaigns the first time.
func (r *rig) claimOnce(i int) {
	r.T.Helper()
	for _, c := range campaigns {
		if i == 1 {
			r.create(c, "")
		}
		r.claim(c, fmt.Sprintf("customer-%d", i), fmt.Sprintf("friend-%d", i))
	}
}

// Killed at any moment, it goes on without losing or doubling a line. A kill leaves the file as it is at that moment
// and the state as it was last saved.
func TestNamedFileKilled(t *testing.T) {
	r := newRig(t)
	for i := range 6 {
		r.claimOnce(i + 1)
	}
	for kill := range 5 {
		path := filepath.Join(t.TempDir(), "out")
		r.run(named(t, path, NDJSON, false), Options{Filter: Filter{}}) // a first run, to have a state
		state, err := os.ReadFile(StatePath(path, "daily"))
		streamtest.Must(t, err)
		r.claimOnce(100 + kill)
		crashed := errors.New("killed")
		writes := 0
		sink := named(t, path, NDJSON, false)
		_, err = r.try(after{sink, func() error {
			_ = sink.enc.flush()
			if writes++; writes > kill { // as a kill would: what was written is in the file, the state is the old one
				sink.broken = true
				return crashed
			}
			return nil
		}}, Options{Limits: fill.Limits{Lines: 1}})
		if err != nil && !errors.Is(err, crashed) {
			t.Fatal(err)
		}
		if err != nil {
			if now, _ := os.ReadFile(StatePath(path, "daily")); !bytes.Equal(now, state) {
				t.Fatalf("the state moved: %s", now)
			}
		}
		r.run(named(t, path, NDJSON, false), Options{})
		equalRows(t, fmt.Sprint("killed at write ", kill), jsonRows(t, path), r.naiveRows())
	}
}

// after is a sink that does something when it has written, and fails if that does.
type after struct {
	Sink
	then func() error
}

func (a after) Write(ctx context.Context, b *Batch) error {
	if err := a.Sink.Write(ctx, b); err != nil {
		return err
	}
	return a.then()
}

// A disk that fills up costs nothing but time.
func TestNamedFileFullDisk(t *testing.T) {
	r := newRig(t)
	r.work()
	var whole bytes.Buffer
	r.run(Stream(&whole, CSV), Options{})
	for room := 0; room < whole.Len(); room += 1999 {
		path := filepath.Join(t.TempDir(), "out")
		sink := named(t, path, CSV, false)
		sink.limit = func(w io.Writer) io.Writer { return &full{w, room} }
		if _, err := r.try(sink, Options{Limits: fill.Limits{Lines: 3}}); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "it continues there") {
			t.Fatalf("room for %d: %v", room, err)
		}
		r.run(named(t, path, CSV, false), Options{})
		if got, _ := os.ReadFile(path); string(got) != whole.String() {
			t.Errorf("room for %d: got\n%s", room, got)
		}
	}
}

// What a named file cannot go on with is refused with what to do; the file stays as it is.
func TestNamedFileRefuses(t *testing.T) {
	r := newRig(t)
	r.work()
	for name, c := range map[string]struct {
		spoil  func(path string)
		format Format
		filter Filter
		want   string
	}{
		"no state":     {func(path string) { _ = os.Remove(StatePath(path, "daily")) }, NDJSON, Filter{}, "--reset"},
		"broken state": {func(path string) { _ = os.WriteFile(StatePath(path, "daily"), []byte("{"), 0o600) }, NDJSON, Filter{}, "--reset"},
		"a newer state": {func(path string) {
			raw, _ := os.ReadFile(StatePath(path, "daily"))
			_ = os.WriteFile(StatePath(path, "daily"), bytes.Replace(raw, []byte(`"version":1`), []byte(`"version":2`), 1), 0o600)
		}, NDJSON, Filter{}, "format 2, and this program reads format 1"},
		"shorter": {func(path string) { _ = os.Truncate(path, 5) }, NDJSON, Filter{}, "the file was changed"},
		"overwritten by another": {func(path string) {
			raw, _ := os.ReadFile(path)
			_ = os.WriteFile(path, bytes.Repeat([]byte("x"), len(raw)+1), 0o600)
		}, NDJSON, Filter{}, "the file was changed"},
		"a mask":         {func(string) {}, NDJSON, Filter{Mask: NewMask([32]byte{1}, true, false)}, "--mask-codes key "},
		"another format": {func(string) {}, CSV, Filter{}, "was started as ndjson"},
		"another filter": {func(string) {}, NDJSON, Filter{Types: []wire.EventType{wire.CouponVoided}}, "started with no filter, not with --type coupon.voided"},
		"another log": {func(path string) {
			raw, _ := os.ReadFile(StatePath(path, "daily"))
			_ = os.WriteFile(StatePath(path, "daily"), bytes.ReplaceAll(raw, []byte(r.Log.UUID), []byte("other")), 0o600)
		}, NDJSON, Filter{}, "restore that log"},
		"ahead of the log": {func(path string) {
			raw, _ := os.ReadFile(StatePath(path, "daily"))
			_ = os.WriteFile(StatePath(path, "daily"), bytes.Replace(raw, []byte(`"sequence":`), []byte(`"sequence":9`), 1), 0o600)
		}, NDJSON, Filter{}, "start again with --reset"},
	} {
		path := filepath.Join(t.TempDir(), "out")
		r.run(named(t, path, NDJSON, false), Options{})
		c.spoil(path)
		before, _ := os.ReadFile(path)
		_, err := r.try(named(t, path, c.format, false), Options{Filter: c.filter})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
			t.Errorf("%s: the file changed", name)
		}
	}
	path := filepath.Join(t.TempDir(), "out")
	first := named(t, path, NDJSON, false)
	if _, err := first.Begin(t.Context(), r.Log, &Filter{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.try(named(t, path, NDJSON, false), Options{}); err == nil || !strings.Contains(err.Error(), "another process writes") {
		t.Errorf("two at once: %v", err)
	}
	streamtest.Must(t, first.End(t.Context(), nil))
	if m, s := mode(t, path), mode(t, StatePath(path, "daily")); m != 0o600 || s != 0o600 { // events hold codes and customers
		t.Errorf("the files have modes %v and %v", m, s)
	}
	if _, err := NamedFile("x", "daily", Parquet, false); err == nil || !strings.Contains(err.Error(), "give ndjson or csv") {
		t.Errorf("Parquet: %v", err)
	}
	if _, err := NamedFile("x", "Not a name", CSV, false); err == nil || !strings.Contains(err.Error(), "a-z") {
		t.Errorf("name: %v", err)
	}
}

// A resumed replay of a customer still knows which coupons are theirs: the redemption does not name them.
func TestNamedFileOfACustomer(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(t.TempDir(), "out")
	c := campaigns[0]
	r.create(c, "")
	codes := r.claim(c, "ann", "bob")
	f := Filter{Customer: "bob"}
	r.run(named(t, path, NDJSON, false), Options{Filter: f})
	r.redeem(c, codes[0], "of ann")
	r.redeem(c, codes[1], "of bob")
	r.run(named(t, path, NDJSON, false), Options{Filter: f})
	r.run(named(t, path, NDJSON, false), Options{Filter: f})
	got, err := os.ReadFile(path)
	if err != nil || strings.Count(string(got), "\n") != 2 || !strings.Contains(string(got), "of bob") {
		t.Errorf("%s, %v", got, err)
	}
}

// TestRootFollowsNoLink: in a directory of others, a link under the name of an export could have root write anywhere.
func TestRootFollowsNoLink(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root refuses links
	}
	r := newRig(t)
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "all.csv")
	streamtest.Must(t, os.Symlink(victim, path))
	if _, err := r.try(named(t, path, CSV, false), Options{}); err == nil || !strings.Contains(err.Error(), "is a symbolic link") {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(victim); err == nil {
		t.Error("root wrote where the link leads")
	}
}
