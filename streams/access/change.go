package access

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/registry"
)

// The actions of changes.
const (
	actionCreate = "create"
	actionRevoke = "revoke"
	actionRotate = "rotate"
)

// record is the value of a change: one key is made, revoked, or replaced by another. A replacement is one record, so that a
// crash leaves the old key or both, never none.
type record struct {
	Action string `json:"action"`
	Key    string `json:"key"` // id
	Role   string `json:"role,omitempty"`
	Name   string `json:"name,omitempty"`
	// Campaigns, Public, Codes and Rate are of a created key. A replacement has those of the key that it replaces.
	Campaigns []string `json:"campaigns,omitempty"`
	Public    bool     `json:"public,omitempty"`
	Codes     bool     `json:"codes,omitempty"`
	Rate      int      `json:"rate,omitempty"`
	SHA256    string   `json:"sha256,omitempty"`
	// Also are the ids of further keys that a revocation ends.
	Also []string `json:"also,omitempty"`
	// Replaces is the id of the key that a rotation ends, at Until; without, at once.
	Replaces string    `json:"replaces,omitempty"`
	Until    time.Time `json:"until,omitzero"`
}

// Key is a key as the registry shows it: everything but its secret.
type Key struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Role      Role     `json:"role"`
	Campaigns []string `json:"campaigns,omitempty"`
	Public    bool     `json:"public,omitempty"`
	Codes     bool     `json:"codes,omitempty"`
	Rate      int      `json:"rate,omitempty"`

	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
	// Ended is when it was revoked or replaced, or when the overlap of its rotation ends; zero = it is in force.
	Ended   time.Time `json:"ended,omitzero"`
	EndedBy string    `json:"ended_by,omitempty"`
	// Revoked: it was revoked, or replaced at once. It is not in force, whatever a clock says of Ended.
	Revoked bool `json:"revoked,omitempty"`
	// Replaces and ReplacedBy are ids of the keys of a rotation.
	Replaces   string `json:"replaces,omitempty"`
	ReplacedBy string `json:"replaced_by,omitempty"`
	// LastUsed is late by up to an hour; zero = never.
	LastUsed time.Time `json:"last_used,omitzero"`
	// WrongCodes were tried with it in this hour of UTC, at all servers, but for those of the last minute.
	WrongCodes int `json:"wrong_codes,omitempty"`

	first string // id of the first key of the rotations that led to it; "" = its own
	hash  [sha256.Size]byte
}

// MarshalText writes a role as its name.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the name of a role. Unlike ParseRole it accepts those without keys.
func (r *Role) UnmarshalText(text []byte) error {
	for i, name := range roleNames {
		if name != "" && name == string(text) {
			*r = Role(i)
			return nil
		}
	}
	return fmt.Errorf("role is %q, which is none of scrip's", shorten(string(text)))
}

// Principal is who uses the key.
func (k *Key) Principal() Principal {
	return Principal{ID: k.ID, First: k.first, Name: k.Name, Role: k.Role, Campaigns: k.Campaigns, Public: k.Public, Codes: k.Codes, Rate: k.Rate}
}

// In reports whether the key is in force at an instant. Clocks differ between servers, so only the end of an overlap depends on
// one.
func (k *Key) In(now time.Time) bool { return !k.Revoked && (k.Ended.IsZero() || now.Before(k.Ended)) }

// check returns an error if a key cannot be made. It names the field.
func (k *Key) check() error {
	if err := CheckName(k.Name); err != nil {
		return err
	}
	if !slices.Contains(Keyed, k.Role) {
		_, err := ParseRole(k.Role.String())
		return err
	}
	if k.Campaigns != nil {
		switch {
		case !k.Role.Scoped():
			return fmt.Errorf("campaigns: a key of role %s cannot be limited to campaigns; leave them out", k.Role)
		case len(k.Campaigns) == 0 || len(k.Campaigns) > MaxCampaigns:
			return fmt.Errorf("campaigns has %d names, expected 1 to %d; leave it out for all campaigns", len(k.Campaigns), MaxCampaigns)
		}
		for i, c := range k.Campaigns {
			if !wire.ValidCampaignName(c) {
				return fmt.Errorf("campaigns: %q is no name of a campaign, which has 1 to %d of A-Z a-z 0-9 _ -", shorten(c), wire.MaxCampaignName)
			}
			if i > 0 && k.Campaigns[i-1] >= c {
				return fmt.Errorf("campaigns: %q is named twice", c)
			}
		}
	}
	if k.Public && k.Role != Producer {
		return fmt.Errorf("public is for keys of role producer, which may be in a browser; leave it out for role %s", k.Role)
	}
	if k.Rate < 0 || k.Rate > MaxRate {
		return fmt.Errorf("rate is %d, expected 1 to %d requests a second; leave it out for any number", k.Rate, MaxRate)
	}
	if k.Codes && k.Role == Sender {
		return errors.New("codes is for roles that look up coupons or read events; reminders name no codes")
	}
	return nil
}

