package projector

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// outage says once that something is away and once that it is back, however many lanes notice.
type outage struct {
	what string
	log  *slog.Logger

	mu    sync.Mutex
	since time.Time // zero while it is there
}

func (o *outage) away(ctx context.Context, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.since = time.Now()
		o.log.WarnContext(ctx, o.what+" is away, the read tables wait for it; claims and redemptions go on", "err", err)
	}
}

func (o *outage) back(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.since.IsZero() {
		o.log.InfoContext(ctx, o.what+" is back, the read tables catch up", "away", time.Since(o.since).Round(time.Millisecond))
		o.since = time.Time{}
	}
}

// newPause waits longer from attempt to attempt, from a tenth of a second up to two.
func newPause() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 100*time.Millisecond, 2*time.Second
	return b
}

// wait waits, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
