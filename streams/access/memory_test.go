package access

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// Memory is a history of keys in this process, and an audit stream. Each change is at once in force at its registries, as it is
// within a second through the bucket; see package registry.
type Memory struct {
	t          testing.TB
	mu         sync.Mutex
	log        []registry.Message
	registries []*Registry
	recorded   recorder
}

func NewMemory(t testing.TB) *Memory { return &Memory{t: t} }

// Store is a server's, whose clock may be wrong.
func (m *Memory) Store(clock wall.Clock) *Store {
	s := Open(noBuckets{}, Options{Logger: streamtest.Logger(m.t), Clock: clock, Audit: audit.Open(&m.recorded, nil)})
	s.history.History = m
	return s
}

// Recorded returns what was recorded since the last call. Fails is what recording returns from now on, nil = it succeeds.
func (m *Memory) Recorded() []audit.Entry {
	defer func() { m.recorded.entries = nil }()
	return m.recorded.entries
}

func (m *Memory) Fails(err error) { m.recorded.fails = err }

// registry makes the registry of a server, and runs what ends keys by its clock.
func (m *Memory) registry(t *testing.T, clock wall.Clock) *Registry {
	r := m.Store(clock).Registry()
	streamtest.Background(t, func(ctx context.Context) error { r.watchEnds(ctx); return nil })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.registries = append(m.registries, r)
	return r
}

func (m *Memory) Create(_ context.Context, key string, value []byte) (uint64, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, message := range m.log {
		if message.Key == key {
			return 0, false, jetstream.ErrKeyExists
		}
	}
	m.log = append(m.log, registry.Message{Key: key, Value: value, Revision: uint64(len(m.log) + 1)})
	for _, r := range m.registries {
		f := r.store.history.Fold()
		for _, message := range m.log {
			f.Apply(message)
		}
		r.put(f)
	}
	return uint64(len(m.log)), false, nil
}

func (m *Memory) Read(_ context.Context, start func(), f func(registry.Message)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	start()
	for _, message := range m.log {
		f(message)
	}
	return nil
}

// recorder is an audit stream in memory.
type recorder struct {
	noBuckets
	mu      sync.Mutex
	entries []audit.Entry
	fails   error
}

func (r *recorder) Publish(_ context.Context, _ string, line []byte, _ ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fails != nil {
		return nil, r.fails
	}
	var e audit.Entry
	err := json.Unmarshal(line, &e)
	r.entries = append(r.entries, e)
	return nil, err
}

// noBuckets is a server without the bucket of last uses.
type noBuckets struct{ jetstream.JetStream }

func (noBuckets) KeyValue(context.Context, string) (jetstream.KeyValue, error) {
	return nil, jetstream.ErrBucketNotFound
}
