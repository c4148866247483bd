package once

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/share"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Most bounds a value, in bytes.
const Most = 768 << 10

// The times for which values are kept.
const (
	// Day is of answers.
	Day = topology.OnceFor
	// Short is of requests whose retry has the same effect whether they are remembered or not.
	Short = 10 * time.Minute
	// Minute is of tokens.
	Minute = time.Minute
)

// Owner is whose value is kept, and how long: Day, Short or Minute. Client "" has no share.
type Owner struct {
	Client string
	For    time.Duration
}

// Store is the bucket, and the shares of clients in it at this server. A nil Store is of a server without it: its methods fail.
type Store struct {
	js     jetstream.JetStream
	names  [32]byte
	values *seal.Box
	shares map[time.Duration]*share.Share
}

// Open prepares the store of a log; it sends no request. The secret is one that all servers have, such as the code key. A server
// opens it once, since shares are counted there.
func Open(js jetstream.JetStream, secret [32]byte, log string) *Store {
	s := &Store{js: js, values: seal.NewBox(secret, log, "scrip once v1"), shares: map[time.Duration]*share.Share{}}
	for _, d := range []time.Duration{Day, Short, Minute} {
		s.shares[d] = share.New(topology.OnceShare, d, nil)
	}
	h := hmac.New(sha256.New, secret[:])
	h.Write([]byte("scrip once names v1\n" + log))
	h.Sum(s.names[:0])
	return s
}

// Used is the share of a client in bytes, the most that one of them uses of it, and how often a client was refused.
func (s *Store) Used() (bytes, used int, refused uint64) {
	for _, one := range s.shares {
		of, most, no := one.Used()
		bytes, used, refused = of, max(used, most), refused+no
	}
	return bytes, used, refused
}

// overhead is what a value takes in the bucket beside its bytes: its subject, headers and record.
const overhead = 256

