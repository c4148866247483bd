package streamtest

import (
	"context"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// LostAnswer returns a JetStream whose first creation of a key has no result: with stored it took effect, else it did not.
func LostAnswer(js jetstream.JetStream, stored bool) jetstream.JetStream {
	return &lostAnswer{JetStream: js, stored: stored}
}

// LateWrite returns a JetStream whose first creation of a key has no result, and takes effect right before the second one: its
// writer has looked for it meanwhile, and not found it.
func LateWrite(js jetstream.JetStream) jetstream.JetStream {
	return &lostAnswer{JetStream: js, late: true}
}

type lostAnswer struct {
	jetstream.JetStream
	stored, late bool
	lost         atomic.Bool
	held         atomic.Pointer[heldWrite]
}

type heldWrite struct {
	key   string
	value []byte
}

func (l *lostAnswer) KeyValue(ctx context.Context, bucket string) (jetstream.KeyValue, error) {
	kv, err := l.JetStream.KeyValue(ctx, bucket)
	return lostAnswerKV{kv, l}, err
}

type lostAnswerKV struct {
	jetstream.KeyValue
	from *lostAnswer
}

func (k lostAnswerKV) Create(ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt) (uint64, error) {
	if k.from.lost.Swap(true) {
		if late := k.from.held.Swap(nil); late != nil {
			if _, err := k.KeyValue.Create(ctx, late.key, late.value, opts...); err != nil {
				return 0, err
			}
		}
		return k.KeyValue.Create(ctx, key, value, opts...)
	}
	if k.from.late {
		k.from.held.Store(&heldWrite{key, value})
	}
	if k.from.stored {
		if _, err := k.KeyValue.Create(ctx, key, value, opts...); err != nil {
			return 0, err
		}
	}
	return 0, nats.ErrTimeout
}
