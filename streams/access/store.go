package access

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/changelog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// MaxOverlap is the longest time that a replaced key may go on working.
const MaxOverlap = 30 * 24 * time.Hour

// The kinds of refusals of a change, and the kind after which it may be stored or not.
var (
	ErrInvalid   = errors.New("the request was refused")
	ErrNoSuchKey = errors.New("there is no such key")
	ErrNameTaken = errors.New("the name is taken")
	ErrEnded     = errors.New("the key was revoked or replaced before")
	ErrForbidden = errors.New("the author may not make this change")
	ErrUnknown   = changelog.ErrUnknown
	// ErrUnrecorded: the change is stored and in force, and Options.Record failed. A new key has no owner then: its secret was
	// not returned.
	ErrUnrecorded = errors.New("the change is stored, but not recorded")
)

// Options for Open.
type Options struct {
	// Logger defaults to slog.Default.
	Logger *slog.Logger
	// Clock stamps changes, and ends the overlaps of replaced keys. Nil is the machine's.
	Clock wall.Clock
	// Record records a change once it is stored and before it is answered, such as audit.Log.KeyChanged. action is create,
	// revoke or rotate, and about has the ids of the keys and their name. Nil = nothing is recorded.
	Record func(ctx context.Context, by Author, action, about string) error

	random io.Reader // of new keys; nil = crypto/rand
}

// Store is the history of the keys. It may be used by several goroutines at once.
type Store struct {
	js      jetstream.JetStream
	opts    Options
	history history
}

// history is what changes are written to and read from: a changelog.Bucket, or memory in tests.
type history interface {
	Write(ctx context.Context, c changelog.Change) (revision uint64, err error)
	Read(ctx context.Context, begin func(), f func(changelog.Message)) error
}

// Open prepares a store; it sends no request and makes nothing.
func Open(js jetstream.JetStream, opts Options) *Store {
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	if opts.Clock == nil {
		opts.Clock = wall.Machine
	}
	s := &Store{js: js, opts: opts}
	s.history = s.bucket()
	return s
}

func (s *Store) bucket() changelog.Bucket {
	return changelog.Bucket{JS: s.js, Spec: topology.Access, Logger: s.opts.Logger}
}

// New is a key to be made.
type New struct {
	Name      string   `json:"name"`
	Role      Role     `json:"role"`
	Campaigns []string `json:"campaigns,omitempty"` // nil = all
	Public    bool     `json:"public,omitempty"`
	Codes     bool     `json:"codes,omitempty"`
	Rate      int      `json:"rate,omitempty"` // requests a second; 0 = any number
}

// Create makes a key and stores its hash. secret is the key as its user presents it; it cannot be read again. The key is in
// force within a second at every server that can be reached. Errors: of kinds ErrForbidden, ErrInvalid and ErrNameTaken;
// ErrUnknown and ErrUnrecorded, where a key may have been stored that nobody has; any other, and nothing was stored.
func (s *Store) Create(ctx context.Context, n New, by Author) (k Key, secret string, err error) {
	n.Campaigns = slices.Clone(n.Campaigns)
	slices.Sort(n.Campaigns)
	k = Key{Name: n.Name, Role: n.Role, Campaigns: n.Campaigns, Public: n.Public, Codes: n.Codes, Rate: n.Rate}
	if err := k.check(); err != nil {
		return Key{}, "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if p := k.Principal(); p.Role == Sender && p.Audience() == "" {
		return Key{}, "", fmt.Errorf("%w: name: that of a sender begins with the audience that it delivers for, of A-Z a-z 0-9 _ -, such as mobile", ErrInvalid)
	}
	return s.write(ctx, by, func(st *state, w *writing) error {
		if err := by.mayGive(&k); err != nil {
			return err
		}
		for _, other := range st.keys {
			if other.Name == n.Name && other.In(w.at) {
				return fmt.Errorf("%w: key %s has the name %q, which events show as `by`; choose another name, or replace that key with `scrip access rotate %s`", ErrNameTaken, other.ID, n.Name, other.ID)
			}
		}
		w.record = record{Action: actionCreate, Role: n.Role.String(), Name: n.Name, Campaigns: n.Campaigns, Public: n.Public, Codes: n.Codes, Rate: n.Rate}
		return w.draw(st, n.Role)
	})
}

