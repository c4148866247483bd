// Package share bounds what each client may store on a server: a leaky bucket of bytes for each.
//
//	Take     ──> room left? ──> taken, or how long until there is room        before something is stored
//	Owe      ──> taken whatever is left; later calls of Take wait for it      after something had to be stored
//	GiveBack ──> what was taken and not stored
//
// A stream has one bound for all. Without a share the first client that stores without end uses it up, and all others are refused.
// A client that has used its share waits; in a period it stores two shares at most, one of them at once.
//
// Owner: none. A Share has no goroutine, and may be used by several at once.
//
// What a crash does: each client has its whole share again. The bound of the stream holds.
package share

import (
	"fmt"
	"sync"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// mostClients bounds the clients that are counted. Clients have keys, so no stranger reaches it.
const mostClients = 1 << 14

// Share is the share of each client. A nil Share has no bound.
type Share struct {
	clock wall.Clock
	bytes float64
	leaks float64 // a second

	mu      sync.Mutex // guards the fields below
	by      map[string]*bucket
	refused uint64
}

// bucket is how much a client used at a time.
type bucket struct {
	used float64
	at   time.Time
}

// UsedUp refuses a client that has used its share. Nothing was done.
type UsedUp struct {
	// Of is what it is a share of.
	Of   string
	Wait time.Duration
}

func (u *UsedUp) Error() string {
	return fmt.Sprintf("this key has stored its share of %s on this server; wait %s", u.Of, u.Wait.Round(time.Second))
}

// New returns a share of so many bytes, which is free again after a period. A nil clock is the machine's.
func New(bytes int, per time.Duration, clock wall.Clock) *Share {
	if clock == nil {
		clock = wall.Machine
	}
	return &Share{clock: clock, bytes: float64(bytes), leaks: float64(bytes) / per.Seconds(), by: map[string]*bucket{}}
}

// Take takes bytes of the share of a client. wait is 0, or, if there is no room and nothing was taken, how long until there is.
// Client "" is a server, or has the credentials of the data directory: it has no bound.
func (s *Share) Take(client string, bytes int) (wait time.Duration) {
	if s == nil || client == "" {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, more := s.of(client), min(float64(bytes), s.bytes)
	if over := b.used + more - s.bytes; over > 0 {
		s.refused++
		return max(time.Second, time.Duration(over/s.leaks*float64(time.Second)))
	}
	b.used += more
	return 0
}

// Owe takes bytes of the share of a client, also where there is no room.
func (s *Share) Owe(client string, bytes int) { s.add(client, float64(bytes)) }

// GiveBack undoes Take.
func (s *Share) GiveBack(client string, bytes int) { s.add(client, -float64(bytes)) }

func (s *Share) add(client string, bytes float64) {
	if s == nil || client == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.of(client)
	b.used = max(0, b.used+bytes)
}

// Used is how many bytes a client has, how many the one with most of them uses, and how often one was refused.
func (s *Share) Used() (bytes, used int, refused uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for client := range s.by {
		used = max(used, int(s.of(client).used))
	}
	return int(s.bytes), used, s.refused
}

// of returns the bucket of a client as it is now.
func (s *Share) of(client string) *bucket {
	now := s.clock.Now()
	b := s.by[client]
	if b == nil {
		if len(s.by) >= mostClients {
			Forget(s.by, mostClients, func(b *bucket) bool { b.leak(now, s.leaks); return b.used == 0 }, nil)
		}
		b = &bucket{at: now}
		s.by[client] = b
	}
	b.leak(now, s.leaks)
	return b
}

func (b *bucket) leak(now time.Time, rate float64) {
	if passed := now.Sub(b.at).Seconds(); passed > 0 {
		b.used, b.at = max(0, b.used-passed*rate), now
	}
}
