package once

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Most bounds a value, in bytes.
const Most = 768 << 10

// Store is the bucket. A nil Store is of a server without it: its methods fail.
type Store struct {
	js     jetstream.JetStream
	names  [32]byte
	values *seal.Box
}

// Open prepares the store of a log; it sends no request. The secret is one that all servers have, such as the code key.
func Open(js jetstream.JetStream, secret [32]byte, log string) *Store {
	s := &Store{js: js, values: seal.NewBox(secret, log, "scrip once v1")}
	h := hmac.New(sha256.New, secret[:])
	h.Write([]byte("scrip once names v1\n" + log))
	h.Sum(s.names[:0])
	return s
}

// errNone is the error of a nil Store.
var errNone = errors.New("this server cannot remember requests")

// open returns the bucket, and the key of a name.
func (s *Store) open(ctx context.Context, name string) (jetstream.KeyValue, string, error) {
	if s == nil {
		return nil, "", errNone
	}
	kv, err := s.js.KeyValue(ctx, topology.OnceBucket)
	h := hmac.New(sha256.New, s.names[:])
	h.Write([]byte(name))
	return kv, hex.EncodeToString(h.Sum(nil)), err
}

// do calls f with the bucket and the key of a name, and again until the server answers or ctx ends.
func (s *Store) do(ctx context.Context, name string, f func(context.Context, jetstream.KeyValue, string) error) error {
	err := natsx.Retry(ctx, func(ctx context.Context) error {
		kv, key, err := s.open(ctx, name)
		if err != nil {
			return err
		}
		return f(ctx, kv, key)
	})
	if err != nil {
		return fmt.Errorf("bucket %s: %w", topology.OnceBucket, err)
	}
	return nil
}

// Create stores a value under a name that has none. If it has one, existing is that, never nil, and nothing is changed. The name
// should start with what it is of, such as "token ". After an error the value may be stored.
func (s *Store) Create(ctx context.Context, name string, value []byte) (existing []byte, err error) {
	if len(value) > Most {
		return nil, fmt.Errorf("a value has %d bytes, at most %d are kept", len(value), Most)
	}
	var sealed []byte
	err = s.do(ctx, name, func(ctx context.Context, kv jetstream.KeyValue, key string) error {
		if sealed == nil {
			sealed = s.values.Seal(value, key)
		}
		_, err := kv.Create(ctx, key, sealed)
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return err
		}
		entry, err := kv.Get(ctx, key)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			return natsx.ErrAgain // it was taken in this moment
		case err != nil || bytes.Equal(entry.Value(), sealed): // of an attempt whose answer was lost
			return err
		}
		existing, err = s.values.Open(entry.Value(), key)
		return err
	})
	return existing, err
}

// Put stores a value, whatever the name has. After an error it may be stored.
func (s *Store) Put(ctx context.Context, name string, value []byte) error {
	if len(value) > Most {
		return fmt.Errorf("a value has %d bytes, at most %d are kept", len(value), Most)
	}
	return s.do(ctx, name, func(ctx context.Context, kv jetstream.KeyValue, key string) error {
		_, err := kv.Put(ctx, key, s.values.Seal(value, key))
		return err
	})
}

// Get returns a value; ok is false if the name has none.
func (s *Store) Get(ctx context.Context, name string) (value []byte, ok bool, err error) {
	err = s.do(ctx, name, func(ctx context.Context, kv jetstream.KeyValue, key string) error {
		entry, err := kv.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil
		}
		if err == nil {
			value, err = s.values.Open(entry.Value(), key)
		}
		ok = err == nil
		return err
	})
	return value, ok, err
}

// Take removes a value and returns it; ok is false if the name has none. Of several callers at once one gets it. After an error it
// may be removed.
func (s *Store) Take(ctx context.Context, name string) (value []byte, ok bool, err error) {
	err = s.do(ctx, name, func(ctx context.Context, kv jetstream.KeyValue, key string) error {
		entry, err := kv.Get(ctx, key)
		if err == nil {
			err = kv.Delete(ctx, key, jetstream.LastRevision(entry.Revision()))
		}
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound), natsx.IsWrongSequence(err): // another caller has it
			return nil
		case err != nil:
			return err
		}
		value, err = s.values.Open(entry.Value(), key)
		ok = err == nil
		return err
	})
	return value, ok, err
}

// The kinds of refusals of Do: nothing was done now.
var (
	// ErrReused: the id was used for another request.
	ErrReused = errors.New("this id was used for another request; send this one with an id of its own")
	// ErrCutOff: the first request with this id is under way, or its answer was not kept.
	ErrCutOff = errors.New("the first request with this id is under way, or was cut off, and may have had its effect")
)

// keepWait bounds the exchange that keeps an answer, whether its client waits or not.
const keepWait = 5 * time.Second

// Do carries out a request unless it was carried out under this id before: then it returns the first answer, which is never empty.
// do returns the answer; forget: it may be carried out again, because it had no effect or has none twice. repeatable: it may be
// carried out again also after it was cut off.
//
// A crash before the answer is kept leaves the id without one: a retry gets ErrCutOff, and its sender reads what is there.
func (s *Store) Do(ctx context.Context, id string, request []byte, repeatable bool, do func() (answer []byte, forget bool, err error)) (answer []byte, replayed bool, err error) {
	sum := sha256.Sum256(request)
	have, err := s.Create(ctx, id, sum[:])
	switch {
	case err != nil:
		return nil, false, err
	case have != nil && !bytes.HasPrefix(have, sum[:]):
		return nil, false, ErrReused
	case len(have) > len(sum):
		return have[len(sum):], true, nil
	case have != nil && !repeatable:
		return nil, false, ErrCutOff
	}
	answer, forget, err := do()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepWait)
	defer cancel()
	if forget { // a failure of either is as a crash
		_, _, _ = s.Take(ctx, id)
	} else if err == nil {
		_ = s.Put(ctx, id, append(sum[:], answer...))
	}
	return answer, false, err
}
