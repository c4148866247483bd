package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// MaxOverlap is the longest time that a replaced key may go on working.
const MaxOverlap = 30 * 24 * time.Hour

// The kinds of refusals of a change: nothing was stored.
var (
	ErrInvalid   = errors.New("the request was refused")
	ErrNoSuchKey = errors.New("there is no such key")
	ErrNameTaken = errors.New("the name is taken")
	ErrEnded     = errors.New("the key was revoked or replaced before")
	ErrForbidden = errors.New("the author may not make this change")
)

// Options for Open. The clock also ends the overlaps of replaced keys.
type Options = registry.Options

// Store is the history of the keys. It may be used by several goroutines at once.
type Store struct {
	history *registry.Registry[*state, record]
	js      jetstream.JetStream
}

var spec = &registry.Spec[*state, record]{
	Bucket: topology.Access, Noun: "keys", See: "`scrip access list`, and revoke a key that has no owner",
	Restore: "restore the log from a backup, or make the keys again with `scrip access create`",
	New:     newState, Take: (*state).take,
	// A field that this version does not know may limit a key, so a change with one makes no key; but a revocation ends a key
	// whatever else it has.
	Kept:  func(r *record) bool { return r.Action == actionRevoke },
	Audit: audit.Keys, Entry: func(s *state, c *registry.Change[record]) (action, about string) {
		// The key's id, name and role, and in front the ids of the keys that end with it.
		k, ids := s.keys[c.Record.Key], slices.Clone(c.Record.Also)
		if c.Record.Action == actionRotate {
			ids = append(ids, k.Replaces)
		}
		return c.Record.Action, strings.Join(append(ids, k.ID, k.Name, k.Role.String()), " ")
	},
}

// Open prepares a store; it sends no request and makes nothing.
func Open(js jetstream.JetStream, opts Options) *Store {
	return &Store{registry.New(js, spec, opts), js}
}

// Create makes a key and stores its hash. secret is the key as its user presents it; it cannot be read again. The key is in
// force within a second at every server that can be reached. Errors: of kinds ErrForbidden, ErrInvalid and ErrNameTaken;
// registry.ErrUnknown and ErrUnrecorded, where a key may have been stored that no one has; any other, and nothing was stored.
func (s *Store) Create(ctx context.Context, n New, by Author) (k Key, secret string, err error) {
	n.Campaigns = slices.Clone(n.Campaigns)
	slices.Sort(n.Campaigns)
	n.Origins = slices.Sorted(slices.Values(n.Origins))
	n.NewOnly = n.Role == Producer && !n.Public && !n.Codes && !by.Codes
	if err := n.check(); err != nil {
		return Key{}, "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if p := (Principal{Name: n.Name, Role: n.Role}); p.Role == Sender && p.Audience() == "" {
		return Key{}, "", fmt.Errorf("%w: name: that of a sender starts with the audience that it delivers for, of A-Z a-z 0-9 _ -, such as mobile", ErrInvalid)
	}
	return s.write(ctx, by, func(st *state, at time.Time, d *drawn) (record, error) {
		if err := by.mayMake(&n); err != nil {
			return record{}, err
		}
		for _, other := range st.keys {
			if other.Name == n.Name && other.In(at) {
				return record{}, fmt.Errorf("%w: key %s has the name %q, which events show as `by`; choose another name, or replace that key with `scrip access rotate %s`", ErrNameTaken, other.ID, n.Name, other.ID)
			}
		}
		return d.draw(st, n.Role, record{Action: actionCreate, New: &n}), nil
	})
}

// Revoke ends at once the key with this id, or all keys with this name: a replaced one may be within its overlap. It returns the
// newest of them. A key that was revoked stays as it is. Errors: of kinds ErrForbidden and
// ErrNoSuchKey; registry.ErrUnknown and ErrUnrecorded; any other, and nothing was stored.
func (s *Store) Revoke(ctx context.Context, idOrName string, by Author) (Key, error) {
	k, _, err := s.write(ctx, by, func(st *state, _ time.Time, _ *drawn) (record, error) {
		all, err := st.revocable(idOrName)
		if err != nil {
			return record{}, err
		}
		r := record{Action: actionRevoke, Key: all[0].ID}
		for _, k := range all[1:] {
			r.Also = append(r.Also, k.ID)
		}
		if all[0].Revoked {
			err = registry.ErrUnchanged
		}
		return r, err
	})
	return k, err
}

// Rotate makes a key with the rights and the name of another, which ends when overlap is over, 0 = at once. Errors: of kinds
// ErrForbidden, ErrInvalid, ErrNoSuchKey and ErrEnded; registry.ErrUnknown and ErrUnrecorded; any other, and nothing was stored.
func (s *Store) Rotate(ctx context.Context, idOrName string, overlap time.Duration, by Author) (k Key, secret string, err error) {
	if overlap < 0 || overlap > MaxOverlap {
		return Key{}, "", fmt.Errorf("%w: overlap is %s, expected 0 to %s", ErrInvalid, overlap, MaxOverlap)
	}
	return s.write(ctx, by, func(st *state, at time.Time, d *drawn) (record, error) {
		k, err := st.named(idOrName)
		if err == nil {
			err = by.mayReplace(&k.New)
		}
		if err != nil {
			return record{}, err
		}
		if !k.Ended.IsZero() {
			return record{}, fmt.Errorf("%w: key %s; make a new one with `scrip access create`", ErrEnded, k.ID)
		}
		r := record{Action: actionRotate, Replaces: k.ID}
		if overlap > 0 {
			r.Until = at.Add(overlap)
		}
		return d.draw(st, k.Role, r), nil
	})
}

// write stores a change. All changes of keys pass here.
func (s *Store) write(ctx context.Context, by Author, make func(*state, time.Time, *drawn) (record, error)) (Key, string, error) {
	if err := by.Check(OpManageKeys, ""); err != nil {
		return Key{}, "", err
	}
	var d drawn
	c, st, err := s.history.Write(ctx, by.Entry(audit.Keys, "", ""), func(st *state, at time.Time) (record, error) { return make(st, at, &d) })
	var invalid *registry.InvalidError
	switch {
	case errors.As(err, &invalid):
		return Key{}, "", fmt.Errorf("%w: %w", ErrInvalid, err)
	case err != nil:
		return Key{}, "", err
	}
	return *st.keys[c.Record.Key], d.secret, nil
}

// drawn is a new key. It is drawn once: a try whose result is not known may be stored late, and must be the same key then.
type drawn struct{ secret, id, scram string }

// draw adds the key to a record, with an id that no key has.
func (d *drawn) draw(st *state, role Role, r record) record {
	for d.secret == "" || st.keys[d.id] != nil {
		d.secret, d.id = newKey(role)
		if role == Analyst {
			d.scram = scramOf(d.secret)
		}
	}
	hash := digest(d.secret)
	r.Key, r.SHA256, r.SCRAM = d.id, hash[:], d.scram
	return r
}

// List returns all keys ever made, oldest first, with their last use.
func (s *Store) List(ctx context.Context) ([]Key, error) {
	f, err := s.history.Read(ctx)
	if err != nil {
		return nil, err
	}
	all := f.State.list()
	used, err := s.used(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		u := used[all[i].ID]
		all[i].LastUsed, all[i].WrongCodes = u.At, u.wrongIn(s.history.Clock.Now())
	}
	return all, nil
}
