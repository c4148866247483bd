package rebuild

import (
	"sync"
	"sync/atomic"
	"time"
)

// reportEvery is how often progress is told while nothing but numbers changes.
const reportEvery = 200 * time.Millisecond

// reporter counts, from many goroutines, and tells, one call at a time.
type reporter struct {
	messages, total, events atomic.Uint64
	indexes, allIndexes     atomic.Int64
	yielding                atomic.Bool

	mu    sync.Mutex
	tell  func(Progress)
	phase Phase
	told  time.Time
}

func newReporter(tell func(Progress)) *reporter { return &reporter{tell: tell} }

// enter begins a phase; messages are counted from zero in each.
func (r *reporter) enter(phase Phase, total uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase = phase
	r.messages.Store(0)
	r.total.Store(total)
	r.told = time.Now()
	r.tell(r.now())
}

// moved tells what has been counted, unless that was done a moment ago or is being done.
func (r *reporter) moved() {
	if !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()
	if time.Since(r.told) >= reportEvery {
		r.told = time.Now()
		r.tell(r.now())
	}
}

func (r *reporter) now() Progress {
	return Progress{
		Phase: r.phase, Messages: r.messages.Load(), TotalMessages: r.total.Load(), Events: r.events.Load(),
		Indexes: int(r.indexes.Load()), TotalIndexes: int(r.allIndexes.Load()), Yielding: r.yielding.Load(),
	}
}
