package projector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// Time is simulated: a batch takes the given time, and pauses are summed.
func TestPauseIsAShareOfTheWork(t *testing.T) {
	for _, c := range []struct {
		name       string
		took, want time.Duration
		busyFor    int // how often busy returns true
	}{
		{"four times the work", 5 * time.Millisecond, 20 * time.Millisecond, 1000},
		{"not in whole looks", 3 * time.Millisecond, 12 * time.Millisecond, 1000},
		{"two seconds at most", 10 * time.Second, 2 * time.Second, 1000},
		{"not busy", time.Second, 0, 0},
		{"not busy any more when it is done", time.Second, 0, 1},
		{"ends when the lanes are done", time.Second, 3 * yieldLook, 4}, // one look before the work
	} {
		t.Run(c.name, func(t *testing.T) {
			var clock time.Time
			var paused time.Duration
			left := c.busyFor
			y := newYielding(func() bool { left--; return left >= 0 }, nil)
			y.now = func() time.Time { return clock }
			y.wait = func(_ context.Context, d time.Duration) error { paused += d; return nil }
			err := y.work(t.Context(), func() error { clock = clock.Add(c.took); return nil })
			if err != nil || paused != c.want {
				t.Errorf("paused %s, want %s (%v)", paused, c.want, err)
			}
			if len(y.slot) != 1 {
				t.Error("the turn was not given back")
			}
		})
	}
}

// A burst delays a batch until it is over, and not for longer than burstMost.
func TestBurstDelaysABatch(t *testing.T) {
	for _, c := range []struct {
		name  string
		looks int // how often burst returns true
		want  time.Duration
	}{
		{"none", 0, 0},
		{"until it is over", 3, 3 * yieldLook},
		{"at most", 1 << 30, burstMost},
	} {
		t.Run(c.name, func(t *testing.T) {
			var waited time.Duration
			left, worked := c.looks, false
			y := newYielding(nil, func() bool { left--; return left >= 0 })
			y.wait = func(_ context.Context, d time.Duration) error {
				if worked {
					t.Error("waited behind the batch")
				}
				waited += d
				return nil
			}
			if err := y.work(t.Context(), func() error { worked = true; return nil }); err != nil || !worked || waited != c.want {
				t.Errorf("waited %s, want %s (%v, %v)", waited, c.want, worked, err)
			}
		})
	}
}

func TestSlotIsReleasedAfterEveryBatch(t *testing.T) {
	broken := errors.New("broken")
	y := newYielding(func() bool { return true }, nil)
	y.wait = func(context.Context, time.Duration) error { t.Error("paused behind a batch that failed"); return nil }
	if err := y.work(t.Context(), func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := y.work(ended, func() error { return ended.Err() }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if len(y.slot) != 1 {
		t.Error("the turn was not given back")
	}
}

// Even if the lanes are always busy, the tables catch up, one lane at a time.
func TestBusyProjectorCatchesUp(t *testing.T) {
	r := newRig(t)
	r.work()
	for range 200 { // several batches of 64 messages
		r.claim(0, 1)
		r.claim(1, 1)
	}
	p := r.projector(r.pool, Options{MaxLines: 1, Busy: func() bool { return true }})
	var atWork, together atomic.Int32
	p.faults.beforeCommit = func(int, uint32) {
		if atWork.Add(1) > 1 {
			together.Add(1)
		}
	}
	p.faults.afterCommit = func(int) error { atWork.Add(-1); return nil }
	p.start()
	r.synced(r.pool)
	if n := together.Load(); n != 0 {
		t.Errorf("lanes worked in parallel %d times", n)
	}
	r.check(r.pool)
}

// stuck is a projector whose lane 0 has the slot and does not get on, until let go.
func (r *rig) stuck(busy *atomic.Bool) (p *running, letGo func()) {
	r.T.Helper()
	r.work()
	var holding atomic.Bool
	let, held := make(chan struct{}), make(chan struct{})
	letGo = sync.OnceFunc(func() { close(let) })
	p = r.projector(r.pool, Options{Busy: busy.Load})
	p.faults.beforeCommit = func(lane int, _ uint32) {
		if lane == 0 && holding.CompareAndSwap(true, false) {
			close(held)
			<-let
		}
	}
	p.start()
	r.T.Cleanup(letGo) // before the projector is stopped
	r.synced(r.pool)
	streamtest.Eventually(r.T, "lane 1 at rest", func() bool { return p.Progress()[1].Sequence == r.Last[1] }) // updated after the commit
	holding.Store(true)
	busy.Store(true)
	r.claim(0, 1)
	<-held
	return p, letGo
}

// What arrives while a lane waits for its slot becomes one batch.
func TestBatchesGrowWhileLanesAreBusy(t *testing.T) {
	r := newRig(t)
	var busy atomic.Bool
	p, letGo := r.stuck(&busy)
	before := p.Progress()[1].Batches
	const messages = 20
	for range messages {
		r.claim(1, 1)
	}
	streamtest.Eventually(t, fmt.Sprintf("%d messages waiting on lane 1", messages), func() bool { return p.Progress()[1].Behind == messages })
	if now := p.Progress()[1]; now.Batches != before {
		t.Errorf("lane 1 worked out of turn: %+v", now)
	}
	letGo()
	r.synced(r.pool)
	streamtest.Eventually(t, "lane 1 up to date", func() bool { return p.Progress()[1].Sequence == r.Last[1] })
	if n := p.Progress()[1].Batches - before; n != 1 {
		t.Errorf("%d batches, want all messages in one", n)
	}
	r.check(r.pool)
}

func TestNoLaneWaitsWhenLanesAreIdle(t *testing.T) {
	r := newRig(t)
	var busy atomic.Bool
	p, _ := r.stuck(&busy)
	r.claim(1, 1)
	streamtest.Eventually(t, "a message waiting on lane 1", func() bool { return p.Progress()[1].Behind == 1 })
	busy.Store(false)
	r.reached(r.pool, 1, r.Last[1]) // while lane 0 is stuck
}
