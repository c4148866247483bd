package projector

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// outage logs once when a dependency becomes unavailable, and once when it is available again for all lanes.
type outage struct {
	what    string
	log     *slog.Logger
	clock   wall.Clock
	noticed *testsignal.Signal[string]

	mu    sync.Mutex
	since time.Time // zero while it is available
	noted map[*follower]bool
}

// start records that it is unavailable for a lane, or for the projector as a whole (nil).
func (o *outage) start(ctx context.Context, who *follower, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.noted == nil {
		o.noted = map[*follower]bool{}
	}
	o.noted[who] = true
	if o.since.IsZero() {
		o.since = o.clock.Now()
		o.log.WarnContext(ctx, o.what+" is unavailable, the read tables wait for it; claims and redemptions continue", "err", err)
		o.noticed.Send(o.what + " is unavailable")
	}
}

// end reverts start for the same lane.
func (o *outage) end(ctx context.Context, who *follower) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.noted, who)
	o.logEnd(ctx)
}

// endAll reverts start for all lanes: the projector starts again.
func (o *outage) endAll(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.noted)
	o.logEnd(ctx)
}

func (o *outage) logEnd(ctx context.Context) {
	if len(o.noted) == 0 && !o.since.IsZero() {
		o.log.InfoContext(ctx, o.what+" is available, the read tables catch up", "unavailable", o.clock.Now().Sub(o.since).Round(time.Millisecond))
		o.since = time.Time{}
		o.noticed.Send(o.what + " is available")
	}
}

// newPause returns a back-off from 0.1 s to 2 s.
func newPause() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 100*time.Millisecond, 2*time.Second
	return b
}
