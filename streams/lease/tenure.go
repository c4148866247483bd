package lease

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

const (
	// backoffFirst and backoffMax are the pauses after work that ended by itself; they double.
	backoffFirst = 200 * time.Millisecond
	backoffMax   = 15 * time.Second
	// backoffReset is how long work must have run for the pauses to start over.
	backoffReset = time.Minute
)

// ErrLost is the cause of a work's cancelled context when the lease ran out or another server has it.
var ErrLost = errors.New("lease lost")

// ErrReleased is the cause when the lease is to go to another server, or this one stops.
var ErrReleased = errors.New("lease released")

// tenure is one holding of one lease. Its fields belong to Run.
type tenure struct {
	key      int
	revision uint64
	since    time.Time
	cancel   context.CancelCauseFunc
	expiry   *time.Timer // cancels the work by itself when renewals fail, also while Run waits for the server
	ctx      context.Context
	leaving  bool // to be deleted once the work has returned
	lost     bool // not ours any more: nothing to delete
}

func newTenure(key int, revision uint64, now time.Time, holds time.Duration) *tenure {
	ctx, cancel := context.WithCancelCause(context.Background())
	t := &tenure{key: key, revision: revision, since: now, ctx: ctx, cancel: cancel}
	t.expiry = time.AfterFunc(holds, func() { cancel(ErrLost) })
	return t
}

// work runs the function until the tenure ends. Work that ends by itself, with an error or without, is started again
// under the same lease after a pause: what stops a lane (a gap, a lost fence, a log to be rebased) is in the log, and
// would stop it on any other server too; handing it round would only bring noise.
func (t *tenure) work(f func(context.Context, int) error, log *slog.Logger) {
	pause := backoffFirst
	for t.ctx.Err() == nil {
		began := time.Now()
		err := f(t.ctx, t.key)
		if t.ctx.Err() != nil {
			return
		}
		if time.Since(began) >= backoffReset {
			pause = backoffFirst
		}
		log.Warn("work under a lease ended, starting it again", "key", t.key, "pause", pause, "err", err)
		timer := time.NewTimer(pause)
		select {
		case <-t.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = min(2*pause, backoffMax)
	}
}
