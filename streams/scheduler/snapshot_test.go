package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/fanout"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/snapstore"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// memoryStore is a snapshot store in memory, with faults on demand. The real one has tests of its own.
type memoryStore struct {
	mu       sync.Mutex
	stored   []stored // oldest first
	loaded   int      // snapshots read
	saveErr  error
	loadErr  error
	refusals []error
}

type stored struct {
	meta    snapstore.Meta
	content []byte
}

func (s *memoryStore) TryAcquire() (func(), bool) { return func() {}, true }

func (s *memoryStore) Save(ctx context.Context, name string, meta snapstore.Meta, write func(io.Writer) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var content bytes.Buffer
	if name != "sched-0" {
		return fmt.Errorf("saved as %q", name)
	}
	if s.saveErr != nil {
		return s.saveErr
	}
	if err := write(&content); err != nil {
		return err
	}
	s.stored = append(s.stored, stored{meta, content.Bytes()})
	return nil
}

func (s *memoryStore) Load(ctx context.Context, name string, accept func(snapstore.Meta) error, read func(io.Reader) error) (snapstore.Meta, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loadErr != nil {
		return snapstore.Meta{}, false, s.loadErr
	}
	for _, snap := range slices.Backward(s.stored) {
		err := accept(snap.meta)
		if err == nil {
			err = read(bytes.NewReader(snap.content))
		}
		if err == nil {
			s.loaded++
			return snap.meta, true, nil
		}
		s.refusals = append(s.refusals, err)
	}
	return snapstore.Meta{}, false, nil
}

func (s *memoryStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.stored)
}

// atNewest changes the newest snapshot.
func (s *memoryStore) atNewest(change func(*stored)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stored[len(s.stored)-1])
}

// A scheduler that stopped cleanly goes on from its snapshot; and whatever is wrong with the snapshot, the next start
// is the same but for the time it takes: everyone is published once.
func TestSnapshotsAndWhatIsWrongWithThem(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(*testing.T, *memoryStore)
		used   bool
	}{
		{"Good", func(*testing.T, *memoryStore) {}, true},
		{"None", func(_ *testing.T, s *memoryStore) { s.stored = nil }, false},
		{"StoreFails", func(_ *testing.T, s *memoryStore) { s.loadErr = errors.New("no objects today") }, false},
		{"CutOff", func(_ *testing.T, s *memoryStore) {
			s.atNewest(func(snap *stored) { snap.content = snap.content[:len(snap.content)/2] })
		}, false},
		{"NewerFormat", func(_ *testing.T, s *memoryStore) { s.atNewest(func(snap *stored) { snap.meta.Format++ }) }, false},
		{"WithoutNote", func(_ *testing.T, s *memoryStore) { s.atNewest(func(snap *stored) { snap.meta.Note = nil }) }, false},
		{"OfAnotherLog", func(_ *testing.T, s *memoryStore) {
			s.atNewest(func(snap *stored) { snap.meta.Position.Log = "other" })
		}, false},
		{"EventLogLostItsTail", func(_ *testing.T, s *memoryStore) {
			s.atNewest(func(snap *stored) { snap.meta.Position.Sequence = 1000 })
		}, false},
		{"EventLogHasAnotherMessageThere", func(_ *testing.T, s *memoryStore) { s.atNewest(func(snap *stored) { snap.meta.Position.Sequence-- }) }, false},
		{"ReminderStreamLostItsTail", func(t *testing.T, s *memoryStore) {
			s.atNewest(func(snap *stored) {
				var n note
				if err := json.Unmarshal(snap.meta.Note, &n); err != nil || n.LastR == 0 {
					t.Fatalf("note %s: %v", snap.meta.Note, err)
				}
				n.LastR++
				snap.meta.Note, _ = json.Marshal(n)
			})
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			memoryStore := &memoryStore{}
			s := r.scheduler(func(o *Options) { o.Snapshots = memoryStore })
			r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
			r.remind("a", 1, 3, "50s")
			r.remind("a", 4, 6, "30s")
			run := r.run(s)
			r.seen()
			r.clock.set(start + seconds(50))
			r.waitPublished(3)
			r.seen()
			run.stop()
			if memoryStore.count() != 1 {
				t.Fatalf("%d snapshots after a clean stop", memoryStore.count())
			}
			if got := memoryStore.stored[0].meta.Position.Sequence; got != r.last {
				t.Errorf("the snapshot is at %d, the log at %d", got, r.last)
			}
			c.damage(t, memoryStore)
			run = r.run(s)
			r.clock.looksAround(t)
			r.clock.set(start + seconds(70))
			eachOnce(t, r.waitPublished(6), 6)
			run.stop()
			if used := memoryStore.loaded == 1; used != c.used {
				t.Errorf("snapshot used: %t, refusals %v", used, memoryStore.refusals)
			}
		})
	}
}

