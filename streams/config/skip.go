package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// skipRecord is the value of a key that tells readers to pass over a message. Readers need the key only.
type skipRecord struct {
	Stream   string `json:"stream"`
	Sequence uint64 `json:"sequence"`
	SHA256   string `json:"sha256"` // see eventlog.Hash
	By       string `json:"by"`
	At       string `json:"at"`
}

// Skip tells every reader of the log, for good, to pass over one message, which is named by its place and its hash. The
// caller has asked eventlog.Stream.CheckSkip. Asked twice it does no harm. ctx bounds how long a server that does not
// answer is asked.
func (s *Store) Skip(ctx context.Context, stream string, sequence uint64, hash, by string) error {
	if err := CheckBy(by); err != nil {
		return err
	}
	value, err := json.Marshal(skipRecord{stream, sequence, hash, by, s.opts.Now().UTC().Format(time.RFC3339Nano)})
	if err != nil {
		return err
	}
	err = again(ctx, func(ctx context.Context) error {
		ctx, done := context.WithTimeout(ctx, attempt)
		defer done()
		kv, err := s.bucket(ctx)
		if err != nil {
			return err
		}
		// A crash before this: nothing is passed over. After it every reader that begins passes over the message.
		if _, err = kv.Create(ctx, eventlog.SkipKey(stream, sequence, hash), value); errors.Is(err, jetstream.ErrKeyExists) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("telling readers to pass over message %d of stream %s: %w", sequence, stream, err)
	}
	return nil
}

// bucket opens the bucket, and makes it where there is none.
func (s *Store) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := s.js.KeyValue(ctx, Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		if err = makeBucket(ctx, s.js, s.opts.Replicas); err == nil {
			kv, err = s.js.KeyValue(ctx, Bucket)
		}
	}
	return kv, err
}