// markerTTL is how long the mark of a value that was taken stays.
const markerTTL = 10 * time.Second

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
// should start with what it is of, such as "token ". After an error the value may be stored, unless that is a *share.UsedUp or natsx.IsFull.
func (s *Store) Create(ctx context.Context, of Owner, name string, value []byte) (existing []byte, err error) {
	if s == nil {
		return nil, errNone
	}
	if err := fits(value); err != nil {
		return nil, err
	}
	mine := s.shares[of.For]
	if wait := mine.Take(of.Client, len(value)+overhead); wait > 0 {
		existing, ok, err := s.Get(ctx, name) // a retry needs no room
		if !ok && err == nil {
			err = &share.UsedUp{Of: "answers and tokens", Wait: wait}
		}
		return existing, err
	}
	var sealed []byte
	err = s.do(ctx, name, func(ctx context.Context, kv jetstream.KeyValue, key string) error {
		if sealed == nil {
			sealed = s.values.Seal(value, key)
		}
		_, err := kv.Create(ctx, key, sealed, jetstream.KeyTTL(of.For))
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
	if existing != nil || err != nil {
		mine.GiveBack(of.Client, len(value)+overhead)
	}
	return existing, err
}

func fits(value []byte) error {
	if len(value) > Most {
		return fmt.Errorf("a value has %d bytes, at most %d are kept", len(value), Most)
	}
	return nil
}

// keep replaces the value of a name, for as long as one that is created.
func (s *Store) keep(ctx context.Context, of Owner, name string, value []byte) error {
	if err := fits(value); err != nil {
		return err
	}
	s.shares[of.For].Owe(of.Client, len(value)) // it has had its effect, and its sender may need the answer
	return s.do(ctx, name, func(ctx context.Context, _ jetstream.KeyValue, key string) error {
		_, err := s.js.Publish(ctx, "$KV."+topology.OnceBucket+"."+key, s.values.Seal(value, key), jetstream.WithMsgTTL(of.For))
		return err
	})
}

// Put stores a value of a server for a day, whatever the name has. After an error it may be stored.
func (s *Store) Put(ctx context.Context, name string, value []byte) error {
	if err := fits(value); err != nil {
		return err
	}
	return s.do(ctx, name, func(ctx context.Context, kv jetstream.KeyValue, key string) error {
		_, err := kv.Put(ctx, key, s.values.Seal(value, key))
		return err
	})
}

// Get returns a value, not nil; ok is false if the name has none.
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
	return s.take(ctx, name, nil)
}

// take is Take. Unless only is nil, another value stays.
func (s *Store) take(ctx context.Context, name string, only []byte) (value []byte, ok bool, err error) {
	err = s.do(ctx, name, func(ctx context.Context, kv jetstream.KeyValue, key string) error {
		entry, err := kv.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil
		}
		if err == nil {
			value, err = s.values.Open(entry.Value(), key)
		}
		if err != nil || only != nil && !bytes.Equal(value, only) {
			return err
		}
		err = kv.Purge(ctx, key, jetstream.LastRevision(entry.Revision()), jetstream.PurgeTTL(markerTTL))
		if natsx.IsWrongSequence(err) { // another caller has it
			return nil
		}
		ok = err == nil
		return err
	})
	if !ok {
		return nil, false, err
	}
	return value, true, nil
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

// Request is a request that is carried out once.
type Request struct {
	Owner
	// ID is of the owner's choice, and Body what is requested.
	ID   string
	Body []byte
	// Repeatable: it may be carried out again also after it was cut off.
	Repeatable bool
	// Again: its answer is not kept, since carrying it out again has no second effect and gives the same. It is Repeatable. Where there
	// is no room it is carried out without being remembered: its id guards it against another request only.
	Again bool
}

// nameLength is how long the random name of a request is.
const nameLength = 20

// newName returns a random name of letters and digits.
func newName() string { return strings.ToLower(rand.Text()[:nameLength]) }

// Do carries out a request unless it was carried out under this id before: then it returns the first answer, which is never empty, or
// that of a repeat. replayed: it was sent before. do returns the answer; forget: it may be carried out again, because it had no effect
// or has none twice. name is random: what the request makes is named after it, and not after the id, which its client may use for
// another request once this one is forgotten.
//
// Only the first attempt forgets, and not what another one has kept: an attempt without an effect does not show that no other one
// had it, and the name is in the record alone.
//
// A crash before the answer is kept leaves the id without one: a retry gets ErrCutOff, and its sender reads what is there. Where the
// request may be carried out again, it is under the same name.
func (s *Store) Do(ctx context.Context, r Request, do func(name string) (answer []byte, forget bool, err error)) (answer []byte, replayed bool, err error) {
	sum, key, name := sha256.Sum256(r.Body), "request "+r.Client+" "+r.ID, newName()
	have, err := s.Create(ctx, r.Owner, key, append(sum[:], name...))
	if usedUp := (*share.UsedUp)(nil); r.Again && (errors.As(err, &usedUp) || natsx.IsFull(err)) {
		answer, _, err = do(name)
		return answer, false, err
	}
	const head = sha256.Size + nameLength
	switch {
	case err != nil:
		return nil, false, err
	case have != nil && (len(have) < head || !bytes.HasPrefix(have, sum[:])):
		return nil, false, ErrReused
	case len(have) > head:
		return have[head:], true, nil
	case have != nil && !r.Repeatable && !r.Again:
		return nil, false, ErrCutOff
	case have != nil:
		name = string(have[sha256.Size:])
	}
	answer, forget, err := do(name)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepWait)
	defer cancel()
	record := append(sum[:], name...)
	switch { // a failure of either is as a crash
	case forget && (have == nil || r.Again):
		_, _, _ = s.take(ctx, key, record)
	case !forget && err == nil && !r.Again:
		_ = s.keep(ctx, r.Owner, key, append(record, answer...))
	}
	return answer, have != nil && r.Again, err
}
