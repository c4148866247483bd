package server

import (
	"sync"
	"time"
)

const (
	// busyFrom is how many commands a second make lanes busy; below it read tables follow at once.
	busyFrom = 5000
	// busyOver is how long commands are counted before that is judged.
	busyOver = 100 * time.Millisecond
)

// pressure judges by a rising count of commands, and of customers who are reminded, whether lanes are busy. The projector asks: it shares the cores with
// them, and while people wait for coupons the read tables wait for the cores.
type pressure struct {
	answered func() uint64
	rushing  func() bool // some scheduler has very many to remind just now
	loading  func() bool // some lane reads its snapshot and log: claims wait for it
	now      func() time.Time

	mu   sync.Mutex // guards what follows
	at   time.Time
	seen uint64
	busy bool
}

// Rush says whether nothing should be begun that can wait a second. It may be called by many goroutines, and often.
func (p *pressure) Rush() bool { return p.rushing() }

// Busy says whether lanes were busy a moment ago. It may be called by many goroutines, and often.
func (p *pressure) Busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loading() {
		return true
	}
	now := p.now()
	elapsed := now.Sub(p.at)
	if elapsed < busyOver {
		return p.busy
	}
	seen := p.answered()
	// A question after a long silence says little about now, but it is all that is known; the next one says more.
	// A scheduler that began anew counts from zero.
	p.busy = !p.at.IsZero() && seen >= p.seen && float64(seen-p.seen) >= busyFrom*elapsed.Seconds()
	p.at, p.seen = now, seen
	return p.busy
}