// Revoke ends at once the key with this id, or all keys with this name: a replaced one may be within its overlap. It returns the
// newest of them. A key that was revoked stays as it is. Errors: of kinds ErrForbidden and
// ErrNoSuchKey; ErrUnknown and ErrUnrecorded; any other, and nothing was stored.
func (s *Store) Revoke(ctx context.Context, idOrName string, by Author) (Key, error) {
	k, _, err := s.write(ctx, by, func(st *state, w *writing) error {
		all, err := st.revocable(idOrName)
		if err != nil {
			return err
		}
		w.record = record{Action: actionRevoke, Key: all[0].ID}
		for _, k := range all[1:] {
			w.record.Also = append(w.record.Also, k.ID)
		}
		if all[0].Revoked {
			w.done = all[0]
		}
		return nil
	})
	return k, err
}

// Rotate makes a key with the rights and the name of another, which ends when overlap is over, 0 = at once. Errors: of kinds
// ErrForbidden, ErrInvalid, ErrNoSuchKey and ErrEnded; ErrUnknown and ErrUnrecorded; any other, and nothing was stored.
func (s *Store) Rotate(ctx context.Context, idOrName string, overlap time.Duration, by Author) (k Key, secret string, err error) {
	if overlap < 0 || overlap > MaxOverlap {
		return Key{}, "", fmt.Errorf("%w: overlap is %s, expected 0 to %s", ErrInvalid, overlap, MaxOverlap)
	}
	return s.write(ctx, by, func(st *state, w *writing) error {
		k, err := st.named(idOrName)
		if err == nil {
			err = by.mayGive(k)
		}
		if err != nil {
			return err
		}
		if !k.Ended.IsZero() {
			return fmt.Errorf("%w: key %s; make a new one with `scrip access create`", ErrEnded, k.ID)
		}
		w.record = record{Action: actionRotate, Replaces: k.ID}
		if overlap > 0 {
			w.record.Until = w.at.Add(overlap).Format(time.RFC3339Nano)
		}
		return w.draw(st, k.Role)
	})
}

// writing is a change that is being stored: a [changelog.Change].
type writing struct {
	by    string
	at    time.Time
	store *Store
	// make fills in the record for the state after the last change.
	make func(*state, *writing) error

	state  *state
	record record
	// secret and id are drawn once: a try whose result is not known may be stored late, and is recognised by them then.
	secret, id string
	done       *Key // nothing has to be stored
}

// errDone ends a write that has nothing to store.
var errDone = errors.New("nothing has to be stored")

