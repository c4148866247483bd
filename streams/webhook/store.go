package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/changelog"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
	"github.com/seed-4a2410e3/scrip/streams/webhook/signature"
)

// valueMost bounds the value of a change: topology.MaxGrowing without headers.
const valueMost = topology.MaxGrowing - 1<<10

// The kinds of errors of changes, beside *InvalidError.
var (
	// ErrNotFound: there is no such webhook.
	ErrNotFound = errors.New("there is no such webhook; scrip webhook list shows all")
	// ErrChanged: the webhook has another version than the change is for. Nothing was stored.
	ErrChanged = errors.New("the webhook was changed meanwhile; read it again")
	// ErrForbidden: an author who does not see codes cannot send them to a URL. Nothing was stored.
	ErrForbidden = errors.New("codes: a key that does not see codes cannot make or change a webhook that gets them")
	// ErrUnknown: the change may be stored or not.
	ErrUnknown = changelog.ErrUnknown
	// ErrUnrecorded: the change is stored, and its entry in the audit stream may be missing.
	ErrUnrecorded = errors.New("the webhook was changed, and this is not recorded in the audit stream")
)

// InvalidError: the change is not possible, and nothing was stored.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string { return e.Err.Error() }

func (e *InvalidError) Unwrap() error { return e.Err }

// Store is the history of the webhooks. It may be used by several goroutines at once.
type Store struct {
	// Clock stamps changes; Open sets the machine's. Audit is the audit stream, nil = nothing is
	// recorded. Logger defaults to slog.Default. They are set before the first call.
	Clock  wall.Clock
	Audit  *audit.Log
	Logger *slog.Logger

	js  jetstream.JetStream
	key *Key // nil = no secret can be made
}

// Open prepares a store; it sends no request and makes nothing. Without a key Create and Rotate fail.
func Open(js jetstream.JetStream, key *Key) *Store {
	return &Store{Clock: wall.Machine, js: js, key: key}
}

func (s *Store) bucket() changelog.Bucket {
	return changelog.Bucket{JS: s.js, Spec: topology.Webhooks, Logger: s.Logger}
}

// read folds all changes stored before the call. Without a bucket there are none.
func (s *Store) read(ctx context.Context) (*registry, error) {
	r := newRegistry()
	// A change without effect, of a newer version or written by hand, is not in force.
	err := s.bucket().Read(ctx, func() { r = newRegistry() }, func(m changelog.Message) { _ = r.fold(m) })
	if err != nil {
		return nil, fmt.Errorf("reading the webhooks: %w", err)
	}
	return r, nil
}

// Author is who makes a change. The change is stored with the name, and the audit stream has the rest.
type Author = access.Author

// Make makes a change for a person, records it in the audit stream, and returns the endpoint after it, zero after a
// deletion. version, if not 0, is the one that the change is for. The change is in force within a second at every server
// that can be reached. Errors: *InvalidError; of kinds ErrChanged, ErrForbidden, ErrUnknown and ErrUnrecorded; any other, and
// nothing was stored.
func (s *Store) Make(ctx context.Context, who Author, c Change, version uint64) (Endpoint, error) {
	if c.What == Replay {
		if err := s.mayReplay(ctx, &c); err != nil {
			return Endpoint{}, err
		}
	}
	return s.recorded(ctx, who, &writing{store: s, change: c, version: version})
}

// Set changes settings: f returns the new ones for those in force, and may be called several times. The rest is as of Make.
func (s *Store) Set(ctx context.Context, who Author, id string, version uint64, f func(Settings) Settings) (Endpoint, error) {
	return s.recorded(ctx, who, &writing{store: s, change: Change{Webhook: id, What: Update}, version: version, settings: f})
}

func (s *Store) recorded(ctx context.Context, who Author, w *writing) (Endpoint, error) {
	w.change.By, w.codes = who.Name, who.Codes
	e, err := s.write(ctx, w)
	if err != nil {
		return Endpoint{}, err
	}
	entry := audit.By(who.Principal, audit.Webhooks, w.change.What, about(&w.change))
	entry.Via, entry.From = who.Via, who.From
	if err := s.Audit.Append(ctx, entry); err != nil {
		return e, fmt.Errorf("%w: %w", ErrUnrecorded, err)
	}
	return e, nil
}

