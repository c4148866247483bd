package projector

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// outage logs once that something is away, and once that it is back for everybody who noticed.
type outage struct {
	what string
	log  *slog.Logger

	mu    sync.Mutex
	since time.Time // zero while it is there
	noted map[*lane]bool
}

// away notes that it is away for a lane, or for the projector as a whole (nil).
func (o *outage) away(ctx context.Context, who *lane, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.noted == nil {
		o.noted = map[*lane]bool{}
	}
	o.noted[who] = true
	if o.since.IsZero() {
		o.since = time.Now()
		o.log.WarnContext(ctx, o.what+" is away, the read tables wait for it; claims and redemptions go on", "err", err)
	}
}

// back takes back what away noted for the same.
func (o *outage) back(ctx context.Context, who *lane) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.noted, who)
	o.there(ctx)
}

// allBack takes back all of it: the projector begins anew.
func (o *outage) allBack(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.noted)
	o.there(ctx)
}

func (o *outage) there(ctx context.Context) {
	if len(o.noted) == 0 && !o.since.IsZero() {
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
