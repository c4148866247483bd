package scheduler

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/scheduler/fanout"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// Snapshots are taken all along while reminders fire and the scheduler dies again and again, each time a few messages
// later. Everyone is published once; and whichever of the snapshots a scheduler begins with, it has nothing to add.
func TestSnapshotsAtEveryPointOfFanOuts(t *testing.T) {
	const groups, each = 6, 600
	r := newRig(t)
	all := &memoryStore{}
	s := r.scheduler(func(o *Options) { o.Snapshots, o.SnapshotEvery, o.Dir = all, time.Second, t.TempDir() })
	r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
	for g := range groups {
		r.remind("a", g*each+1, (g+1)*each, fmt.Sprintf("%ds", 90-10*g))
	}
	fail := func(err error) {
		all.mu.Lock()
		defer all.mu.Unlock()
		all.saveErr = err
	}
	naps := func() int {
		r.clock.mu.Lock()
		defer r.clock.mu.Unlock()
		return r.clock.naps
	}
	for life := 0; len(r.published()) < groups*each; life++ {
		if life > 60 {
			t.Fatalf("%d published after %d lives", len(r.published()), life)
		}
		r.clock.set(start + seconds(10+5*life))
		due := min(life/2+1, groups) * each
		fail(nil)
		ctx, die := context.WithCancel(t.Context())
		left := life % 5
		s.stored = func(uint64) {
			if left--; left < 0 {
				fail(errors.New("dead")) // no last words
				die()
			}
		}
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		before, passed := naps(), 0
		streamtest.Eventually(t, "death, or nothing left to do", func() bool {
			passed = min(passed+1, 4)
			r.clock.set(start + seconds(10+5*life+passed)) // snapshots are half a second apart
			return ctx.Err() != nil || len(ended) > 0 || len(r.published()) >= due && naps() >= before+3
		})
		die()
		if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, fanout.ErrLost) {
			t.Fatalf("life %d ended with %v", life, err)
		}
	}
	eachOnce(t, r.published(), groups*each)

	positions := map[uint64]bool{}
	for i, snap := range all.stored {
		positions[snap.meta.Position.Sequence] = true
		if i > 0 && i < len(all.stored)-1 && i%(1+len(all.stored)/10) != 0 {
			continue
		}
		one := &memoryStore{stored: []stored{snap}}
		run := r.run(r.scheduler(func(o *Options) { o.Snapshots = one }))
		r.clock.looksAround(t)
		run.stop()
		if one.loaded != 1 || r.value("disagreements_total") != 0 {
			t.Errorf("snapshot %d at %d: loaded %d times, %v", i, snap.meta.Position.Sequence, one.loaded, one.refusals)
		}
		if n := len(r.published()); n != groups*each {
			t.Fatalf("%d published after a start from snapshot %d, %d before", n, i, groups*each)
		}
	}
	if len(positions) < 4 {
		t.Errorf("snapshots at %d positions only", len(positions))
	}
}

// A snapshot costs what the timers hold; the more that is, the more has to change, and the longer it may take.
func TestSnapshotsOfManyTimersAreRare(t *testing.T) {
	now := start.Time()
	r := &run{Scheduler: New(nil, "log", 0, Options{Snapshots: &memoryStore{}})}
	r.saver.last = now
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
		r.saver.changed, r.saver.failed, r.saver.again = c.changed, c.failed, now.Add(c.again)
		if got := r.snapshotDue(c.reminders).Sub(now); got != c.due {
			t.Errorf("%+v: due after %v", c, got)
		}
	}
}

// Without room for customers the scheduler stops and has what to do; with room again it begins again, and everyone is published.
func TestNoRoomForCustomers(t *testing.T) {
	r := newRig(t)
	r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
	r.remind("a", 1, 500, "50s")
	gone := filepath.Join(t.TempDir(), "gone")
	err := r.run(r.scheduler(func(o *Options) { o.Dir = gone })).fails()
	if !errors.Is(err, timers.ErrDisk) || errors.Is(err, errMisfit) || !strings.Contains(err.Error(), gone) || !strings.Contains(err.Error(), "make room there") {
		t.Errorf("Run ended with %v", err)
	}
	run := r.run(r.scheduler(func(o *Options) { o.Dir = t.TempDir() }))
	r.clock.set(start + seconds(50))
	eachOnce(t, r.waitPublished(500), 500)
	run.stop()
}
