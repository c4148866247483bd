package webhook

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/webhook/signature"
)

// The kinds of refusals of a change, beside *InvalidError: nothing was stored.
var (
	// ErrNotFound: there is no such webhook.
	ErrNotFound = errors.New("there is no such webhook; scrip webhook list shows all")
	// ErrChanged: the webhook has another version than the change is for.
	ErrChanged = errors.New("the webhook has changed since; read it again")
	// ErrForbidden: an author who does not see codes, or customers, cannot send them to a URL.
	ErrForbidden = errors.New("a key that does not see codes (or customers) cannot make or change a webhook that gets them: codes, or types of events that name customers")
)

// InvalidError is described there.
type InvalidError = registry.InvalidError

// Store is the history of the webhooks. It may be used by several goroutines at once.
type Store struct {
	history *registry.Registry[*state, Change]
	js      jetstream.JetStream
	key     *Key // nil = no secret can be made

	// Reach checks that a new URL can be reached from here; nil = it is not checked.
	Reach func(ctx context.Context, url string) error
}

var spec = &registry.Spec[*state, Change]{
	Bucket: topology.Webhooks, Noun: "webhooks", See: "scrip webhook list", Restore: "restore the log from a backup, or make the webhooks again",
	New: newState, Take: (*state).take, Audit: audit.Webhooks, Entry: about,
}

// Open prepares a store; it sends no request and makes nothing. Without a key Create and Rotate fail.
func Open(js jetstream.JetStream, key *Key, opts registry.Options) *Store {
	return &Store{history: registry.New(js, spec, opts), js: js, key: key}
}

// read folds all changes stored before the call. Without a bucket there are none.
func (s *Store) read(ctx context.Context) (*state, error) {
	f, err := s.history.Read(ctx)
	if err != nil {
		return nil, err
	}
	return f.State, nil
}

// Author is who makes a change. The change is stored with the name, and the audit stream has the rest.
type Author = access.Author

// Make makes a change for a person, and returns the endpoint after it, zero after a deletion. version, if not 0, is the one that
// the change is for. The change is in force within a second at every server that can be reached. Errors: of kinds ErrChanged,
// ErrForbidden and ErrNotFound, and as of [registry.Registry.Write].
func (s *Store) Make(ctx context.Context, who Author, c Change, version uint64) (Endpoint, error) {
	if c.What == Replay {
		if err := s.mayReplay(ctx, &c); err != nil {
			return Endpoint{}, err
		}
	}
	return s.write(ctx, who, c, version, nil)
}

// Set changes the config: f returns the new one for that in force, and may be called several times. The rest is as of Make.
func (s *Store) Set(ctx context.Context, who Author, id string, version uint64, f func(Config) Config) (Endpoint, error) {
	return s.write(ctx, who, Change{Webhook: id, What: Update}, version, f)
}

// byServer stores a change by a server. Errors as of Make, but an entry that may be missing in the audit stream is logged: the
// change itself is not made again.
func (s *Store) byServer(ctx context.Context, c Change) (Endpoint, error) {
	e, err := s.write(ctx, Author{Principal: access.Principal{Name: "scrip serve"}}, c, 0, nil)
	if errors.Is(err, registry.ErrUnrecorded) {
		s.history.Logger.Warn("a webhook was disabled, and the audit stream may not have it", "webhook", c.Webhook, "err", err)
		err = nil
	}
	return e, err
}

// write stores a change. config, if not nil, returns that of an Update.
func (s *Store) write(ctx context.Context, who Author, c Change, version uint64, config func(Config) Config) (Endpoint, error) {
	reached := "" // the URL that was checked
	_, after, err := s.history.Write(ctx, who.Entry(audit.Webhooks, "", ""), func(st *state, _ time.Time) (Change, error) {
		e := st.endpoints[c.Webhook]
		switch {
		case e == nil && c.What != Create:
			return c, &InvalidError{Err: fmt.Errorf("%.40q: %w", c.Webhook, ErrNotFound)}
		case version != 0 && e.Version != version:
			return c, fmt.Errorf("version %d of webhook %s: %w", version, c.Webhook, ErrChanged)
		case config != nil:
			next := config(e.Config)
			c.Config = &next
		}
		switch {
		case c.Config == nil:
		case c.Config.Codes && !who.Codes, c.Config.namesCustomers() && !who.Customers:
			return c, ErrForbidden
		case s.Reach != nil && c.Config.URL != reached && (e == nil || c.Config.URL != e.URL):
			if _, err := c.Config.Validate(); err != nil {
				return c, &InvalidError{Err: err}
			}
			if err := s.Reach(ctx, c.Config.URL); err != nil {
				return c, &InvalidError{Err: err}
			}
			reached = c.Config.URL
		}
		return c, nil
	})
	var e Endpoint
	if after != nil && after.endpoints[c.Webhook] != nil {
		e = *after.endpoints[c.Webhook]
	}
	if errors.Is(err, registry.ErrUnknown) {
		err = fmt.Errorf("webhook %s: %w", c.Webhook, err)
	}
	return e, err
}

