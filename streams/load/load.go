// Package load measures how much the lanes of a process need the machine, and throttles work that can wait.
//
//	lanes, schedulers ──> Meter ── Level: Idle, Busy, Burst ──> Throttle: projector, by idle cores too (rebuild, by a level of its own)
//	                        │                └────────────────> snapstore: longer pauses between chunks
//	                        └── Clients ───────────────────────> scheduler: the pace of the fan-out
//
// Owner: a Meter is shared by all parts of a process, and safe for concurrent use. A crash loses what was measured; it is
// measured again within a tenth of a second.
package load

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// Level is how much the lanes need the machine.
type Level int

const (
	Idle  Level = iota // all other work may go on
	Busy               // a lane loads, or decides much: other work takes a share of the time
	Burst              // a burst of reminders: work that can wait a second does not start
)

// Report is what one lane and its scheduler report.
type Report struct {
	Done     atomic.Uint64 // commands answered, and reminders published
	Client   atomic.Int64  // when a command was read last that is not a scheduler's, Unix time in ns; 0 = never
	Loading  atomic.Bool   // the lane reads its snapshot and log: claims wait for it
	Bursting atomic.Bool   // many customers are requested, or fired, and not on the reminder stream
}

// Meter measures the level of a process. Nil is always idle. It is safe for concurrent use and cheap.
type Meter struct {
	Lanes []Report // by number
	Cores Cores

	mu   sync.Mutex // guards the fields below
	at   time.Time
	done uint64
	busy bool
}

const (
	// busyFrom is the rate of commands and reminders a second from which the lanes are busy.
	busyFrom = 5000
	// busyOver is the time over which the rate is measured.
	busyOver = 100 * time.Millisecond
	// clientWithin is for how long after a command clients count as active.
	clientWithin = time.Second
)

// NewMeter makes a meter for lanes 0 to lanes-1.
func NewMeter(lanes int) *Meter { return &Meter{Lanes: make([]Report, lanes)} }

// Level is the level as of the last measurement, at most 0.1 s ago.
func (m *Meter) Level() Level {
	switch {
	case m == nil:
		return Idle
	case m.any(func(r *Report) bool { return r.Bursting.Load() }):
		return Burst
	case m.any(func(r *Report) bool { return r.Loading.Load() }), m.measure():
		return Busy
	}
	return Idle
}

// pressedBelow is how many cores are idle at least while the lanes do not press. With a fifth of one, the tables cost a third of
// the claims on two cores; with a half, less than a tenth.
const pressedBelow = 0.5

// Pressed is Level, but Idle while lanes are Busy and cores are idle all the same: what other work uses then is not their loss.
func (m *Meter) Pressed() Level {
	level := m.Level()
	if level == Busy {
		if spare, known := m.Cores.Spare(); known && spare >= pressedBelow {
			return Idle
		}
	}
	return level
}

// Clients reports whether a client's command was read less than a second ago, by any lane. Reminders that fire do not count,
// which make the lanes busy: so it is for their pace.
func (m *Meter) Clients() bool {
	now := time.Now().UnixNano()
	return m != nil && m.any(func(r *Report) bool {
		last := r.Client.Load()
		return last != 0 && now-last < int64(clientWithin)
	})
}

func (m *Meter) any(is func(*Report) bool) bool {
	for i := range m.Lanes {
		if is(&m.Lanes[i]) {
			return true
		}
	}
	return false
}

// measure reports whether the rate was high when it was measured last.
func (m *Meter) measure() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	elapsed := now.Sub(m.at)
	if elapsed < busyOver {
		return m.busy
	}
	done := uint64(0)
	for i := range m.Lanes {
		done += m.Lanes[i].Done.Load()
	}
	// After a long pause between calls the rate is an average over that pause; the next call has a recent one.
	m.busy = !m.at.IsZero() && float64(done-m.done) >= busyFrom*elapsed.Seconds()
	m.at, m.done = now, done
	return m.busy
}

const (
	// lookEvery is how often the level is read by what waits.
	lookEvery = 10 * time.Millisecond
	// burstMost bounds how long a batch waits for the end of a burst.
	burstMost = 1500 * time.Millisecond
)

// Throttle limits work to a share of the time while the lanes are busy. It is safe for concurrent use.
type Throttle struct {
	Level   func() Level  // is called often, and must return at once
	Times   int           // ratio of pause to work while the level is not Idle
	Longest time.Duration // of one pause, so the work never stops

	made sync.Once
	slot chan struct{} // holds a token while the one batch runs that may run then
}

// Work runs a batch, and pauses after it. While the level is not Idle one batch runs at a time, of all callers: one that starts
// its next batch at once comes after those that wait. In a Burst none starts for 1.5 s. It returns the batch's error, without a
// pause. ctx ends waits and pauses.
func (t *Throttle) Work(ctx context.Context, batch func() error) error {
	for left := burstMost; left > 0 && t.Level() == Burst && ctx.Err() == nil; left -= lookEvery {
		_ = natsx.Pause(ctx, lookEvery)
	}
	if t.acquire(ctx) {
		defer func() { <-t.slot }() // after the pause
	}
	started := time.Now()
	if err := batch(); err != nil {
		return err
	}
	t.Pause(ctx, time.Since(started))
	return nil
}

// acquire waits for the slot, which the caller then releases, or until the level is Idle. A release hands the slot to a caller
// that waits, so lanes take turns.
func (t *Throttle) acquire(ctx context.Context) bool {
	t.made.Do(func() { t.slot = make(chan struct{}, 1) })
	for t.Level() != Idle && ctx.Err() == nil {
		look := time.NewTimer(lookEvery)
		select {
		case t.slot <- struct{}{}:
			look.Stop()
			return true
		case <-look.C:
		case <-ctx.Done():
			look.Stop()
		}
	}
	return false
}

// Pause pauses after work that took that long, until its share of the time is kept or the level is Idle.
func (t *Throttle) Pause(ctx context.Context, took time.Duration) {
	for rest := min(time.Duration(t.Times)*took, t.Longest); rest > 0 && ctx.Err() == nil && t.Level() != Idle; rest -= lookEvery {
		_ = natsx.Pause(ctx, min(rest, lookEvery))
	}
}
