package access

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
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

// record is a change: one key is made, revoked, or replaced by another. A replacement is one record, so that a crash leaves the
// old key or both, never none.
type record struct {
	Action string `json:"action"`
	Key    string `json:"key"` // id
	// New is of a created key. A replacement has the rights of the key that it replaces.
	New    *New   `json:"new,omitempty"`
	SHA256 []byte `json:"sha256,omitempty"`
	// SCRAM is the verifier of an analyst's key for PostgreSQL.
	SCRAM string `json:"scram,omitempty"`
	// Also are the ids of further keys that a revocation ends.
	Also []string `json:"also,omitempty"`
	// Replaces is the id of the key that a rotation ends, at Until; without, at once.
	Replaces string    `json:"replaces,omitempty"`
	Until    time.Time `json:"until,omitzero"`
}

// New is what a key is made with: its name and its rights.
type New struct {
	Name      string   `json:"name"`
	Role      Role     `json:"role"`
	Campaigns []string `json:"campaigns,omitempty"` // nil = all
	Public    bool     `json:"public,omitempty"`
	Origins   []string `json:"origins,omitempty"` // of pages that may use a public key
	Codes     bool     `json:"codes,omitempty"`
	Customers bool     `json:"customers,omitempty"`
	Rate      int      `json:"rate,omitempty"` // requests a second; 0 = any number
	// NewOnly: a producer that gets the codes of new claims only, because who made its key sees no codes. Create sets it.
	NewOnly bool `json:"new_codes_only,omitempty"`
}

// check returns an error if a key cannot be made. It names the field.
func (n *New) check() error {
	if err := CheckName(n.Name); err != nil {
		return err
	}
	if !slices.Contains(Keyed, n.Role) {
		_, err := ParseRole(n.Role.String())
		return err
	}
	if n.Campaigns != nil {
		switch {
		case !n.Role.Scoped():
			return fmt.Errorf("campaigns: a key of role %s cannot be limited to campaigns; leave them out", n.Role)
		case len(n.Campaigns) == 0 || len(n.Campaigns) > MaxCampaigns:
			return fmt.Errorf("campaigns has %d names, expected 1 to %d; leave it out for all campaigns", len(n.Campaigns), MaxCampaigns)
		}
		for i, c := range n.Campaigns {
			if !wire.ValidCampaignName(c) {
				return fmt.Errorf("campaigns: %s is no name of a campaign, which has 1 to %d of A-Z a-z 0-9 _ -", wire.Quote(c), wire.MaxCampaignName)
			}
			if i > 0 && n.Campaigns[i-1] >= c {
				return fmt.Errorf("campaigns: %q is named twice", c)
			}
		}
	}
	if n.Public && n.Role != Producer {
		return fmt.Errorf("public is for keys of role producer, which may be in a browser; leave it out for role %s", n.Role)
	}
	if len(n.Origins) > 0 && !n.Public || len(n.Origins) > MaxOrigins {
		return fmt.Errorf("origins are for public keys, at most %d", MaxOrigins)
	}
	for i, origin := range n.Origins {
		if !validOrigin(origin) || i > 0 && n.Origins[i-1] >= origin {
			return fmt.Errorf("origins: %s is given twice, or is not as browsers send it: https://HOST or http://HOST, in lower case, with :PORT if that is not the scheme's, and without a path", wire.Quote(origin))
		}
	}
	if n.Role == Analyst && len(n.Name) > maxSQLName {
		return fmt.Errorf("name has %d bytes, and of an analyst at most %d: it is the user in PostgreSQL; choose a shorter one", len(n.Name), maxSQLName)
	}
	if n.Rate < 0 || n.Rate > MaxRate {
		return fmt.Errorf("rate is %d, expected 1 to %d requests a second; leave it out for any number", n.Rate, MaxRate)
	}
	if n.NewOnly && (n.Role != Producer || n.Public || n.Codes) {
		return errors.New("new_codes_only is for keys of role producer that are not public and see no codes")
	}
	if n.Codes && n.Role == Sender {
		return errors.New("codes is for roles that look up coupons or read events; reminders name no codes")
	}
	if n.Customers && n.Role == Sender {
		return errors.New("customers is for roles that look up coupons or read events; a sender gets those of its reminders anyway")
	}
	return nil
}

// validOrigin reports whether browsers send an origin in this form.
func validOrigin(origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "https" && u.Port() != "443" || u.Scheme == "http" && u.Port() != "80") && u.Hostname() != "" &&
		!strings.HasSuffix(u.Host, ":") && origin == u.Scheme+"://"+strings.ToLower(u.Host) && wire.Printable(origin) && len(origin) <= 256
}

// state is the fold of the history. It is not safe for use by several goroutines at once.
type state struct {
	keys map[string]*Key // by id; keys are not changed any more, since a registry hands them out
}

func newState() *state { return &state{keys: map[string]*Key{}} }

// take puts a change in force, or returns the reason why not and changes nothing.
func (s *state) take(c *registry.Change[record]) error {
	r := &c.Record
	switch r.Action {
	case actionCreate:
		if r.New == nil {
			return errors.New("new is missing")
		}
		return s.add(&Key{New: *r.New}, c)
	case actionRevoke:
		found := false
		for _, id := range append([]string{r.Key}, r.Also...) {
			if k := s.keys[id]; k != nil {
				s.revoke(*k, c.By, c.At)
				found = true
			}
		}
		if !found {
			return fmt.Errorf("there is no key %s", wire.Quote(r.Key))
		}
		return nil
	case actionRotate:
		old := s.keys[r.Replaces]
		if old == nil {
			return fmt.Errorf("there is no key %s to replace", wire.Quote(r.Replaces))
		}
		if !old.Ended.IsZero() {
			return fmt.Errorf("key %s was revoked or replaced before", old.ID)
		}
		if err := s.add(&Key{New: old.New, Replaces: old.ID, first: cmp.Or(old.first, old.ID)}, c); err != nil {
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
	return fmt.Errorf("action is %s, which this version does not know", wire.Quote(r.Action))
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

// add adds the key that a change makes.
func (s *state) add(k *Key, c *registry.Change[record]) error {
	r := &c.Record
	k.ID, k.Created, k.CreatedBy = r.Key, c.At, c.By
	if !ValidID(k.ID) || s.keys[k.ID] != nil {
		return fmt.Errorf("key is %s, which is no new id", wire.Quote(r.Key))
	}
	if len(r.SHA256) != sha256.Size {
		return errors.New("sha256 is no hash of a key")
	}
	k.hash, k.scram = [sha256.Size]byte(r.SHA256), r.SCRAM
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
	return fmt.Errorf("%w: %s is neither the id nor the name of a key in force; see `scrip access list`", ErrNoSuchKey, wire.Quote(idOrName))
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
