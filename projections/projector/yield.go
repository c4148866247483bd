package projector

import (
	"context"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// yieldTimes is how much longer than it worked the projector pauses while the lanes are busy: it takes a fifth.
	yieldTimes = 4
	// yieldMost bounds one pause, beyond four times what a full batch takes when the machine is shared. A lane goes on
	// after the others have had their turn, so it lags, but never stops.
	yieldMost = 2 * time.Second
	// rushMost is how long a batch waits for the end of a rush at most.
	rushMost = 1500 * time.Millisecond
	// yieldLook is how often a pause looks whether the lanes are still busy.
	yieldLook = 10 * time.Millisecond
)

// yielding leaves the machine to the lanes while they need it: the projector's lanes then take turns rather than work
// in parallel, and who had its turn pauses before the next. What arrives meanwhile makes larger batches, which cost less
// per event: rows that change with each batch are written less often.
type yielding struct {
	busy func() bool                                // nil = never
	rush func() bool                                // nil = never
	turn chan struct{}                              // holds a token while it is nobody's turn
	wait func(context.Context, time.Duration) error // tests give the time
	now  func() time.Time
}

func newYielding(busy, rush func() bool) *yielding {
	y := &yielding{busy: busy, rush: rush, turn: make(chan struct{}, 1), wait: topology.Pause, now: time.Now}
	y.turn <- struct{}{}
	return y
}

func (y *yielding) isBusy() bool { return y.busy != nil && y.busy() }

// work runs a batch when it may, and returns when the next one may be thought of. When the lanes are not busy that is at
// once.
func (y *yielding) work(ctx context.Context, batch func() error) error {
	for left := rushMost; left > 0 && y.rush != nil && y.rush() && ctx.Err() == nil; left -= yieldLook {
		_ = y.wait(ctx, yieldLook)
	}
	if y.await(ctx) {
		// Whatever happens to the batch: an error must not leave the others waiting.
		defer func() { y.turn <- struct{}{} }()
	}
	begun := y.now()
	if err := batch(); err != nil {
		return err
	}
	y.pause(ctx, y.now().Sub(begun))
	return nil
}

// await waits for the turn, which the caller must give back, or until the lanes are not busy.
func (y *yielding) await(ctx context.Context) (mine bool) {
	for y.isBusy() && ctx.Err() == nil {
		look := time.NewTimer(yieldLook)
		select {
		case <-y.turn:
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

// pause pauses behind a batch that took so long.
func (y *yielding) pause(ctx context.Context, took time.Duration) {
	for rest := min(yieldTimes*took, yieldMost); rest > 0 && ctx.Err() == nil && y.isBusy(); rest -= yieldLook {
		_ = y.wait(ctx, min(rest, yieldLook))
	}
}
