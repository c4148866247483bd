package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// useStored is the least time between two stored uses of a key by one server.
	useStored = time.Hour
	// useLook is how often a server looks for uses to store.
	useLook = time.Minute
	// usePrefix is of the keys in topology.StateBucket that hold a lastUse. A loss costs nothing but that.
	usePrefix = "access.used."
)

// lastUse is how a key was used, as stored for all servers. It is no history: the newest value replaces the one before.
type lastUse struct {
	At    time.Time `json:"at"`
	Wrong int       `json:"wrong,omitempty"` // wrong codes in the hour that At is in
}

// wrongIn are the wrong codes of the hour that now is in.
func (u lastUse) wrongIn(now time.Time) int {
	if !u.At.Truncate(time.Hour).Equal(now.Truncate(time.Hour)) {
		return 0
	}
	return u.Wrong
}

// store stores uses that are newer by useStored than what was stored, and wrong codes. A crash loses at most that much, of wrong
// codes those of a minute.
func (u *uses) store(ctx context.Context, s *Store) error {
	var failed error
	u.at.Range(func(key, v any) bool {
		id, of := key.(string), v.(*use)
		at, tried := time.Unix(of.seconds.Load(), 0).UTC(), of.wrong.Swap(0)
		if tried == 0 && at.Sub(u.stored[id]) < useStored {
			return true
		}
		if failed = s.storeUse(ctx, id, lastUse{at, int(tried)}); failed != nil {
			of.wrong.Add(tried)
			return false
		}
		u.stored[id] = at
		return true
	})
	return failed
}

// storeUse stores a use unless another server has stored a later one, and adds its wrong codes. If another server stores at the
// same time it fails, and the next look stores it.
func (s *Store) storeUse(ctx context.Context, id string, u lastUse) error {
	ctx, done := context.WithTimeout(ctx, useWait)
	defer done()
	kv, err := s.js.KeyValue(ctx, topology.StateBucket)
	if err != nil {
		return err
	}
	revision := uint64(0)
	entry, err := kv.Get(ctx, usePrefix+id)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
	case err != nil:
		return err
	default:
		revision = entry.Revision()
		var before lastUse
		if json.Unmarshal(entry.Value(), &before) == nil {
			if u.Wrong == 0 && !before.At.Before(u.At) {
				return nil
			}
			if before.At.After(u.At) {
				u.At = before.At
			}
			u.Wrong += before.wrongIn(u.At)
		}
	}
	value, err := json.Marshal(u)
	if err == nil {
		_, err = kv.Update(ctx, usePrefix+id, value, revision)
	}
	return err
}

// useWait bounds the exchanges about the last use of one key, and the read of all.
const useWait = 5 * time.Second

// used reads how each key was used last.
func (s *Store) used(ctx context.Context) (map[string]lastUse, error) {
	ctx, done := context.WithTimeout(ctx, useWait)
	defer done()
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
	all := map[string]lastUse{}
	for {
		select {
		case e, ok := <-watch.Updates():
			if !ok || e == nil { // nil: all that is stored was sent
				return all, nil
			}
			var u lastUse
			if json.Unmarshal(e.Value(), &u) == nil {
				all[strings.TrimPrefix(e.Key(), usePrefix)] = u
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("reading when keys were used: %w", ctx.Err())
		}
	}
}
