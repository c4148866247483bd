package access

import (
	"context"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/changelog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// Memory is a history of keys in this process. Each change is at once in force at its registries, as it is within a second
// through the bucket; see package changelog.
type Memory struct {
	t          testing.TB
	mu         sync.Mutex
	log        []changelog.Message
	registries []*Registry
}

func NewMemory(t testing.TB) *Memory { return &Memory{t: t} }

// Store is a server's, whose clock may be wrong.
func (m *Memory) Store(o Options) *Store {
	if o.Logger == nil {
		o.Logger = streamtest.Logger(m.t)
	}
	s := Open(noBuckets{}, o)
	s.history = m
	return s
}

// registry makes the registry of a server, and runs what ends keys by its clock.
func (m *Memory) registry(t *testing.T, clock wall.Clock) *Registry {
	r := m.Store(Options{Clock: clock}).Registry()
	(*fold)(r).Begin()
	streamtest.Background(t, func(ctx context.Context) error { r.watchEnds(ctx); return nil })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.registries = append(m.registries, r)
	return r
}

func (m *Memory) Write(_ context.Context, c changelog.Change) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.Begin()
	for _, message := range m.log {
		c.Apply(message)
	}
	n, value, err := c.Record()
	if err != nil {
		return 0, err
	}
	next := changelog.Message{Key: changelog.Key(n), Value: value, Revision: uint64(len(m.log) + 1)}
	m.log = append(m.log, next)
	for _, r := range m.registries {
		(*fold)(r).Apply(next)
		if err := (*fold)(r).Current(false); err != nil {
			m.t.Error(err)
		}
	}
	return next.Revision, nil
}

func (m *Memory) Read(_ context.Context, begin func(), f func(changelog.Message)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	begin()
	for _, message := range m.log {
		f(message)
	}
	return nil
}

// noBuckets is a server without the bucket of last uses.
type noBuckets struct{ jetstream.JetStream }

func (noBuckets) KeyValue(context.Context, string) (jetstream.KeyValue, error) {
	return nil, jetstream.ErrBucketNotFound
}
