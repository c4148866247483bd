package lease

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

const (
	// backoffFirst and backoffMax are the pauses after work that ended by itself; they double.
	backoffFirst = 200 * time.Millisecond
	backoffMax   = 15 * time.Second
	// backoffReset is how long work must have run for the pauses to start over.
	backoffReset = time.Minute
)

// ErrLost is the cause of a work's cancelled context when another server has the lease.
var ErrLost = errors.New("lease lost")

// ErrReleased is the cause when the lease is to go to another server, or this one stops.
var ErrReleased = errors.New("lease released")

// term is one term of one lease. Its fields are owned by Run.
type term struct {
	key      int
	revision uint64
	since    time.Time
	written  time.Time // when revision was acknowledged
	writing  bool      // a renewal is in flight
	leaving  bool      // the work has ended, and the lease is to be deleted after that
	tried    time.Time // when the last renewal was sent
	cancel   context.CancelCauseFunc
	ctx      context.Context
}

func newTerm(key int, revision uint64, since time.Time) *term {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &term{key: key, revision: revision, since: since, written: time.Now(), ctx: ctx, cancel: cancel}
}

// leave ends the work; the lease is deleted once it has returned.
func (t *term) leave() { t.cancel(ErrReleased) }

// work runs the function until the term ends, or the function returns ErrLost. Work that ends otherwise is restarted under
// the same lease after a pause: what stops a lane (a gap, a lost fence, a log to be rebased) is in the log, and would stop
// it on any other server too; moving it would not help.
func (t *term) work(f func(context.Context, int) error, log *slog.Logger) {
	pause := backoffFirst
	for t.ctx.Err() == nil {
		started := time.Now()
		err := f(t.ctx, t.key)
		if errors.Is(err, ErrLost) {
			t.cancel(ErrLost)
		}
		if t.ctx.Err() != nil {
			return
		}
		if time.Since(started) >= backoffReset {
			pause = backoffFirst
		}
		log.Warn("work under a lease ended, restarting it", "key", t.key, "pause", pause, "err", err)
		if natsx.Pause(t.ctx, pause) != nil {
			return
		}
		pause = min(2*pause, backoffMax)
	}
}
