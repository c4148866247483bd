package lease

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	bucketStream  = "KV_" + topology.LeaseBucket
	bucketSubject = "$KV." + topology.LeaseBucket + "."
	// whatever is the revision of a write that replaces any other.
	whatever = math.MaxUint64
	// operationHeader marks what a client deleted.
	operationHeader = "KV-Operation"
	// codeWrongRevision is the error, with the actual revision, of a write with another one. 10164, on replicated buckets, is
	// none: another write is in flight, and the key is as it was.
	codeWrongRevision jetstream.ErrorCode = 10071
)

// store is the bucket: natsStore, or one in memory in tests. Its methods may be called by several goroutines at once. Any
// error but a *conflictError leaves open whether the write took effect.
type store interface {
	// put writes a key that expires after ttl, if its revision is still the expected one: 0 = it never existed, or whatever.
	put(ctx context.Context, key string, value []byte, ttl time.Duration, expected uint64) (revision uint64, err error)
	// remove replaces a key by a marker that stays for markerTTL, if its revision is still the expected one.
	remove(ctx context.Context, key string, expected uint64) error
	// last reads a key from the bucket's leader; ok is false if it never existed.
	last(ctx context.Context, key string) (u update, ok bool, err error)
	// watch reports a group's keys.
	watch(ctx context.Context, group string) (*watcher, error)
}

// conflictError: a write was refused because the key has another revision, 0 = it does not exist.
type conflictError struct{ actual uint64 }

func (e *conflictError) Error() string { return fmt.Sprintf("the key's revision is %d", e.actual) }

// update is a change of one key, or its state when the watcher started.
type update struct {
	key      string // empty: there were no keys
	value    []byte
	revision uint64
	stored   time.Time // by the server's clock
	gone     bool      // deleted, or expired
	expired  bool      // expired
	complete bool      // all keys that existed when the watcher started have been seen
}

// natsStore is the bucket in NATS.
type natsStore struct {
	js      jetstream.JetStream
	retries int // of a write that nothing responds to
}

func (s natsStore) put(ctx context.Context, key string, value []byte, ttl time.Duration, expected uint64) (uint64, error) {
	msg := nats.NewMsg(bucketSubject + key)
	msg.Data = value
	return s.publish(ctx, msg, ttl, expected) // KeyValue.Update would drop the TTL, and the key would never expire
}

func (s natsStore) remove(ctx context.Context, key string, expected uint64) error {
	msg := nats.NewMsg(bucketSubject + key)
	msg.Header.Set(operationHeader, "PURGE")
	msg.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	_, err := s.publish(ctx, msg, markerTTL, expected)
	return err
}

func (s natsStore) publish(ctx context.Context, msg *nats.Msg, ttl time.Duration, expected uint64) (uint64, error) {
	opts := []jetstream.PublishOpt{jetstream.WithMsgTTL(ttl), jetstream.WithRetryAttempts(s.retries)}
	if expected != whatever {
		opts = append(opts, jetstream.WithExpectLastSequencePerSubject(expected))
	}
	ack, err := s.js.PublishMsg(ctx, msg, opts...)
	if err != nil {
		return 0, conflict(err)
	}
	return ack.Sequence, nil
}

// conflict returns the error of a write as a *conflictError if it is one.
func conflict(err error) error {
	var api *jetstream.APIError
	if !errors.As(err, &api) || api.ErrorCode != codeWrongRevision {
		return err
	}
	_, number, _ := strings.Cut(api.Description, ": ")
	actual, problem := strconv.ParseUint(number, 10, 64)
	if problem != nil {
		return err
	}
	return &conflictError{actual}
}

// A direct get, as of KeyValue.Get, may be answered by a replica that lags.
func (s natsStore) last(ctx context.Context, key string) (update, bool, error) {
	msg, ok, err := natsx.LastMessage(ctx, s.js, bucketStream, bucketSubject+key)
	if err != nil || !ok {
		return update{}, false, err
	}
	u := update{key: key, value: msg.Data, revision: msg.Sequence, stored: msg.Time}
	u.mark(msg.Header)
	return u, true, nil
}

// mark notes what the headers say: deleted by a client, or a marker that the server left when the TTL expired.
func (u *update) mark(h nats.Header) {
	reason := h.Get(jetstream.MarkerReasonHeader)
	u.gone, u.expired = reason != "" || h.Get(operationHeader) != "", reason == "MaxAge"
}
