package lease

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	leasePrefix  = "lease."
	serverPrefix = "server."
	// markerTTL is how long the marker of a released lease or lock stays; longer than any watcher is disconnected.
	markerTTL = time.Minute
	// abandoned is the age at which Inspect and Locked ignore a key, by this machine's clock: nats-server 2.15 can forget the
	// TTL of a key in a crash, or restore a key that had expired; the key then never expires. Owners write their keys again
	// every 8 s at most, holders of locks every 3 s; the rest allows for clocks that differ.
	abandoned = time.Minute
)

// record is the value of a lease and of an announcement.
type record struct {
	Server string    `json:"server"`
	Nonce  string    `json:"nonce"` // of this run of the server
	Since  time.Time `json:"since"`
	// Started is when that run started.
	Started time.Time `json:"started"`
}

func leaseKey(group string, key int) string { return leasePrefix + group + "." + strconv.Itoa(key) }
func serverKey(group, server string) string { return serverPrefix + group + "." + server }
func cutKey(key, prefix, group string) (string, bool) {
	return strings.CutPrefix(key, prefix+group+".")
}

// Holder is the holder of a lease, as it recorded itself.
type Holder struct {
	Key    int
	Server string
	Since  time.Time
	// Revision rises with every renewal.
	Revision uint64
}

// Status is a snapshot of a group.
type Status struct {
	// Servers alive, sorted.
	Servers []string
	// Holders by key; Server is empty if the key has no holder.
	Holders []Holder
}

// Inspect reads which servers are alive and what they hold. It may lag a little. A key that was not written for a minute does
// not count.
func Inspect(ctx context.Context, js jetstream.JetStream, group string, keys int) (Status, error) {
	return inspect(ctx, natsStore{js: js}, group, keys)
}

func inspect(ctx context.Context, bucket store, group string, keys int) (Status, error) {
	w, err := bucket.watch(ctx, group)
	if err != nil {
		return Status{}, fmt.Errorf("reading leases: %w", err)
	}
	defer w.stop()
	view := newView(keys)
	for {
		select {
		case <-ctx.Done():
			return Status{}, fmt.Errorf("reading leases: %w", ctx.Err())
		case err := <-w.trouble:
			return Status{}, fmt.Errorf("reading leases: %w", err)
		case u := <-w.updates:
			if u.key != "" && time.Since(u.stored) > abandoned {
				u.gone = true
			}
			view.apply(group, u, time.Now())
			if !u.complete {
				continue
			}
		}
		status := Status{Servers: view.alive()}
		for key, e := range view.leases {
			status.Holders = append(status.Holders, Holder{Key: key, Server: e.rec.Server, Since: e.rec.Since, Revision: e.revision})
		}
		return status, nil
	}
}

// entry is the last known value of a key.
type entry struct {
	rec      record // zero: no holder
	revision uint64
	seen     time.Time // when this revision was first seen here, by this machine's clock
	expired  bool      // no holder because it expired while this process watched
	unknown  bool      // only the revision is known, from a write that was refused
}

// view is the bucket's content as far as known.
type view struct {
	leases   []entry
	servers  map[string]entry // those that are gone included
	complete bool             // it was read once
}

func newView(keys int) *view {
	return &view{leases: make([]entry, keys), servers: map[string]entry{}}
}

// apply applies an update and returns it as an entry. An older one than known changes nothing, and one that is read again
// does not count as a sign of life.
func (v *view) apply(group string, u update, now time.Time) entry {
	e := entry{revision: u.revision, seen: now, expired: u.expired && v.complete}
	if !u.gone {
		if err := json.Unmarshal(u.value, &e.rec); err != nil || e.rec.Server == "" {
			e.rec = record{} // not a record of this package; free to take
		}
	}
	newer := func(than entry) bool {
		return e.revision > than.revision || e.revision == than.revision && than.unknown
	}
	if name, ok := cutKey(u.key, serverPrefix, group); ok && newer(v.servers[name]) {
		v.servers[name] = e
	}
	if number, ok := cutKey(u.key, leasePrefix, group); ok {
		key, err := strconv.Atoi(number)
		if err == nil && key >= 0 && key < len(v.leases) && newer(v.leases[key]) {
			v.leases[key] = e
		}
	}
	return e
}

// alive returns the announced servers, sorted.
func (v *view) alive() []string {
	names := make([]string, 0, len(v.servers))
	for name, e := range v.servers {
		if e.rec.Server != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
