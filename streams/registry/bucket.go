package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// attempt bounds an exchange with the server: a request sent during an election is never answered.
	attempt = 2 * time.Second
	// retryPause is the pause before a retry.
	retryPause = 100 * time.Millisecond
	// readBatch is how many messages of the bucket are taken from its feed at once.
	readBatch = 256
)

// bucket is a KV bucket with a history. It is a value without resources.
type bucket struct {
	js     jetstream.JetStream
	spec   topology.GrowingBucket
	logger *slog.Logger
}

// Create stores a value under a key that does not exist, within attempt, and makes the bucket if there is none. After an error,
// unknown is true if it may be stored all the same. A crash in it leaves the value stored or not.
func (b bucket) Create(ctx context.Context, key string, value []byte) (revision uint64, unknown bool, err error) {
	ctx, done := context.WithTimeout(ctx, attempt)
	defer done()
	kv, err := b.js.KeyValue(ctx, b.spec.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		if err = b.make(ctx); err == nil {
			kv, err = b.js.KeyValue(ctx, b.spec.Bucket)
		}
	}
	if err != nil {
		return 0, false, err
	}
	// A key that exists is of another change, or of an earlier try. All other errors are not definite: a disk that fills up
	// may fail after the write.
	revision, err = kv.Create(ctx, key, value)
	return revision, err != nil && !errors.Is(err, jetstream.ErrKeyExists), err
}

// make makes the bucket, with as many copies as the log has. It may exist already.
func (b bucket) make(ctx context.Context) error {
	_, err := topology.FindOrMake(ctx, b.js, b.spec.Config)
	return err
}

// newest reads the revision of the newest change from the bucket's leader, within attempt; 0 = there is none. The error is
// [jetstream.ErrStreamNotFound] where there is no bucket.
func (b bucket) newest(ctx context.Context) (uint64, error) {
	ctx, done := context.WithTimeout(ctx, attempt)
	defer done()
	m, _, err := natsx.LastMessage(ctx, b.js, b.spec.Stream(), b.spec.Subject(keyPrefix+">"))
	return m.Sequence, err
}

// Message is a change as the bucket holds it.
type Message struct {
	Key      string
	Value    []byte
	Revision uint64
	// Deleted: it is the marker of a deletion, which only another program makes.
	Deleted bool
}

// parse reads a message of the bucket. ok is false if it is no change.
func (b bucket) parse(raw *eventlog.Raw) (m Message, ok bool) {
	key, ok := strings.CutPrefix(raw.Subject, b.spec.Subject(""))
	return Message{
		Key: key, Value: raw.Data, Revision: raw.Sequence,
		Deleted: raw.Header.Get("KV-Operation") != "" || raw.Header.Get(jetstream.MarkerReasonHeader) != "",
	}, ok && strings.HasPrefix(key, keyPrefix)
}

// reader reads the changes in the bucket from the first, in the order of revisions, and then each new one.
type reader struct {
	*eventlog.Feed
	bucket bucket
	// until is the revision of the newest change at the start. A replica of the bucket that lags may have less for a while,
	// so a reader that has seen fewer has not seen all.
	until uint64
	batch []eventlog.Raw
}

// open starts a reader, within attempt. The error is [jetstream.ErrStreamNotFound] where there is no bucket. The caller
// closes the reader.
func (b bucket) open(ctx context.Context) (*reader, error) {
	ctx, done := context.WithTimeout(ctx, attempt)
	defer done()
	until, err := b.newest(ctx)
	if err != nil {
		return nil, err
	}
	feed, err := eventlog.Bucket(b.js, b.spec.Stream()).OpenFeed(ctx, 0, b.logger)
	if err != nil {
		return nil, err
	}
	return &reader{Feed: feed, bucket: b, until: until}, nil
}

// take calls f with each change that has arrived since the last call, and does not wait. An error is final for this reader.
func (r *reader) take(f func(Message)) (err error) {
	if r.batch, err = r.TryBatch(readBatch, r.batch[:0]); err != nil {
		return err
	}
	for i := range r.batch {
		if m, ok := r.bucket.parse(&r.batch[i]); ok {
			f(m)
		}
	}
	return nil
}

// Read calls start, and then f with all changes that were stored before the call, and perhaps later ones. After a failure it
// calls start again, and f with all of them; ctx bounds the retries to a server that does not answer. Without a bucket there
// are no changes.
func (b bucket) Read(ctx context.Context, start func(), f func(Message)) error {
	return retry(ctx, func(ctx context.Context) error {
		start()
		r, err := b.open(ctx)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		defer r.Close()
		for revision := uint64(0); revision < r.until; {
			select {
			case <-r.Ready():
				err := r.take(func(m Message) {
					revision = m.Revision
					f(m)
				})
				if err != nil {
					return err
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
}

// retry calls f until it succeeds or ctx ends.
func retry(ctx context.Context, f func(context.Context) error) error {
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if natsx.Pause(ctx, retryPause) != nil {
			return fmt.Errorf("%w; the last try: %w", context.Cause(ctx), err)
		}
	}
}
