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

// Place makes a consumer as a feed does after one that lagged behind the given node, and returns the node that it is on.
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

// NextBatch waits for a message, then appends to dst the messages that have arrived, at most max.
func (f *Feed) NextBatch(ctx context.Context, max int, dst []Raw) ([]Raw, error) {
	for {
		out, err := f.TryBatch(max, dst)
		if err != nil || len(out) > len(dst) {
			return out, err
		}
		select {
		case <-f.ready:
		case <-ctx.Done():
			return dst, ctx.Err()
		}
	}
}

// Next waits for the next valid message.
func (r *Reader) Next(ctx context.Context) (Message, error) {
	for {
		out, err := r.TryBatch(1, nil)
		if err != nil {
			return Message{}, err
		}
		if len(out) > 0 {
			return out[0], nil
		}
		select {
		case <-r.feed.Ready():
		case <-ctx.Done():
			return Message{}, ctx.Err()
		}
	}
}