// about is what the audit stream shows of a change: without path and query of the URL, which may hold a secret.
func about(c *Change) string {
	text := c.Webhook
	if c.Settings != nil {
		if u, err := url.Parse(c.Settings.URL); err == nil {
			text += " " + u.Host
		}
	}
	if !c.From.IsZero() {
		text += " from " + c.From.UTC().Format(time.RFC3339)
	}
	return text
}

// byServer stores a change by a server. The audit stream has those of the state; results of requests and the health are in the
// history only. Errors as of Make, but an entry that may be missing is logged: the change itself is not made again.
func (s *Store) byServer(ctx context.Context, c Change) (Endpoint, error) {
	w := &writing{store: s, change: c}
	if c.What != Disable {
		return s.write(ctx, w)
	}
	e, err := s.recorded(ctx, Author{Principal: access.Principal{Name: c.By}}, w)
	if errors.Is(err, ErrUnrecorded) {
		cmp.Or(s.Logger, slog.Default()).Warn("a webhook was disabled, and the audit stream may not have it", "webhook", c.Webhook, "err", err)
		err = nil
	}
	return e, err
}

func (s *Store) write(ctx context.Context, w *writing) (Endpoint, error) {
	if err := settings.CheckBy(w.change.By); err != nil {
		return Endpoint{}, &InvalidError{err}
	}
	w.change.At = s.Clock.Now().UTC()
	if _, err := s.bucket().Write(ctx, w); err != nil {
		if errors.Is(err, ErrUnknown) {
			err = fmt.Errorf("webhook %s: %w; see scrip webhook show", w.change.Webhook, err)
		}
		return Endpoint{}, err
	}
	if e := w.registry.endpoints[w.change.Webhook]; e != nil {
		return *e, nil
	}
	return Endpoint{}, nil
}

// writing is a change that is being stored: a [changelog.Change].
type writing struct {
	store    *Store
	change   Change
	version  uint64                  // of the endpoint, which the change is for; 0 = any
	settings func(Settings) Settings // of an Update; nil = those of the change
	codes    bool                    // the author sees codes

	registry *registry
	tried    [][]byte // values that were sent
	own      uint64   // number under which the history has one of them, 0 = it has none
}

func (w *writing) Begin() { w.registry, w.own = newRegistry(), 0 }

func (w *writing) Apply(m changelog.Message) {
	_ = w.registry.fold(m)
	if slices.ContainsFunc(w.tried, func(v []byte) bool { return bytes.Equal(v, m.Value) }) {
		w.own, _ = changelog.Number(m.Key)
	}
}

// Stored recognises its own change by its value, in which author, time and sealed secret are.
func (w *writing) Stored(from uint64) bool { return w.own != 0 && w.own >= from }

func (w *writing) Record() (n uint64, value []byte, err error) {
	c := &w.change
	e := w.registry.endpoints[c.Webhook]
	switch {
	case e == nil && c.What != Create:
		return 0, nil, &InvalidError{fmt.Errorf("%.40q: %w", c.Webhook, ErrNotFound)}
	case w.version != 0 && e.Version != w.version:
		return 0, nil, fmt.Errorf("version %d of webhook %s: %w", w.version, c.Webhook, ErrChanged)
	case w.settings != nil:
		next := w.settings(e.Settings)
		c.Settings = &next
	}
	if c.Settings != nil && c.Settings.Codes && !w.codes {
		return 0, nil, ErrForbidden
	}
	c.N = w.registry.Next()
	if value, err = json.Marshal(c); err != nil {
		return 0, nil, fmt.Errorf("nothing was stored: %w", err)
	}
	if len(value) > valueMost {
		return 0, nil, &InvalidError{fmt.Errorf("the settings have %d bytes, at most %d can be; name fewer campaigns", len(value), valueMost)}
	}
	// The whole record is checked as every server will.
	if err := w.registry.fold(changelog.Message{Key: changelog.Key(c.N), Value: value}); err != nil {
		return 0, nil, &InvalidError{err}
	}
	w.tried = append(w.tried, value)
	return c.N, value, nil
}

