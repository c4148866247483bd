package natsx

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestRetry: what a server that elects a leader answers is tried again every 100 ms, an attempt that is never answered after
// 5 s, for 30 s or as long as the caller waits. Any other error ends it.
func TestRetry(t *testing.T) {
	final := errors.New("final")
	away := func(context.Context) error { return ErrNoLeader }
	unanswered := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for _, c := range []struct {
		name     string
		attempts []func(context.Context) error // the last one for ever
		within   time.Duration                 // of the caller; 0 = without end
		want     []error
		took     time.Duration
	}{
		{"answered", []func(context.Context) error{func(context.Context) error { return nil }}, 0, nil, 0},
		{"refused", []func(context.Context) error{func(context.Context) error { return final }}, 0, []error{final}, 0},
		{"elected by then", []func(context.Context) error{away, away, func(context.Context) error { return nil }}, 0, nil, 2 * retryEvery},
		{"refused after an election", []func(context.Context) error{away, func(context.Context) error { return final }}, 0, []error{final}, retryEvery},
		{"the server has just started", []func(context.Context) error{func(context.Context) error {
			return &jetstream.APIError{Code: 503, ErrorCode: 10039, Description: "JetStream not enabled for account"}
		}, func(context.Context) error { return nil }}, 0, nil, retryEvery},
		{"another server was first", []func(context.Context) error{func(context.Context) error { return ErrAgain }, func(context.Context) error { return nil }}, 0, nil, retryEvery},
		{"one request lost", []func(context.Context) error{unanswered, func(context.Context) error { return nil }}, 0, nil, attemptFor},
		{"no leader for ever", []func(context.Context) error{func(context.Context) error { return nats.ErrNoResponders }}, 0, []error{nats.ErrNoResponders, context.DeadlineExceeded}, retryFor},
		{"the caller waits no longer", []func(context.Context) error{away}, time.Second, []error{ErrNoLeader, context.DeadlineExceeded}, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.within > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.within)
					defer cancel()
				}
				started, n := time.Now(), 0
				err := Retry(ctx, func(ctx context.Context) error {
					f := c.attempts[min(n, len(c.attempts)-1)]
					n++
					return f(ctx)
				})
				if took := time.Since(started); took != c.took {
					t.Errorf("it took %s, want %s", took, c.took)
				}
				if (err == nil) != (len(c.want) == 0) {
					t.Errorf("ended with %v", err)
				}
				for _, want := range c.want {
					if !errors.Is(err, want) {
						t.Errorf("ended with %v, want %v", err, want)
					}
				}
			})
		})
	}
}
