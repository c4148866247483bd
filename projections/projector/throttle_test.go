package projector

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// meter is one whose level the test alone decides: without the system's files it takes no core for idle, and busy lanes press.
func (r *rig) meter() *load.Meter {
	meter := load.NewMeter(1)
	meter.Cores.Root = r.T.TempDir()
	return meter
}

// Even if the lanes are always busy, the tables catch up, one lane at a time.
func TestBusyProjectorCatchesUp(t *testing.T) {
	r := newRig(t)
	r.work()
	for range 40 { // several batches of 16 messages
		r.Claim(0, 1)
		r.Claim(1, 1)
	}
	meter := r.meter()
	meter.Lanes[0].Loading.Store(true)
	p := r.projector(r.pool, Options{Limits: fill.Limits{Lines: 16}, Load: meter})
	var atWork, together atomic.Int32
	p.faults.beforeCommit = func(int, uint32) {
		if atWork.Add(1) > 1 {
			together.Add(1)
		}
	}
	p.faults.afterCommit = func(int) error { atWork.Add(-1); return nil }
	p.start()
	r.synced(r.pool)
	streamtest.Equal(t, "lanes worked in parallel", together.Load(), 0)
	r.check(r.pool)
}

// stuck is a projector whose lane 0 has the slot and does not get on, until let go.
func (r *rig) stuck() (p *running, busy *atomic.Bool) {
	r.T.Helper()
	r.work()
	var holding atomic.Bool
	let, held := make(chan struct{}), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(let) })
	meter := r.meter()
	busy = &meter.Lanes[0].Loading
	p = r.projector(r.pool, Options{Load: meter})
	p.faults.beforeCommit = func(lane int, _ uint32) {
		if lane == 0 && holding.CompareAndSwap(true, false) {
			close(held)
			<-let
		}
	}
	p.start()
	r.T.Cleanup(letGo) // before the projector is stopped
	r.synced(r.pool)
	p.notes(1, r.Last[1])
	holding.Store(true)
	busy.Store(true)
	r.Claim(0, 1)
	<-held
	return p, busy
}

// What arrives while a lane waits for its slot becomes one batch. When the lanes are idle again, no lane waits for another.
func TestBatchesGrowWhileLanesAreBusy(t *testing.T) {
	r := newRig(t)
	p, busy := r.stuck()
	before := p.Progress()[1].Batches
	const messages = 20
	for range messages {
		r.Claim(1, 1)
	}
	streamtest.Eventually(t, "all messages wait on lane 1", func() bool { b := p.Progress()[1].Behind; return b != nil && *b == messages }) // NATS delivers them
	if now := p.Progress()[1]; now.Batches != before {
		t.Errorf("lane 1 worked out of turn: %+v", now)
	}
	busy.Store(false)
	if n := p.notes(1, r.Last[1]).Batches - before; n != 1 { // while lane 0 is stuck
		t.Errorf("%d batches, want all messages in one", n)
	}
}