var errNoKey = errors.New("secrets are sealed with the code key, and there is none here; name the server's data directory with --data DIR, or set SCRIP_CODE_KEY")

// Create makes an endpoint and its secret, which is shown now and never again. Errors as of Make.
func (s *Store) Create(ctx context.Context, who Author, want Settings) (Endpoint, signature.Secret, error) {
	if s.key == nil {
		return Endpoint{}, signature.Secret{}, errNoKey
	}
	raw := make([]byte, 5)
	_, _ = rand.Read(raw) // never fails
	id := strings.ToLower(base32.StdEncoding.EncodeToString(raw))
	secret := signature.NewSecret()
	e, err := s.Make(ctx, who, Change{Webhook: id, What: Create, Settings: &want, Secret: s.key.seal(secret, id)}, 0)
	return e, secret, err
}

// Rotate gives an endpoint a new secret. The one before signs, too, for RotationPeriod. Errors as of Make.
func (s *Store) Rotate(ctx context.Context, who Author, id string) (Endpoint, signature.Secret, error) {
	if s.key == nil {
		return Endpoint{}, signature.Secret{}, errNoKey
	}
	secret := signature.NewSecret()
	e, err := s.Make(ctx, who, Change{Webhook: id, What: Rotate, Secret: s.key.seal(secret, id)}, 0)
	return e, secret, err
}

// List returns all endpoints, oldest first.
func (s *Store) List(ctx context.Context) ([]Endpoint, error) {
	r, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	return r.list(), nil
}

// Show returns one. Error: ErrNotFound.
func (s *Store) Show(ctx context.Context, id string) (Endpoint, error) {
	r, err := s.read(ctx)
	if err != nil {
		return Endpoint{}, err
	}
	if e := r.endpoints[id]; e != nil {
		return *e, nil
	}
	return Endpoint{}, fmt.Errorf("%.40q: %w", id, ErrNotFound)
}

// Positions returns how far an endpoint is, lane by lane.
func (s *Store) Positions(ctx context.Context, e *Endpoint) ([]push.Position, error) {
	return push.Positions(ctx, s.js, e.name(0), e.name(reminders))
}

// Letters returns the dead letters of an endpoint behind the one with the id after, also those of before a replay, oldest
// first; at most that many. The next page begins behind the id next, 0 = there is none. One that is written again meanwhile, after
// a retry that failed, has a new id and comes last.
func (s *Store) Letters(ctx context.Context, id string, after uint64, most int) (all []push.DeadLetter, next uint64, err error) {
	r, err := s.read(ctx)
	if err != nil {
		return nil, 0, err
	}
	e := r.endpoints[id]
	if e == nil {
		e = r.gone[id] // whose dead letters stay
	}
	if e == nil {
		return nil, 0, fmt.Errorf("%.40q: %w", id, ErrNotFound)
	}
	var heads []push.DeadLetter // the next one of each audience
	pull := func(name string, after uint64) error {
		letters, _, bad, err := push.LettersAfter(ctx, s.js, name, after, 1)
		heads = append(heads, letters...)
		return errors.Join(append(bad, err)...)
	}
	for kind := range e.audiences {
		for _, name := range e.names(kind, true) {
			if err := pull(name, after); err != nil {
				return nil, 0, err
			}
		}
	}
	for len(heads) > 0 {
		if len(all) == most {
			return all, all[most-1].ID, nil
		}
		oldest := slices.MinFunc(heads, func(a, b push.DeadLetter) int { return cmp.Compare(a.ID, b.ID) })
		heads = slices.DeleteFunc(heads, func(l push.DeadLetter) bool { return l.ID == oldest.ID })
		all = append(all, oldest)
		if err := pull(oldest.Name, oldest.ID); err != nil {
			return nil, 0, err
		}
	}
	return all, 0, nil
}
