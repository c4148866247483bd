// Package optout is the list of the customers who want no reminders.
//
//	scrip optout, /v1/opt-outs ── Store ──> KV SCRIP_OPTOUT, a key for each customer ──> List in each sender: before each call
//
// Owner: the bucket. A List is a copy of its keys in memory, 16 bytes of hash for each customer; it is as current as the bucket
// whenever it is read, because each look reads the bucket's last sequence first and waits for it.
//
// No call for a customer starts once Add is answered. A call starts at most [LookFor] after its look began, and Add waits twice as
// long after the entry is stored: whoever has looked before has made its call by then. Calls in progress are not recalled.
//
// A crash loses nothing: what was stored is in the bucket, answered or not, and a List is read again from the first key on.
package optout

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// LookFor is how long after a look at a List has begun its calls may start. Later the look is repeated.
const LookFor = 500 * time.Millisecond

const (
	headerOperation = "KV-Operation" // of a key that was removed
	subjects        = "$KV." + topology.OptOutBucket + "."
)

// Entry is a customer who wants no reminders.
type Entry struct {
	CustomerID string    `json:"customer_id"`
	At         time.Time `json:"at,omitzero" doc:"Since when."`
	By         string    `json:"by,omitempty" doc:"The person who added the customer."`
	Reason     string    `json:"reason,omitempty"`
}

// Store changes the list. It has no state.
type Store struct{ js jetstream.JetStream }

// NewStore returns a Store. It sends no request.
func NewStore(js jetstream.JetStream) *Store { return &Store{js} }

// keyOf is a customer's key: ids may have characters that a key may not.
func keyOf(customer string) string { return base64.RawURLEncoding.EncodeToString([]byte(customer)) }

// Add adds a customer, or finds the entry that there is. It returns when no call for the customer will start any more. After an
// error the entry may be stored: add it again.
func (s *Store) Add(ctx context.Context, e Entry) (Entry, error) {
	kv, err := s.bucket(ctx)
	if err != nil {
		return e, err
	}
	value, err := json.Marshal(e)
	if err != nil {
		return e, err
	}
	if _, err = kv.Create(ctx, keyOf(e.CustomerID), value); errors.Is(err, jetstream.ErrKeyExists) {
		e, _, err = s.Get(ctx, e.CustomerID)
	}
	if err == nil { // also where it exists: it may have been stored just now
		err = natsx.Pause(ctx, 2*LookFor)
	}
	return e, err
}

// Remove removes a customer, who gets reminders again.
func (s *Store) Remove(ctx context.Context, customer string) error {
	kv, err := s.bucket(ctx)
	if err != nil {
		return err
	}
	return kv.Delete(ctx, keyOf(customer))
}

// Get returns the entry of a customer; ok is false if there is none.
func (s *Store) Get(ctx context.Context, customer string) (e Entry, ok bool, err error) {
	kv, err := s.bucket(ctx)
	if err != nil {
		return e, false, err
	}
	found, err := kv.Get(ctx, keyOf(customer))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return e, false, nil
	}
	if err == nil {
		err = json.Unmarshal(found.Value(), &e)
	}
	return e, err == nil, err
}

func (s *Store) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := s.js.KeyValue(ctx, topology.OptOutBucket)
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", topology.OptOutBucket, err)
	}
	return kv, nil
}

// List looks customers up. It follows the bucket from the first look on, until Close.
type List struct {
	js jetstream.JetStream

	mu       sync.Mutex
	reading  jetstream.ConsumeContext // nil = it has not started
	all      map[hash]struct{}
	sequence uint64        // folded
	folded   chan struct{} // closed when that rises
}

type hash [16]byte

func hashOf(key string) (h hash) {
	sum := sha256.Sum256([]byte(key))
	copy(h[:], sum[:])
	return h
}

// NewList returns a List. It sends no request.
func NewList(js jetstream.JetStream) *List {
	return &List{js: js, all: map[hash]struct{}{}, folded: make(chan struct{})}
}

// Of returns which of these customers are in the list, as it is now or became since: see LookFor. An error means that it is not
// known.
func (l *List) Of(ctx context.Context, customers []string) (out map[string]bool, err error) {
	if err := l.start(ctx); err != nil {
		return nil, err
	}
	info, err := natsx.Info(ctx, l.js, topology.OptOutStream, "")
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", topology.OptOutStream, err)
	}
	if err := l.await(ctx, info.State.LastSeq); err != nil {
		return nil, err
	}
	return l.among(customers), nil
}

// start starts to read the bucket.
func (l *List) start(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reading != nil {
		return nil
	}
	consumer, err := l.js.OrderedConsumer(ctx, topology.OptOutStream, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err == nil {
		l.reading, err = consumer.Consume(l.fold)
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", topology.OptOutStream, err)
	}
	return nil
}

func (l *List) fold(m jetstream.Msg) {
	at, err := m.Metadata()
	if err != nil {
		return // no message of the stream
	}
	h := hashOf(strings.TrimPrefix(m.Subject(), subjects))
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.Headers().Get(headerOperation) == "" {
		l.all[h] = struct{}{}
	} else {
		delete(l.all, h)
	}
	l.sequence = at.Sequence.Stream
	close(l.folded)
	l.folded = make(chan struct{})
}

// await waits until all up to a sequence is folded.
func (l *List) await(ctx context.Context, sequence uint64) error {
	for {
		l.mu.Lock()
		at, folded := l.sequence, l.folded
		l.mu.Unlock()
		if at >= sequence {
			return nil
		}
		select {
		case <-folded:
		case <-ctx.Done():
			return fmt.Errorf("stream %s: read up to message %d of %d: %w", topology.OptOutStream, at, sequence, ctx.Err())
		}
	}
}

func (l *List) among(customers []string) map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return nil
	}
	out := map[string]bool{}
	for _, c := range customers {
		if _, there := l.all[hashOf(keyOf(c))]; there {
			out[c] = true
		}
	}
	return out
}

// Close ends the reading. It may be called at any time, once.
func (l *List) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reading != nil {
		l.reading.Stop()
	}
}
