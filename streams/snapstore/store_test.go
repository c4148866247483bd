package snapstore_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/snapstore"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// nats.go leaves this goroutine when a connection closes right after an object was put.
func TestMain(m *testing.M) {
	streamtest.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}

const (
	name     = "lane-1"
	format   = 7
	partSize = 300 << 10 // more than a chunk, so that parts have several
)

var key = seal.Derive([32]byte{1}, "u")

// rig is a store on a server of its own.
type rig struct {
	t      *testing.T
	js     jetstream.JetStream
	obj    jetstream.ObjectStore
	kv     jetstream.KeyValue
	store  *snapstore.Store
	logged *bytes.Buffer
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOn(t, streamtest.Start(t))
}

func newRigOn(t *testing.T, server *streamtest.Server) *rig {
	t.Helper()
	js := server.JetStream(t)
	if _, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 1, KeyFingerprint: "k", CmdMaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	obj, err1 := js.ObjectStore(t.Context(), topology.SnapBucket)
	kv, err2 := js.KeyValue(t.Context(), topology.StateBucket)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, js: js, obj: obj, kv: kv, logged: &bytes.Buffer{}}
	r.store = r.open(0)
	return r
}

// open opens the store again, as a restarted process would.
func (r *rig) open(orphanAge time.Duration) *snapstore.Store {
	r.t.Helper()
	s, err := snapstore.New(r.t.Context(), r.js, snapstore.Options{
		Seal: key, Pause: time.Millisecond, Logger: slog.New(slog.NewTextHandler(r.logged, nil)),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	s.Tune(partSize, orphanAge)
	return s
}

// content of the snapshot at a sequence: three parts and a bit.
func content(seq uint64) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%09d\n", seq), 3*partSize/10+1)
}

func meta(seq uint64) snapstore.Meta {
	return snapstore.Meta{
		Format: format, Note: json.RawMessage(`{"k":1}`),
		Position: eventlog.Position{Log: "u", Lane: 1, Sequence: seq, Digest: "d"},
	}
}

func (r *rig) save(seq uint64) {
	r.t.Helper()
	err := r.store.Save(r.t.Context(), name, meta(seq), func(w io.Writer) error {
		for b := range bytes.Lines(content(seq)) { // small writes
			if _, err := w.Write(b); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func anyOf(snapstore.Meta) error { return nil }

func drain(from io.Reader) error { _, err := io.Copy(io.Discard, from); return err }

// loads loads and checks that it is the snapshot at that sequence, 0 = none.
func (r *rig) loads(want uint64) {
	r.t.Helper()
	var got []byte
	m, ok, err := r.store.Load(r.t.Context(), name,
		func(m snapstore.Meta) error {
			if m.Format > format {
				return fmt.Errorf("format %d", m.Format)
			}
			return nil
		},
		func(in io.Reader) (err error) { got, err = io.ReadAll(in); return err })
	switch {
	case err != nil:
		r.t.Fatal(err)
	case ok != (want != 0):
		r.t.Errorf("loaded %t, want the one at %d; log: %s", ok, want, r.logged)
	case !ok:
	case m.Position != meta(want).Position || string(m.Note) != `{"k":1}`:
		r.t.Errorf("loaded %+v, want the one at %d", m, want)
	case !bytes.Equal(got, content(want)):
		r.t.Errorf("content of %d differs: %d bytes, want %d", want, len(got), len(content(want)))
	}
}

// objects lists the objects that are there, by name.
func (r *rig) objects() (names []string) {
	r.t.Helper()
	list, err := r.obj.List(r.t.Context(), jetstream.ListObjectsShowDeleted())
	if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
		r.t.Fatal(err)
	}
	for _, o := range list {
		names = append(names, o.Name)
	}
	return names
}

// find gives the object of the snapshot at a sequence whose name ends so.
func (r *rig) find(seq uint64, suffix string) string {
	r.t.Helper()
	for _, n := range r.objects() {
		if strings.HasPrefix(n, fmt.Sprintf("snap/%s/%d.", name, seq)) && strings.HasSuffix(n, suffix) {
			return n
		}
	}
	r.t.Fatalf("no object %q of the snapshot at %d among %q", suffix, seq, r.objects())
	return ""
}

func (r *rig) chunks() uint64 {
	r.t.Helper()
	s, err := r.js.Stream(r.t.Context(), "OBJ_"+topology.SnapBucket)
	if err != nil {
		r.t.Fatal(err)
	}
	info, err := s.Info(r.t.Context(), jetstream.WithSubjectFilter("$O."+topology.SnapBucket+".C.*"))
	if err != nil {
		r.t.Fatal(err)
	}
	var n uint64
	for _, c := range info.State.Subjects {
		n += c
	}
	return n
}

func TestNewestOfTheLastTwo(t *testing.T) {
	r := newRig(t)
	r.loads(0)
	for seq := uint64(10); seq <= 50; seq += 10 {
		r.save(seq)
		r.loads(seq)
	}
	// Of two snapshots there are four parts and a manifest each, and nothing of the others, markers included.
	if n := r.objects(); len(n) != 10 {
		t.Errorf("%d objects: %q", len(n), n)
	}
	if n := r.chunks(); n != 2*(3*2+1+1) {
		t.Errorf("%d chunks", n)
	}
	r.store = r.open(0)
	r.loads(50)
	if r.logged.Len() != 0 {
		t.Errorf("logged: %s", r.logged)
	}
}

// Whatever is wrong with the newest snapshot costs the way from the one before it; with both, the whole way.
func TestDamagedSnapshotsAreSkipped(t *testing.T) {
	remove := func(r *rig, object string) {
		if err := r.obj.Delete(r.t.Context(), object); err != nil {
			r.t.Fatal(err)
		}
	}
	replace := func(r *rig, object string, b []byte) {
		if _, err := r.obj.PutBytes(r.t.Context(), object, b); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name   string
		damage func(r *rig, seq uint64)
	}{
		{"part missing", func(r *rig, seq uint64) { remove(r, r.find(seq, "/00001")) }},
		{"part truncated", func(r *rig, seq uint64) { replace(r, r.find(seq, "/00001"), content(seq)[partSize:2*partSize-1]) }},
		{"part altered", func(r *rig, seq uint64) { replace(r, r.find(seq, "/00002"), make([]byte, partSize)) }},
		{"chunks missing", func(r *rig, seq uint64) { r.purgeChunks(r.find(seq, "/00001"), 0) }},
		{"last chunk left", func(r *rig, seq uint64) { r.purgeChunks(r.find(seq, "/00001"), 1) }},
		{"manifest missing", func(r *rig, seq uint64) { remove(r, r.find(seq, "/manifest")) }},
		{"seal of another", (*rig).forge},
		{"manifest corrupt", func(r *rig, seq uint64) { replace(r, r.find(seq, "/manifest"), []byte(`{"version":1,"meta":{}}`)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			r.save(10)
			r.save(20)
			tc.damage(r, 20)
			r.loads(10)
			if lines := strings.Count(r.logged.String(), "\n"); lines != 1 || !strings.Contains(r.logged.String(), "/20.") {
				t.Errorf("logged: %s", r.logged)
			}
			tc.damage(r, 10)
			r.loads(0)
			r.save(30)
			r.loads(30)
		})
	}
}

// forge gives the pointer to a snapshot a seal that is not valid, as a program without the key would.
func (r *rig) forge(seq uint64) {
	r.t.Helper()
	entry, err := r.kv.Get(r.t.Context(), "snap."+name)
	if err != nil {
		r.t.Fatal(err)
	}
	before, at, found := strings.Cut(string(entry.Value()), fmt.Sprintf("/%d.", seq))
	forged := strings.Replace(at, `"seal":"`, `"seal":"x`, 1)
	if _, err := r.kv.PutString(r.t.Context(), "snap."+name, before+fmt.Sprintf("/%d.", seq)+forged); err != nil || !found || forged == at {
		r.t.Fatalf("%s: %v", entry.Value(), err)
	}
}

func (r *rig) purgeChunks(object string, keep uint64) {
	r.t.Helper()
	info, err := r.obj.GetInfo(r.t.Context(), object)
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := r.js.Stream(r.t.Context(), "OBJ_"+topology.SnapBucket)
	if err != nil {
		r.t.Fatal(err)
	}
	opts := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject("$O." + topology.SnapBucket + ".C." + info.NUID)}
	if keep > 0 {
		opts = append(opts, jetstream.WithPurgeKeep(keep))
	}
	if err := s.Purge(r.t.Context(), opts...); err != nil {
		r.t.Fatal(err)
	}
}

func TestRefusedSnapshotsAreSkipped(t *testing.T) {
	r := newRig(t)
	r.save(10)
	newer := meta(20)
	newer.Format = format + 1
	if err := r.store.Save(t.Context(), name, newer, func(w io.Writer) error { _, err := w.Write([]byte("?")); return err }); err != nil {
		t.Fatal(err)
	}
	r.loads(10)
	for _, tc := range []struct {
		name string
		read func(io.Reader) error
	}{
		{"read fails", func(io.Reader) error { return errors.New("no") }},
		{"read stops early", func(in io.Reader) error { _, err := in.Read(make([]byte, 10)); return err }},
	} {
		calls := 0
		_, ok, err := r.store.Load(t.Context(), name, anyOf,
			func(in io.Reader) error {
				if calls++; calls == 1 {
					_, err := io.ReadAll(in)
					return errors.Join(err, errors.New("the newest is not for us"))
				}
				return tc.read(in)
			})
		if ok || err != nil || calls != 2 {
			t.Errorf("%s: %v %v after %d calls", tc.name, ok, err, calls)
		}
	}
	// A pointer of a newer program, or a broken one, is no pointer; saving replaces it.
	for _, value := range []string{`{"version":2}`, `junk`} {
		if _, err := r.kv.PutString(t.Context(), "snap."+name, value); err != nil {
			t.Fatal(err)
		}
		r.loads(0)
		r.save(30)
		r.loads(30)
	}
	if err := r.kv.Delete(t.Context(), "snap."+name); err != nil {
		t.Fatal(err)
	}
	r.loads(0)
	r.save(40)
	r.loads(40)
}

// A save that is interrupted anywhere leaves the earlier snapshots as they are, and garbage that the next one removes.
func TestInterruptedSave(t *testing.T) {
	r := newRig(t)
	r.save(10)
	died := errors.New("died")
	for _, parts := range []int{0, 1, 3} {
		err := r.store.Save(t.Context(), name, meta(20), func(w io.Writer) error {
			if _, err := w.Write(make([]byte, parts*partSize+1)); err != nil {
				return err
			}
			return died
		})
		if !errors.Is(err, died) {
			t.Errorf("%v", err)
		}
		r.loads(10)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := r.store.Save(ctx, name, meta(20), func(w io.Writer) error {
		cancel()
		_, err := w.Write(content(20))
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	r.loads(10)
	if n := len(r.objects()); n != 5+4 { // and the parts of the interrupted ones
		t.Errorf("%d objects: %q", n, r.objects())
	}
	r.save(21)
	if n := len(r.objects()); n != 10 {
		t.Errorf("%d objects after the next save: %q", n, r.objects())
	}
	r.loads(21)
}

// Chunks of a part that was never finished belong to no object: a killed process left them. They go once they are old.
func TestOrphanedChunks(t *testing.T) {
	r := newRig(t)
	r.save(10)
	before := r.chunks()
	for range 3 {
		if _, err := r.js.Publish(t.Context(), "$O."+topology.SnapBucket+".C.orphan", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	r.store = r.open(time.Hour)
	r.save(20) // young: may be another server's part on its way
	if n := r.chunks(); n != 2*before+3 {
		t.Errorf("%d chunks, want %d", n, 2*before+3)
	}
	r.store = r.open(time.Nanosecond)
	r.save(30)
	if n := r.chunks(); n != 2*before {
		t.Errorf("%d chunks, want %d", n, 2*before)
	}
	r.loads(30)
}

// Another owner saving under the same name neither loses its parts to ours, nor we ours to it.
func TestTwoOwners(t *testing.T) {
	r := newRig(t)
	zombie := r.open(0)
	err := zombie.Save(t.Context(), name, meta(20), func(w io.Writer) error {
		if _, err := w.Write(content(20)); err != nil {
			return err
		}
		r.save(10) // ours, before it in the log, while it is at it
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r.loads(20)
	r.save(20) // the same position in the log: both are kept
	r.loads(20)
	if n := len(r.objects()); n != 10 {
		t.Errorf("%d objects: %q", n, r.objects())
	}
}

// TestSnapshotsOfOtherNamesAreLeftAlone: they are empty, which is a snapshot like any.
func TestSnapshotsOfOtherNamesAreLeftAlone(t *testing.T) {
	r := newRig(t)
	write := func(io.Writer) error { return nil } // an empty one
	for _, other := range []string{"lane-10", "sched-1"} {
		if err := r.store.Save(t.Context(), other, meta(5), write); err != nil {
			t.Fatal(err)
		}
	}
	r.save(10)
	r.save(20)
	r.save(30)
	for _, other := range []string{"lane-10", "sched-1"} {
		m, ok, err := r.store.Load(t.Context(), other, anyOf, func(in io.Reader) error {
			b, err := io.ReadAll(in)
			if len(b) != 0 {
				t.Errorf("read %q", b)
			}
			return err
		})
		if err != nil || !ok || m.Position.Sequence != 5 {
			t.Errorf("%s: %+v %v %v", other, m, ok, err)
		}
	}
	for _, bad := range []string{"", "a/b", "a.b", "*"} {
		if err := r.store.Save(t.Context(), bad, meta(1), write); err == nil {
			t.Errorf("name %q was taken", bad)
		}
	}
}

func TestUnreachableServerIsAnError(t *testing.T) {
	r := newRig(t)
	r.save(10)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok, err := r.store.Load(ctx, name, nil, nil); ok || !errors.Is(err, context.Canceled) {
		t.Errorf("%v %v", ok, err)
	}
}

// TestSlot: one holder at a time, also of an unthrottled store, and each release counts once.
func TestSlot(t *testing.T) {
	s := newRig(t).store
	done, ok := s.TryAcquire()
	if !ok {
		t.Fatal("the slot is free, and it is not given")
	}
	if _, ok := s.TryAcquire(); ok {
		t.Error("two holders have the slot")
	}
	if _, ok := s.Unthrottled().TryAcquire(); ok {
		t.Error("two holders have the slot, one of them unthrottled")
	}
	done()
	again, ok := s.TryAcquire()
	if !ok {
		t.Fatal("it was released, and is not given")
	}
	done()
	if _, ok := s.TryAcquire(); ok {
		t.Error("a second release released another holder's slot")
	}
	again()
}
