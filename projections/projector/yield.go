package projector

import (
	"context"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// yieldTimes is the ratio of pause to work while the lanes are busy: the projector then uses a fifth of the time.
	yieldTimes = 4
	// yieldMost bounds one pause; it is more than four times the time of a full batch on a shared machine. A lane
	// continues after the others had their slot, so it lags but never stops.
	yieldMost = 2 * time.Second
	// burstMost bounds how long a batch waits for the end of a burst.
	burstMost = 1500 * time.Millisecond
	// yieldLook is how often a pause checks whether the lanes are still busy.
	yieldLook = 10 * time.Millisecond
)

// yielding throttles the projector while the lanes need the machine: one lane is projected at a time, with a pause
// after each batch. Messages that arrive meanwhile make larger batches, which cost less per event: rows that change
// with each batch are written less often.
type yielding struct {
	busy  func() bool                                // nil = never
	burst func() bool                                // nil = never
	slot  chan struct{}                              // holds a token while the slot is free
	wait  func(context.Context, time.Duration) error // replaced by tests
	now   func() time.Time
}

func newYielding(busy, burst func() bool) *yielding {
	y := &yielding{busy: busy, burst: burst, slot: make(chan struct{}, 1), wait: topology.Pause, now: time.Now}
	y.slot <- struct{}{}
	return y
}

func (y *yielding) isBusy() bool { return y.busy != nil && y.busy() }

// work runs a batch when allowed, and returns when the next one may be prepared: at once when the lanes are not busy.
func (y *yielding) work(ctx context.Context, batch func() error) error {
	for left := burstMost; left > 0 && y.burst != nil && y.burst() && ctx.Err() == nil; left -= yieldLook {
		_ = y.wait(ctx, yieldLook)
	}
	if y.await(ctx) {
		// Also after an error: the others wait for the slot.
		defer func() { y.slot <- struct{}{} }()
	}
	begun := y.now()
	if err := batch(); err != nil {
		return err
	}
	y.pause(ctx, y.now().Sub(begun))
	return nil
}

// await waits for the slot, which the caller must release, or until the lanes are not busy.
func (y *yielding) await(ctx context.Context) (mine bool) {
	for y.isBusy() && ctx.Err() == nil {
		look := time.NewTimer(yieldLook)
		select {
		case <-y.slot:
			mine = true
		case <-look.C:
		case <-ctx.Done():
		}
		look.Stop()
		if mine {
			return true
		}
	}
	return false
}

// pause pauses after a batch that took the given time.
func (y *yielding) pause(ctx context.Context, took time.Duration) {
	for rest := min(yieldTimes*took, yieldMost); rest > 0 && ctx.Err() == nil && y.isBusy(); rest -= yieldLook {
		_ = y.wait(ctx, min(rest, yieldLook))
	}
}
