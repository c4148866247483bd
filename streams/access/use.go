package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// useStored is the least time between two stored uses of a key by one server.
	useStored = time.Hour
	// useLook is how often a server looks for uses to store.
	useLook = time.Minute
	// usePrefix is of the keys in topology.StateBucket that hold when a key was used last. They are no history: the newest
	// value replaces the one before, and a loss costs nothing but the time.
	usePrefix = "access.used."
)

// uses are when keys were used last, as this server knows.
type uses struct {
	at sync.Map // id of a key → *use

	stored map[string]time.Time // owned by Run: what was stored last, per key
}

type use struct{ seconds atomic.Int64 } // since 1970

// note records a use. It is called with every request.
func (u *uses) note(id string, now time.Time) {
	v, ok := u.at.Load(id)
	if !ok {
		v, _ = u.at.LoadOrStore(id, &use{})
	}
	if s := now.Unix(); v.(*use).seconds.Load() < s { // most requests of a second only read
		v.(*use).seconds.Store(s)
	}
}

// store stores the uses that are newer by useStored than what was stored. A crash loses at most that much.
func (u *uses) store(ctx context.Context, s *Store) error {
	var failed error
	u.at.Range(func(id, v any) bool {
		at := time.Unix(v.(*use).seconds.Load(), 0).UTC()
		if at.Sub(u.stored[id.(string)]) < useStored {
			return true
		}
		if failed = s.storeUse(ctx, id.(string), at); failed != nil {
			return false
		}
		u.stored[id.(string)] = at
		return true
	})
	return failed
}

// storeUse stores a use unless another server has stored a later one.
func (s *Store) storeUse(ctx context.Context, id string, at time.Time) error {
	ctx, done := context.WithTimeout(ctx, useWait)
	defer done()
	kv, err := s.js.KeyValue(ctx, topology.StateBucket)
	if err != nil {
		return err
	}
	entry, err := kv.Get(ctx, usePrefix+id)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
	case err != nil:
		return err
	default:
		if before, err := time.Parse(time.RFC3339, string(entry.Value())); err == nil && !before.Before(at) {
			return nil
		}
	}
	_, err = kv.Put(ctx, usePrefix+id, []byte(at.Format(time.RFC3339)))
	return err
}

// useWait bounds the exchanges about the last use of one key.
const useWait = 5 * time.Second

// used reads when each key was used last.
func (s *Store) used(ctx context.Context) (map[string]time.Time, error) {
	kv, err := s.js.KeyValue(ctx, topology.StateBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading when keys were used: %w", err)
	}
	watch, err := kv.Watch(ctx, usePrefix+">", jetstream.IgnoreDeletes())
	if err != nil {
		return nil, fmt.Errorf("reading when keys were used: %w", err)
	}
	defer func() { _ = watch.Stop() }()
	all := map[string]time.Time{}
	for {
		select {
		case e, ok := <-watch.Updates():
			if !ok || e == nil { // nil: all that is stored was sent
				return all, nil
			}
			if at, err := time.Parse(time.RFC3339, string(e.Value())); err == nil {
				all[strings.TrimPrefix(e.Key(), usePrefix)] = at
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("reading when keys were used: %w", ctx.Err())
		}
	}
}
