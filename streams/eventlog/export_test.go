package eventlog

import (
	"context"
	"testing"
	"time"
)

// LookEvery lets a test hold feeds against their stream more often. Call it before one is opened: it ends after what the test
// cleans up later.
func LookEvery(t testing.TB, d time.Duration) {
	was := lookEvery
	lookEvery = d
	t.Cleanup(func() { lookEvery = was })
}

// Place makes a consumer as a feed does after one that lagged after the given node, and returns the node that it is on.
func (s Stream) Place(ctx context.Context, leader string) (node string, err error) {
	f := &Feed{stream: s, placeOn: leader}
	consumer, err := f.place(ctx)
	if err != nil {
		return "", err
	}
	return consumer.CachedInfo().Cluster.Leader, nil
}

// NarrowBytes bounds the queue of the feed of a narrow stream, but for its last message.
const NarrowBytes = narrowBytes

// Queued returns the bytes in the queue.
func (f *Feed) Queued() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bytes
}

// await tries until there is something.
func await[T any](ctx context.Context, ready <-chan struct{}, try func() ([]T, error)) ([]T, error) {
	for {
		if out, err := try(); err != nil || len(out) > 0 {
			return out, err
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// NextBatch waits for a message, then returns those that have arrived, at most max.
func (f *Feed) NextBatch(ctx context.Context, max int) ([]Raw, error) {
	return await(ctx, f.ready, func() ([]Raw, error) { return f.TryBatch(max, nil) })
}

// Next waits for the next valid message.
func (r *Reader) Next(ctx context.Context) (Message, error) {
	out, err := await(ctx, r.feed.Ready(), func() ([]Message, error) { return r.TryBatch(1, nil) })
	if err != nil {
		return Message{}, err
	}
	return out[0], nil
}
