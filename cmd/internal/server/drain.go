package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
)

// draining serves requests until the server stops, and lets those in progress end:
//
//	stop ──> new requests: 503 stopping ──> requests in progress end, at most wait ──> the batcher ends ──> NATS, lanes …
//
// The batcher that carries their commands ends last. If it ended first, the commands under way would have an unknown outcome
// although their lanes are about to answer. A crash has that outcome: clients send the command again.
type draining struct {
	next http.Handler
	wait time.Duration

	mu       sync.Mutex
	open     int  // requests in progress
	stopping bool // no request is accepted any more
	idle     chan struct{}
}

func drain(next http.Handler) *draining {
	return &draining{next: next, wait: httpStopWait, idle: make(chan struct{})}
}

// ServeHTTP implements http.Handler.
func (d *draining) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !d.enter() {
		w.Header().Set("Connection", "close")
		web.New(web.Stopping, "this server stops; send the request to another one, or again soon").Write(w)
		return
	}
	defer d.end()
	d.next.ServeHTTP(w, r)
}

func (d *draining) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping {
		return false
	}
	d.open++
	return true
}

func (d *draining) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open--; d.open == 0 && d.stopping {
		close(d.idle)
	}
}

// stop refuses further requests.
func (d *draining) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopping = true; d.open == 0 {
		close(d.idle)
	}
}

// run runs the batcher until ctx has ended and the requests in progress have ended. endStreams ends those that would not end
// by themselves.
func (d *draining) run(ctx context.Context, endStreams func(), batcher func(context.Context) error) error {
	batching, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- batcher(batching) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	d.stop()
	endStreams()
	late := time.NewTimer(d.wait)
	defer late.Stop()
	select {
	case <-d.idle:
	case <-late.C:
	case err := <-ended:
		return err
	}
	end()
	return <-ended
}
