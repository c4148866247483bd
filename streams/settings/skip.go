package settings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/changelog"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// skipRecord is the value of a skip list key. Readers need the key only.
type skipRecord struct {
	Stream   string `json:"stream"`
	Sequence uint64 `json:"sequence"`
	SHA256   string `json:"sha256"` // see eventlog.Hash
	By       string `json:"by"`
	At       string `json:"at"`
}

func (r *skipRecord) encode() ([]byte, error) { return json.Marshal(r) }

// Skip adds one message to the skip list, for good; it is named by its stream, sequence and hash. The caller has called
// eventlog.Stream.CheckSkip. A second call has no effect. ctx bounds the retries to a server that does not answer.
func (s *Store) Skip(ctx context.Context, stream string, sequence uint64, hash, by string) error {
	if err := CheckBy(by); err != nil {
		return err
	}
	value, err := (&skipRecord{stream, sequence, hash, by, s.opts.Clock.Now().UTC().Format(time.RFC3339Nano)}).encode()
	if err != nil {
		return err
	}
	err = changelog.Retry(ctx, func(ctx context.Context) error {
		ctx, done := context.WithTimeout(ctx, attempt)
		defer done()
		kv, err := s.bucket().KV(ctx)
		if err != nil {
			return err
		}
		// A crash before this leaves the skip list as it was. After it every reader that starts ignores the message.
		if _, err = kv.Create(ctx, eventlog.SkipKey(stream, sequence, hash), value); errors.Is(err, jetstream.ErrKeyExists) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("adding message %d of stream %s to the skip list: %w", sequence, stream, err)
	}
	return nil
}
