package webhook

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/webhook/signature"
)

// Bucket is the KV bucket of the changes of webhooks.
const Bucket = "SCRIP_WEBHOOKS"

const (
	bucketSubject = "$KV." + Bucket + "."
	attempt       = 2 * time.Second
	retryPause    = 100 * time.Millisecond
)

// ErrNotFound: there is no such webhook.
var ErrNotFound = errors.New("there is no such webhook; scrip webhook list shows all")

// InvalidError: the change is not possible, and nothing was stored.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string { return e.Err.Error() }

func (e *InvalidError) Unwrap() error { return e.Err }

// Store is the history of the webhooks. It may be used by several goroutines at once.
type Store struct {
	// Now is the clock that changes are stamped with, time.Now by default. It is set before the first call.
	Now func() time.Time

	js  jetstream.JetStream
	key *Key // nil = no secret can be made
}

// Open prepares a store; it sends no request and makes nothing. Without a key Create and Rotate fail.
func Open(js jetstream.JetStream, key *Key) *Store { return &Store{Now: time.Now, js: js, key: key} }

// read folds all changes stored before the call. Without a bucket there are none.
func (s *Store) read(ctx context.Context) (*registry, error) {
	r := newRegistry()
	stream := eventlog.Bucket(s.js, "KV_"+Bucket)
	bounds, err := stream.Bounds(ctx)
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamNotFound {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the webhooks: %w", err)
	}
	if bounds.Last == 0 {
		return r, nil
	}
	feed, err := stream.OpenFeed(ctx, 0, nil)
	if err != nil {
		return nil, fmt.Errorf("reading the webhooks: %w", err)
	}
	defer feed.Close()
	var batch []eventlog.Raw
	for read := uint64(0); read < bounds.Last; {
		select {
		case <-feed.Ready():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if batch, err = feed.TryBatch(256, batch[:0]); err != nil {
			return nil, fmt.Errorf("reading the webhooks: %w", err)
		}
		for i := range batch {
			if c, ok := parseChange(strings.TrimPrefix(batch[i].Subject, bucketSubject), batch[i].Data); ok {
				_ = r.apply(c) // one without effect, of a newer version or written by hand, is not in force
			}
			read = batch[i].Sequence
		}
	}
	return r, nil
}

// newest returns the sequence of the newest change, 0 = there is none.
func (s *Store) newest(ctx context.Context) (uint64, error) {
	ctx, done := context.WithTimeout(ctx, attempt)
	defer done()
	m, ok, err := topology.LastMessage(ctx, s.js, "KV_"+Bucket, bucketSubject+">")
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamNotFound || err == nil && !ok {
		return 0, nil
	}
	return m.Sequence, err
}

// bucket opens the bucket, and makes it if there is none: as that of the settings it only grows.
func (s *Store) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	kv, err := s.js.KeyValue(ctx, Bucket)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, err
	}
	state, err := s.js.Stream(ctx, topology.StateStream)
	if err != nil {
		return nil, err
	}
	_, err = s.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "KV_" + Bucket, Description: "scrip: webhooks, one key for each change ever made", Subjects: []string{bucketSubject + ">"},
		Storage: jetstream.FileStorage, Replicas: max(1, state.CachedInfo().Config.Replicas),
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgs: -1, MaxBytes: -1, MaxMsgSize: 64 << 10, MaxConsumers: -1,
		DenyDelete: true, DenyPurge: true,
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return nil, fmt.Errorf("making bucket %s: %w", Bucket, err)
	}
	return s.js.KeyValue(ctx, Bucket)
}

// Append stores a change, and returns the endpoint after it; zero after a deletion. ctx bounds the retries. After an error
// other than *InvalidError the change may be stored.
func (s *Store) Append(ctx context.Context, c Change) (Endpoint, error) {
	if err := settings.CheckBy(c.By); err != nil {
		return Endpoint{}, &InvalidError{err}
	}
	c.At = s.Now().UTC()
	for {
		r, err := s.read(ctx)
		if err != nil {
			return Endpoint{}, err
		}
		c.N = r.last + 1
		if r.endpoints[c.Webhook] == nil && c.What != Create {
			return Endpoint{}, &InvalidError{fmt.Errorf("%.40q: %w", c.Webhook, ErrNotFound)}
		}
		if err := r.apply(c); err != nil {
			return Endpoint{}, &InvalidError{err}
		}
		data, err := json.Marshal(c)
		if err != nil {
			return Endpoint{}, err
		}
		short, done := context.WithTimeout(ctx, attempt)
		kv, err := s.bucket(short)
		if err == nil {
			_, err = kv.Create(short, changeKey(c.N), data)
		}
		done()
		if err == nil {
			if e := r.endpoints[c.Webhook]; e != nil {
				return *e, nil
			}
			return Endpoint{}, nil
		}
		if topology.Pause(ctx, retryPause) != nil {
			return Endpoint{}, fmt.Errorf("it is not known whether the change of webhook %s was stored: %w", c.Webhook, err)
		}
	}
}

var errNoKey = errors.New("secrets are sealed with the code key, and there is none here; name the server's data directory with --data DIR, or set SCRIP_CODE_KEY")

// Create makes an endpoint and its secret, which is shown now and never again.
func (s *Store) Create(ctx context.Context, want Settings, by string) (Endpoint, signature.Secret, error) {
	if s.key == nil {
		return Endpoint{}, signature.Secret{}, errNoKey
	}
	raw := make([]byte, 5)
	_, _ = rand.Read(raw) // never fails
	id := strings.ToLower(base32.StdEncoding.EncodeToString(raw))
	secret := signature.NewSecret()
	e, err := s.Append(ctx, Change{Webhook: id, What: Create, Settings: &want, Secret: s.key.seal(secret, id), By: by})
	return e, secret, err
}

// Rotate gives an endpoint a new secret. The one before signs, too, for RotationPeriod.
func (s *Store) Rotate(ctx context.Context, id, by string) (Endpoint, signature.Secret, error) {
	if s.key == nil {
		return Endpoint{}, signature.Secret{}, errNoKey
	}
	secret := signature.NewSecret()
	e, err := s.Append(ctx, Change{Webhook: id, What: Rotate, Secret: s.key.seal(secret, id), By: by})
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
	all, err := push.Positions(ctx, s.js)
	if err != nil {
		return nil, err
	}
	var own []push.Position
	for _, p := range all {
		if p.Name == e.audience(false) || p.Name == e.audience(true) {
			own = append(own, p)
		}
	}
	return own, nil
}

// Letters returns the dead letters of an endpoint, also those of before a replay.
func (s *Store) Letters(ctx context.Context, id string) ([]push.DeadLetter, error) {
	var own []push.DeadLetter
	for l, err := range push.Letters(ctx, s.js, "") {
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(l.Name, push.EventsPrefix+id+"-") {
			own = append(own, l)
		}
	}
	return own, nil
}