// state is the fold of the history. It is not safe for use by several goroutines at once.
type state struct {
	keys map[string]*Key
}

func newState() *state { return &state{keys: map[string]*Key{}} }

// take puts a change in force, or returns the reason why not and changes nothing.
func (s *state) take(c *registry.Change[record]) error {
	r := &c.Record
	switch r.Action {
	case actionCreate:
		role, err := ParseRole(r.Role)
		if err != nil {
			return err
		}
		return s.add(&Key{Name: r.Name, Role: role, Campaigns: r.Campaigns, Public: r.Public, Codes: r.Codes, Rate: r.Rate}, c)
	case actionRevoke:
		found := false
		for _, id := range append([]string{r.Key}, r.Also...) {
			if k := s.keys[id]; k != nil {
				s.revoke(*k, c.By, c.At)
				found = true
			}
		}
		if !found {
			return fmt.Errorf("there is no key %q", shorten(r.Key))
		}
		return nil
	case actionRotate:
		old := s.keys[r.Replaces]
		if old == nil {
			return fmt.Errorf("there is no key %q to replace", shorten(r.Replaces))
		}
		if !old.Ended.IsZero() {
			return fmt.Errorf("key %s was revoked or replaced before", old.ID)
		}
		k := old.copyOf()
		k.Replaces, k.first = old.ID, cmp.Or(old.first, old.ID)
		if err := s.add(k, c); err != nil {
			return err
		}
		ended := *old
		ended.Ended, ended.EndedBy, ended.ReplacedBy, ended.Revoked = r.Until.UTC(), c.By, r.Key, r.Until.IsZero()
		if ended.Revoked {
			ended.Ended = c.At
		}
		s.keys[old.ID] = &ended
		return nil
	}
	return fmt.Errorf("action is %q, which this version does not know", shorten(r.Action))
}

// revoke ends a key. One whose overlap was over before keeps the time of that.
func (s *state) revoke(k Key, by string, at time.Time) {
	if k.Revoked {
		return
	}
	if k.Revoked = true; k.Ended.IsZero() || at.Before(k.Ended) {
		k.Ended, k.EndedBy = at, by
	}
	s.keys[k.ID] = &k
}

// copyOf is a new key with the rights of k.
func (k *Key) copyOf() *Key {
	return &Key{Name: k.Name, Role: k.Role, Campaigns: k.Campaigns, Public: k.Public, Codes: k.Codes, Rate: k.Rate}
}

// add adds a key. Keys in the map are not changed any more: a registry hands them out.
func (s *state) add(k *Key, c *registry.Change[record]) error {
	r := &c.Record
	k.ID, k.Created, k.CreatedBy = r.Key, c.At, c.By
	if !ValidID(k.ID) || s.keys[k.ID] != nil {
		return fmt.Errorf("key is %q, which is no new id", shorten(r.Key))
	}
	hash, err := hex.DecodeString(r.SHA256)
	if err != nil || len(hash) != sha256.Size {
		return errors.New("sha256 is no hash of a key")
	}
	copy(k.hash[:], hash)
	if err := k.check(); err != nil {
		return err
	}
	s.keys[k.ID] = k
	return nil
}

// named finds a key by its id, or by its name among the keys that were not ended.
func (s *state) named(idOrName string) (*Key, error) {
	if k := s.keys[idOrName]; k != nil {
		return k, nil
	}
	for _, k := range s.keys {
		if k.Name == idOrName && k.Ended.IsZero() {
			return k, nil
		}
	}
	return nil, noSuchKey(idOrName)
}

// revocable finds a key by its id, or all keys of a name that were not revoked: a replaced one works until its overlap is over.
// The first is the newest.
func (s *state) revocable(idOrName string) ([]*Key, error) {
	if k := s.keys[idOrName]; k != nil {
		return []*Key{k}, nil
	}
	var all []*Key
	for _, k := range s.list() {
		if k.Name == idOrName && !k.Revoked {
			all = append(all, s.keys[k.ID])
		}
	}
	if len(all) == 0 {
		return nil, noSuchKey(idOrName)
	}
	slices.Reverse(all)
	return all, nil
}

func noSuchKey(idOrName string) error {
	return fmt.Errorf("%w: %q is neither the id nor the name of a key in force; see `scrip access list`", ErrNoSuchKey, shorten(idOrName))
}

// list returns the keys, oldest first.
func (s *state) list() []Key {
	all := make([]Key, 0, len(s.keys))
	for _, k := range s.keys {
		all = append(all, *k)
	}
	slices.SortFunc(all, func(a, b Key) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return all
}
