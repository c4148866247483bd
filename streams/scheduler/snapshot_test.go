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
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/snapstore"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
)

// memoryStore is a snapshot store in memory, with faults on demand. The real one has tests of its own.
type memoryStore struct {
	mu       sync.Mutex
	stored   []stored // the last two, oldest first
	loaded   int      // snapshots read
	saveErr  error
	loadErr  error
	refusals []error
	saves    testsignal.Signal[error] // each Save, with its result
}

type stored struct {
	meta    snapstore.Meta
	content []byte
}

func (s *memoryStore) TryAcquire() (func(), bool) { return func() {}, true }

func (s *memoryStore) Save(ctx context.Context, name string, meta snapstore.Meta, write func(io.Writer) error) (err error) {
	defer func() { s.saves.Send(err) }()
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
	s.stored = append(s.stored[max(0, len(s.stored)-1):], stored{meta, content.Bytes()})
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
	newest := func(change func(*stored)) func(*memoryStore) { return func(s *memoryStore) { s.atNewest(change) } }
	for name, damage := range map[string]func(*memoryStore){
		"Good":                           func(*memoryStore) {},
		"None":                           func(s *memoryStore) { s.stored = nil },
		"StoreFails":                     func(s *memoryStore) { s.loadErr = errors.New("no objects today") },
		"CutOff":                         newest(func(snap *stored) { snap.content = snap.content[:len(snap.content)/2] }),
		"NewerFormat":                    newest(func(snap *stored) { snap.meta.Format++ }),
		"WithoutNote":                    newest(func(snap *stored) { snap.meta.Note = nil }),
		"OfAnotherLog":                   newest(func(snap *stored) { snap.meta.Position.Log = "other" }),
		"EventLogLostItsTail":            newest(func(snap *stored) { snap.meta.Position.Sequence = 1000 }),
		"EventLogHasAnotherMessageThere": newest(func(snap *stored) { snap.meta.Position.Sequence-- }),
		"ReminderStreamLostItsTail": newest(func(snap *stored) {
			var n note
			if err := json.Unmarshal(snap.meta.Note, &n); err != nil || n.LastR == 0 {
				t.Errorf("note %s: %v", snap.meta.Note, err)
			}
			n.LastR++
			snap.meta.Note, _ = json.Marshal(n)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			memoryStore := &memoryStore{}
			s := r.scheduler(func(o *Options) { o.Snapshots = memoryStore })
			r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
			r.remind("a", 1, 3, "50s")
			r.remind("a", 4, 6, "30s")
			run := r.run(s)
			r.quiet()
			r.set(start + seconds(50))
			r.waitPublished(3)
			run.stop()
			if memoryStore.count() != 1 {
				t.Fatalf("%d snapshots after a clean stop", memoryStore.count())
			}
			streamtest.Equal(t, "position of the snapshot", memoryStore.stored[0].meta.Position.Sequence, r.last)
			damage(memoryStore)
			run = r.run(s)
			r.quiet()
			r.set(start + seconds(70))
			eachOnce(t, r.waitPublished(6), 6)
			run.stop()
			if used := memoryStore.loaded == 1; used != (name == "Good") {
				t.Errorf("snapshot used: %t, refusals %v", used, memoryStore.refusals)
			}
		})
	}
}

// While it runs, a snapshot is taken a minute after a change, and none without one; one that can not be written is taken
// again a minute later.
func TestSnapshotsWhileRunning(t *testing.T) {
	r := newRig(t)
	store := &memoryStore{}
	store.saves.Watch()
	run := r.run(r.scheduler(func(o *Options) { o.Snapshots = store }))
	expect := func(when string, want int) {
		t.Helper()
		r.quiet()
		if n := store.count(); n != want {
			t.Fatalf("%d snapshots %s, expected %d", n, when, want)
		}
	}
	r.create("a", "")
	expect("at once", 0)
	r.set(start + seconds(60))
	store.saves.Wait(t)
	expect("after a minute", 1)
	r.set(start + seconds(3600))
	expect("with nothing new", 1)
	fail := func(err error) {
		store.mu.Lock()
		defer store.mu.Unlock()
		store.saveErr = err
	}
	fail(errors.New("no room"))
	r.create("b", "")
	if err := store.saves.Wait(t); err == nil {
		t.Fatal("a snapshot without room")
	}
	fail(nil)
	r.set(start + seconds(3610))
	expect("right after a failed one", 1)
	r.set(start + seconds(3660))
	store.saves.Wait(t)
	expect("a minute after the failed one", 2)
	run.stop()
	streamtest.Equal(t, "snapshots after a stop with nothing new", store.count(), 2)
}

// Timers that do not agree with the log are thrown away and replayed; everyone is published once.
func TestSnapshotThatDisagrees(t *testing.T) {
	r := newRig(t)
	memoryStore := &memoryStore{}
	s := r.scheduler(func(o *Options) { o.Snapshots = memoryStore })
	r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
	r.remind("a", 1, 3, "50s")
	run := r.run(s)
	r.quiet()
	run.stop()
	memoryStore.atNewest(func(snap *stored) {
		b, err := timers.Read("", bytes.NewReader(snap.content))
		streamtest.Must(t, err)
		if _, err := b.Fold(&wire.Event{Type: wire.ReminderCancelled, Campaign: "a", R: 2}); err != nil {
			t.Fatal(err)
		}
		var content bytes.Buffer
		frozen := b.Freeze()
		frozen.Continue(time.Hour)
		streamtest.Must(t, frozen.Write(&content))
		snap.content = content.Bytes()
	})
	run = r.run(s)
	r.set(start + seconds(50))
	eachOnce(t, r.waitPublished(3), 3)
	run.stop()
	if memoryStore.loaded != 1 || r.value("disagreements_total") != 1 {
		t.Errorf("%d snapshots loaded, %g disagreements", memoryStore.loaded, r.value("disagreements_total"))
	}
}

// A snapshot costs what the timers hold; the more that is, the more has to change, and the longer it may take.
func TestSnapshotsOfManyTimersAreRare(t *testing.T) {
	now := start.Time()
	s := saver{last: now}
	for _, c := range []struct {
		reminders, changed int
		failed             bool
		again              time.Duration
		due                time.Duration
	}{
		{0, 1, false, 0, time.Minute},
		{0, 1_000_000, false, 0, 0},
		{900_000, 999_999, false, 0, time.Minute},
		{1_500_000, 1, false, 0, 2 * time.Minute},
		{15_000_000, 1_000_000, false, 0, 16 * time.Minute},
		{15_000_000, 3_750_000, false, 0, 0},
		{15_000_000, 3_750_000, true, 0, 16 * time.Minute},                 // the last one could not be written
		{15_000_000, 3_750_000, false, 50 * time.Second, 50 * time.Second}, // the last one took six seconds
		{0, 1, false, 2 * time.Minute, 2 * time.Minute},
	} {
		s.changed, s.failed, s.again = c.changed, c.failed, now.Add(c.again)
		if got := s.snapshotDue(c.reminders).Sub(now); got != c.due {
			t.Errorf("%+v: due after %v", c, got)
		}
	}
}
