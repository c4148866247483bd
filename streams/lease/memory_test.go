package lease

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// memory is the bucket in memory, in a bubble of synctest: compare-and-set, TTLs and the markers that they leave.
// TestStores compares it with the one in NATS.
type memory struct {
	mu       sync.Mutex
	revision uint64
	keys     map[string]update
	forgets  bool // TTLs, as nats-server does in a crash
	watchers []*memoryWatcher
}

// site is the bucket as one server reaches it.
type site struct {
	*memory
	silent atomic.Bool       // nothing is answered or reported, as in an election, or when the server is cut off
	deaf   atomic.Bool       // what is written is stored, and its answers are lost
	slow   atomic.Int64      // how long a request takes
	copy   map[string]update // what a replica that has stopped shows to watchers; nil = the bucket
}

type memoryWatcher struct {
	site    *site
	group   string
	updates chan update
	trouble chan error
}

func newMemory() *memory { return &memory{keys: map[string]update{}} }

func (m *memory) site() *site { return &site{memory: m} }

// cut cuts the server off, or connects it again. That updates were missed it learns later, as from missing heartbeats.
func (s *site) cut(off bool) {
	if s.silent.Store(off); off {
		return
	}
	time.AfterFunc(time.Second, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, w := range s.watchers {
			if w.site == s {
				select {
				case w.trouble <- errors.New("missing heartbeats"):
				default:
				}
			}
		}
	})
}

// freeze makes the server read from a replica that has stopped. What it writes goes to the bucket.
func (s *site) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.copy = maps.Clone(s.keys)
}

func (s *site) exchange(ctx context.Context, write bool, do func() error) error {
	if d := s.slow.Load(); d > 0 {
		select {
		case <-time.After(time.Duration(d)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.silent.Load() || ctx.Err() != nil {
		<-ctx.Done()
		return ctx.Err()
	}
	s.mu.Lock()
	err := do()
	s.mu.Unlock()
	if write && s.deaf.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (s *site) put(ctx context.Context, key string, value []byte, ttl time.Duration, expected uint64) (revision uint64, err error) {
	err = s.exchange(ctx, true, func() error {
		revision, err = s.write(update{key: key, value: value}, ttl, expected)
		return err
	})
	return revision, err
}

func (s *site) remove(ctx context.Context, key string, expected uint64) error {
	return s.exchange(ctx, true, func() error {
		_, err := s.write(update{key: key, gone: true}, markerTTL, expected)
		return err
	})
}

func (s *site) last(ctx context.Context, key string) (u update, ok bool, err error) {
	err = s.exchange(ctx, false, func() error {
		u, ok = s.keys[key]
		return nil
	})
	return u, ok, err
}

// write is called with the mutex held.
func (m *memory) write(u update, ttl time.Duration, expected uint64) (uint64, error) {
	if was := m.keys[u.key].revision; expected != whatever && was != expected {
		return 0, &conflictError{was}
	}
	m.revision++
	u.revision, u.stored = m.revision, time.Now()
	m.keys[u.key] = u
	for _, w := range m.watchers {
		if !w.site.silent.Load() && w.site.copy == nil && w.wants(u.key) {
			w.updates <- u // there is room for more than any test writes
		}
	}
	if !m.forgets {
		time.AfterFunc(ttl, func() { m.expire(u) })
	}
	return u.revision, nil
}

func (m *memory) expire(u update) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.keys[u.key].revision != u.revision: // written again
	case u.gone:
		delete(m.keys, u.key)
	default:
		_, _ = m.write(update{key: u.key, gone: true, expired: true}, markerTTL, whatever)
	}
}

func (w *memoryWatcher) wants(key string) bool {
	return strings.HasPrefix(key, leasePrefix+w.group+".") || strings.HasPrefix(key, serverPrefix+w.group+".")
}

func (s *site) watch(ctx context.Context, group string) (*watcher, error) {
	w := &memoryWatcher{site: s, group: group, updates: make(chan update, 1<<14), trouble: make(chan error, 1)}
	err := s.exchange(ctx, false, func() error {
		var all []update
		keys := s.keys
		if s.copy != nil {
			keys = s.copy
		}
		for key, u := range keys {
			if w.wants(key) {
				all = append(all, u)
			}
		}
		slices.SortFunc(all, func(a, b update) int { return cmp.Compare(a.revision, b.revision) })
		if len(all) == 0 {
			all = []update{{}}
		}
		all[len(all)-1].complete = true
		for _, u := range all {
			w.updates <- u
		}
		s.watchers = append(s.watchers, w)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &watcher{updates: w.updates, trouble: w.trouble, stop: func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watchers = slices.DeleteFunc(s.watchers, func(other *memoryWatcher) bool { return other == w })
	}}, nil
}