// about is what the audit stream shows of a change: without path and query of the URL, which may hold a secret. Results of
// requests and the health are in the history only.
func about(_ *state, change *registry.Change[Change]) (action, text string) {
	c := &change.Record
	switch c.What {
	case Tested, Retried, Rehearsed, Failing, Works:
		return "", ""
	}
	text = c.Webhook
	if c.Config != nil {
		if u, err := url.Parse(c.Config.URL); err == nil {
			text += " " + u.Host
		}
	}
	if !c.From.IsZero() {
		text += " from " + c.From.UTC().Format(time.RFC3339)
	}
	return c.What, text
}

// Create makes an endpoint and its secret, which is shown now and never again. Errors as of Make.
func (s *Store) Create(ctx context.Context, who Author, want Config) (Endpoint, signature.Secret, error) {
	raw := make([]byte, 5)
	_, _ = rand.Read(raw) // never fails
	return s.withSecret(ctx, who, Change{Webhook: strings.ToLower(base32.StdEncoding.EncodeToString(raw)), What: Create, Config: &want})
}

// Rotate gives an endpoint a new secret. The one before signs, too, for RotationPeriod. Errors as of Make.
func (s *Store) Rotate(ctx context.Context, who Author, id string) (Endpoint, signature.Secret, error) {
	return s.withSecret(ctx, who, Change{Webhook: id, What: Rotate})
}

var errNoKey = errors.New("secrets are sealed with the code key, and there is none here; name the server's data directory with --data DIR, or set SCRIP_CODE_KEY")

// withSecret makes a change that has a new secret.
func (s *Store) withSecret(ctx context.Context, who Author, c Change) (Endpoint, signature.Secret, error) {
	if s.key == nil {
		return Endpoint{}, signature.Secret{}, errNoKey
	}
	secret := signature.NewSecret()
	c.Secret = s.key.seal(secret, c.Webhook)
	e, err := s.Make(ctx, who, c, 0)
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

// Letters returns the dead letters of an endpoint after the one with that id, also those of before a replay, oldest
// first; at most that many. The next page is after the id next, 0 = there is none. One that is written again after a retry that failed
// has a new id and comes last.
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
	names := slices.Concat(e.names(0, true), e.names(reminders, true))
	all, _, bad, err := push.LettersAfter(ctx, s.js, names, after, most+1)
	if err = errors.Join(append(bad, err)...); err != nil {
		return nil, 0, err
	}
	if len(all) > most {
		return all[:most], all[most-1].ID, nil
	}
	return all, 0, nil
}

const sealInfo = "scrip webhooks v1"

// Key seals the secrets of endpoints under a key that follows from the code key and the log's UUID, and not from the seal key.
type Key struct{ box *seal.Box }

// NewKey derives the key of a log.
func NewKey(codeKey [32]byte, log string) *Key { return &Key{seal.NewBox(codeKey, log, sealInfo)} }

// seal seals the secret of one endpoint; it cannot be opened as another's.
func (k *Key) seal(s signature.Secret, endpoint string) []byte {
	return k.box.Seal(s.Bytes(), endpoint)
}

func (k *Key) open(sealed []byte, endpoint string) (signature.Secret, error) {
	key, err := k.box.Open(sealed, endpoint)
	if err != nil {
		return signature.Secret{}, errSealed
	}
	return signature.FromBytes(key), nil
}

var errSealed = errors.New("the secret was sealed with another code key; scrip webhook rotate makes a new one")
