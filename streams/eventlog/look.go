package eventlog

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// looks compare the newest queued message of a feed with the end of its stream. They are owned by Feed.run.
type looks struct {
	feed      *Feed
	ctx       context.Context
	cancel    context.CancelFunc
	timer     *time.Timer
	base      time.Duration // lookEvery, read once: tests change it
	every     time.Duration // between looks while nothing is missing
	done      chan look
	requested bool
	seen      uint64 // the newest queued sequence at the look before
	missed    int    // looks in a row that found messages that were not delivered
	wait      sync.WaitGroup
}

// look is a request for the end of the stream and its response: the feed had queued up to last, and the stream ended at
// bounds.Last after that.
type look struct {
	last   uint64
	bounds Bounds
	err    error
}

func (f *Feed) newLooks(ctx context.Context) *looks {
	l := &looks{feed: f, done: make(chan look, 1), base: lookEvery}
	l.every, l.timer = l.base, time.NewTimer(l.base)
	l.seen, _ = l.queued()
	l.ctx, l.cancel = context.WithCancel(ctx)
	return l
}

func (l *looks) end() {
	l.timer.Stop()
	l.cancel()
	l.wait.Wait()
}

// queued returns the newest queued sequence, and whether the consumer waits for room in the queue.
func (l *looks) queued() (last uint64, full bool) {
	l.feed.mu.Lock()
	defer l.feed.mu.Unlock()
	return l.feed.last, l.feed.bytes >= l.feed.stream.feedBytes()
}

// schedule sets when the next look starts. While messages are missing it backs off from a tenth of base: a new
// consumer may be placed on the replica that stalls, again, and a slow one needs time to deliver.
func (l *looks) schedule() {
	d := l.every
	if l.missed > 0 {
		d = min(d, l.base/10<<min(l.missed-1, 5))
	}
	l.timer.Reset(d)
}

// start requests the end of the stream, in a goroutine of its own, if nothing was delivered since the look before.
func (l *looks) start() {
	last, full := l.queued()
	quiet := last == l.seen && !full
	if l.seen = last; !quiet {
		l.missed = 0
	}
	l.schedule()
	if !quiet || l.requested {
		return
	}
	l.requested = true
	l.wait.Go(func() {
		bounds, err := l.feed.stream.Bounds(l.ctx)
		l.done <- look{last, bounds, err}
	})
}

// judge returns an error if the consumer does not deliver.
func (l *looks) judge(found look) error {
	l.requested = false
	if found.err != nil {
		return nil // no response from the leader: nothing is known
	}
	if found.bounds.Replicated {
		l.every = l.base * 2 / 5 // the copy of one replica can stall; the only copy cannot
	}
	last, full := l.queued()
	if last != found.last || full || found.bounds.Last <= last {
		l.missed = 0
		return nil
	}
	l.missed++
	l.schedule()
	if l.missed < 2 {
		return nil // it may be in flight
	}
	return &lagError{delivered: last, bounds: found.bounds}
}

// lagError reports that a consumer does not deliver what the stream's leader has.
type lagError struct {
	delivered uint64
	bounds    Bounds
}

func (e *lagError) Error() string {
	return fmt.Sprintf("the stream ends at %d, and nothing was delivered after %d", e.bounds.Last, e.delivered)
}
