package eventlog

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// looks compare what a feed has queued with where its stream ends. They belong to Feed.run.
type looks struct {
	feed   *Feed
	ctx    context.Context
	cancel context.CancelFunc
	tick   *time.Ticker
	done   chan look
	asking bool
	seen   uint64 // what had been queued last at the tick before
	behind int    // looks in a row that found messages which did not come
	wait   sync.WaitGroup
}

// look is a question and its answer: the feed had queued last, and the stream ended at bounds.Last after that.
type look struct {
	last   uint64
	bounds Bounds
	err    error
}

func (f *Feed) newLooks(ctx context.Context) *looks {
	l := &looks{feed: f, tick: time.NewTicker(lookEvery), done: make(chan look, 1)}
	l.seen, _ = l.queued()
	l.ctx, l.cancel = context.WithCancel(ctx)
	return l
}

func (l *looks) end() {
	l.tick.Stop()
	l.cancel()
	l.wait.Wait()
}

// queued is what was queued last, and whether the consumer waits for room in the queue.
func (l *looks) queued() (last uint64, full bool) {
	l.feed.mu.Lock()
	defer l.feed.mu.Unlock()
	return l.feed.last, l.feed.bytes >= feedBytes
}

// begin asks for the end of the stream, beside run, if nothing came since the tick before.
func (l *looks) begin() {
	last, full := l.queued()
	quiet := last == l.seen && !full
	if l.seen = last; !quiet {
		l.behind = 0
	}
	if !quiet || l.asking {
		return
	}
	l.asking = true
	l.wait.Go(func() {
		bounds, err := l.feed.stream.Bounds(l.ctx)
		l.done <- look{last, bounds, err}
	})
}

// judge says with an error that the consumer does not deliver.
func (l *looks) judge(found look) error {
	l.asking = false
	last, full := l.queued()
	switch {
	case found.err != nil:
		return nil // the leader could not be asked; that says nothing
	case last != found.last || full || found.bounds.Last <= last:
		l.behind = 0
		return nil
	}
	if l.behind++; l.behind < 2 {
		return nil // it may be on its way
	}
	l.behind = 0
	return fmt.Errorf("the stream ends at %d, and nothing came behind %d for %s", found.bounds.Last, last, lookEvery)
}