// write stores a change and records it. All changes of keys pass here.
//
// A crash before the record leaves a change without one. It was not answered, and `scrip access list` shows its author.
func (s *Store) write(ctx context.Context, by Author, make func(*state, *writing) error) (Key, string, error) {
	if err := by.mayManage(); err != nil {
		return Key{}, "", err
	}
	if err := checkBy(by.Name); err != nil {
		return Key{}, "", fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	w := &writing{by: by.Name, at: s.opts.Clock.Now().UTC(), store: s, make: make}
	_, err := s.history.Write(ctx, w)
	var k Key
	switch {
	case err == nil:
		k = *w.state.keys[w.record.Key]
	case errors.Is(err, errDone):
		k = *w.done
	case errors.Is(err, ErrUnknown):
		return Key{}, "", fmt.Errorf("%w; see `scrip access list`, and revoke a key that has no owner", err)
	default:
		return Key{}, "", err
	}
	if s.opts.Record != nil {
		if err := s.opts.Record(ctx, by, w.record.Action, about(&w.record, &k)); err != nil {
			return Key{}, "", fmt.Errorf("%w: key %s: %w; see `scrip access list`, and revoke a key that has no owner", ErrUnrecorded, k.ID, err)
		}
	}
	return k, w.secret, nil
}

// about describes a changed key in the audit stream: its id, name and role, and in front the ids of the keys that end with it.
func about(r *record, k *Key) string {
	ids := slices.Clone(r.Also)
	if r.Action == actionRotate {
		ids = append(ids, k.Replaces)
	}
	return strings.Join(append(ids, k.ID, k.Name, k.Role.String()), " ")
}

func (w *writing) Begin() { w.state = newState() }

func (w *writing) Apply(m changelog.Message) { _ = w.state.apply(m) } // what is ignored is logged by the registry

// Stored recognises its own change by the hash of the key. Of a revocation it recognises the effect.
func (w *writing) Stored(uint64) bool {
	k := w.state.keys[w.record.Key]
	switch {
	case k == nil:
		return false
	case w.record.Action != actionRevoke:
		return hex.EncodeToString(k.hash[:]) == w.record.SHA256
	}
	for _, id := range w.record.Also {
		if other := w.state.keys[id]; other == nil || !other.Revoked {
			return false
		}
	}
	return k.Revoked
}

func (w *writing) Record() (n uint64, value []byte, err error) {
	w.done = nil
	if err := w.make(w.state, w); err != nil {
		return 0, nil, err
	}
	if w.done != nil {
		return 0, nil, errDone
	}
	w.record.By, w.record.At = w.by, w.at.Format(time.RFC3339Nano)
	if value, err = w.record.encode(); err != nil {
		return 0, nil, fmt.Errorf("nothing was stored: %w", err)
	}
	n = w.state.Next()
	// The whole record is checked as every server will.
	if err := w.state.apply(changelog.Message{Key: changelog.Key(n), Value: value}); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return n, value, nil
}

// draw makes the key of the record, with an id that no key has, and the same one for each try.
func (w *writing) draw(st *state, role Role) (err error) {
	for w.secret == "" || st.keys[w.id] != nil {
		if w.secret, w.id, err = newKey(role, w.store.opts.random); err != nil {
			return fmt.Errorf("making a key: %w", err)
		}
	}
	hash := digest(w.secret)
	w.record.Key, w.record.SHA256 = w.id, hex.EncodeToString(hash[:])
	return nil
}

// List returns all keys ever made, oldest first, with their last use.
func (s *Store) List(ctx context.Context) ([]Key, error) {
	st := newState()
	if err := s.history.Read(ctx, func() { *st = *newState() }, func(m changelog.Message) { _ = st.apply(m) }); err != nil {
		return nil, fmt.Errorf("reading the keys: %w", err)
	}
	all := st.list()
	used, err := s.used(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		u := used[all[i].ID]
		all[i].LastUsed, all[i].WrongCodes = u.At, u.wrongIn(s.opts.Clock.Now())
	}
	return all, nil
}

// MostListed is the most keys of one page.
const MostListed = 1000

// Page returns up to limit keys behind the one with the id after, in the order of List; after "" = from the first, limit 0 =
// MostListed. next is the value of after for the following page, "" on the last one. Errors: of kind ErrInvalid; any other is of
// the read.
func (s *Store) Page(ctx context.Context, after string, limit int) (page []Key, next string, err error) {
	if limit < 0 || limit > MostListed {
		return nil, "", fmt.Errorf("%w: limit: must be a whole number from 1 to %d", ErrInvalid, MostListed)
	}
	limit = cmp.Or(limit, MostListed)
	all, err := s.List(ctx)
	if err != nil {
		return nil, "", err
	}
	if after != "" {
		at := slices.IndexFunc(all, func(k Key) bool { return k.ID == after })
		if at < 0 {
			return nil, "", fmt.Errorf("%w: after: there is no key %q", ErrInvalid, shorten(after))
		}
		all = all[at+1:]
	}
	if len(all) > limit {
		all, next = all[:limit], all[limit-1].ID
	}
	return all, next, nil
}

// checkBy returns an error if a text cannot name the author of a change.
func checkBy(by string) error {
	if err := CheckText(by); err != nil {
		return fmt.Errorf("by: %w", err)
	}
	return nil
}