// While it runs, a snapshot is taken a minute after a change, and none without one; one that can not be written is taken
// again a minute later.
func TestSnapshotsWhileRunning(t *testing.T) {
	r := newRig(t)
	memoryStore := &memoryStore{}
	run := r.run(r.scheduler(func(o *Options) { o.Snapshots = memoryStore }))
	r.create("a", "")
	r.seen()
	if n := memoryStore.count(); n != 0 {
		t.Fatalf("%d snapshots at once", n)
	}
	r.clock.set(start + seconds(60))
	streamtest.Eventually(t, "a snapshot after a minute", func() bool { return memoryStore.count() == 1 })
	r.clock.set(start + seconds(3600))
	r.seen()
	if n := memoryStore.count(); n != 1 {
		t.Fatalf("%d snapshots with nothing new", n)
	}
	memoryStore.mu.Lock()
	memoryStore.saveErr = errors.New("no room")
	memoryStore.mu.Unlock()
	r.create("b", "")
	r.seen()
	r.clock.looksAround(t)
	memoryStore.mu.Lock()
	memoryStore.saveErr = nil
	memoryStore.mu.Unlock()
	r.clock.looksAround(t)
	if n := memoryStore.count(); n != 1 {
		t.Fatalf("%d snapshots right after a failed one", n)
	}
	r.clock.set(start + seconds(3660))
	streamtest.Eventually(t, "a snapshot after the failed one", func() bool { return memoryStore.count() == 2 })
	run.stop()
	if n := memoryStore.count(); n != 2 {
		t.Errorf("%d snapshots after a stop with nothing new", n)
	}
}

// Many lines make a snapshot before the minute is over.
func TestSnapshotAfterManyLines(t *testing.T) {
	r := newRig(t)
	memoryStore := &memoryStore{}
	run := r.run(r.scheduler(func(o *Options) { o.Snapshots, o.SnapshotEvents = memoryStore, 10 }))
	r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
	r.remind("a", 1, 20, "50s")
	streamtest.Eventually(t, "a snapshot", func() bool { return memoryStore.count() == 1 })
	run.stop()
}

// Stopped in the middle of an expansion, the rest is published before a snapshot is taken; or none is.
func TestStoppedInTheMiddleOfAStep(t *testing.T) {
	const customers = 500 * (64 + 10)
	r := newRig(t)
	memoryStore := &memoryStore{}
	s := r.scheduler(func(o *Options) { o.Snapshots = memoryStore })
	r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
	r.remind("a", 1, customers, "50s")
	ctx, stop := context.WithCancel(t.Context())
	s.stored = func(uint64) { stop() }
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	r.seen()
	r.clock.set(start + seconds(50))
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("Run ended with %v", err)
	}
	if n, published := memoryStore.count(), len(r.published()); n > 0 && published != customers {
		t.Errorf("%d snapshots with %d published", n, published)
	}
	// As if the process had died: what was on its way lands first, or makes the next one lose.
	s.stored = nil
	for {
		run := r.run(s)
		streamtest.Eventually(t, "all published, or lost", func() bool {
			select {
			case <-run.done:
				return true
			default:
				return len(r.reminderMessages()) == 64+10
			}
		})
		run.cancel()
		if <-run.done; !errors.Is(run.err, fanout.ErrLost) {
			break
		}
	}
	eachOnce(t, r.published(), customers)
}

// Timers that does not agree with the log is thrown away and replayed; everyone is published once.
func TestSnapshotThatDisagrees(t *testing.T) {
	r := newRig(t)
	memoryStore := &memoryStore{}
	s := r.scheduler(func(o *Options) { o.Snapshots = memoryStore })
	r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
	r.remind("a", 1, 3, "50s")
	run := r.run(s)
	r.seen()
	run.stop()
	memoryStore.atNewest(func(snap *stored) {
		b, err := timers.Read("", bytes.NewReader(snap.content))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Fold(&wire.Event{Type: wire.ReminderCancelled, Campaign: "a", R: 2}); err != nil {
			t.Fatal(err)
		}
		var content bytes.Buffer
		if err := b.Write(&content); err != nil {
			t.Fatal(err)
		}
		snap.content = content.Bytes()
	})
	run = r.run(s)
	r.clock.set(start + seconds(50))
	eachOnce(t, r.waitPublished(3), 3)
	run.stop()
	if memoryStore.loaded != 1 || r.value("disagreements_total") != 1 {
		t.Errorf("%d snapshots loaded, %g disagreements", memoryStore.loaded, r.value("disagreements_total"))
	}
}

// With the real store: a scheduler stops, and the next one goes on from the snapshot.
func TestSnapshotInTheObjectStore(t *testing.T) {
	r := newRig(t)
	store, err := snapstore.New(t.Context(), r.js, snapstore.Options{Seal: r.sealed().Seal, Pause: -1, Logger: streamtest.Logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	s := r.scheduler(func(o *Options) { o.Snapshots = store })
	r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
	r.remind("a", 1, 3, "50s")
	run := r.run(s)
	r.seen()
	run.stop()
	meta, found, err := store.Load(t.Context(), "sched-0", func(snapstore.Meta) error { return nil }, func(content io.Reader) error {
		b, err := timers.Read("", content)
		if err == nil && b.Reminders() != 3 {
			err = fmt.Errorf("%d reminders in it", b.Reminders())
		}
		return err
	})
	if err != nil || !found || meta.Position.Sequence != r.last {
		t.Fatalf("loaded %+v %t %v, the log ends at %d", meta, found, err, r.last)
	}
	run = r.run(s)
	r.clock.set(start + seconds(50))
	eachOnce(t, r.waitPublished(3), 3)
	run.stop()
}
