package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
)

// KeyBook is what clients know of the keys that they change: what was answered, and what was sent and has no answer. It may be
// used by several goroutines at once.
type KeyBook struct {
	mu       sync.Mutex
	live     []bookedKey
	ended    map[string]string    // by id: the key that replaced it, "" = none: it was revoked
	open     map[string]KeyChange // by id of the key: rotations and revocations without an answer
	making   map[string]bool      // names of keys that were to be made, without an answer
	recorded map[string]bool      // action and id of what was answered
	number   int
}

type bookedKey struct{ id, name, secret string } // secret "" = its answer was lost

// NewKeyBook is the book of a log without keys.
func NewKeyBook() *KeyBook {
	return &KeyBook{ended: map[string]string{}, open: map[string]KeyChange{}, making: map[string]bool{}, recorded: map[string]bool{}}
}

// KeyChange is a change of a key: create, rotate or revoke.
type KeyChange struct {
	Action string
	Name   string // of the key to be made
	ID     string // of the key to be replaced or revoked
	key    bookedKey
}

// Next chooses a change and books it as sent. Of two changes of one key one is answered before the other is chosen.
func (b *KeyBook) Next(rng *rand.Rand) KeyChange {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.live) < 2 || rng.IntN(3) == 0 {
		b.number++
		c := KeyChange{Action: "create", Name: fmt.Sprint("key ", b.number)}
		b.making[c.Name] = true
		return c
	}
	i := rng.IntN(len(b.live))
	k := b.live[i]
	b.live = append(b.live[:i], b.live[i+1:]...)
	c := KeyChange{Action: "rotate", ID: k.id, key: k}
	if rng.IntN(2) == 0 {
		c.Action = "revoke"
	}
	b.open[k.id] = c
	return c
}

// Answered books the answer to a change: the key that was made or revoked, and the secret of a new one.
func (b *KeyBook) Answered(c KeyChange, k access.Key, secret string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recorded[c.Action+" "+k.ID] = true
	if c.Action == "create" {
		delete(b.making, c.Name)
	} else {
		delete(b.open, c.ID)
		b.ended[c.ID] = ""
	}
	if c.Action != "revoke" {
		b.live = append(b.live, bookedKey{k.ID, k.Name, secret})
	}
	if c.Action == "rotate" {
		b.ended[c.ID] = k.ID
	}
}

// Changes counts the answered changes.
func (b *KeyBook) Changes() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.recorded)
}

// Judge holds the keys of a log, at a NATS URL with the servers' credentials, against the answers, while no program changes
// keys. Each answered change is there, in force and recorded; one without an answer is there as a whole or not at all. What is
// there is booked, so that the next changes start with it.
func (b *KeyBook) Judge(t testing.TB, natsURL string) {
	t.Helper()
	nc, err := nats.Connect(natsURL)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	store := access.Open(js, access.Options{})
	all, err := store.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	registry := store.Registry()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- registry.Run(ctx) }()
	defer func() { cancel(); <-done }()
	<-registry.Ready()
	entries, _, err := audit.Open(js, nil).Read(t.Context(), audit.Filter{Kind: audit.Keys}, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.judge(t, all, registry)
	seen := map[string]bool{}
	for _, e := range entries {
		about := strings.Fields(e.About)
		if e.Action == "rotate" {
			about = about[1:] // the first is the id of the key that it replaces
		}
		seen[e.Action+" "+about[0]] = true
	}
	for change := range b.recorded {
		if !seen[change] {
			t.Errorf("%s was answered, and the audit stream does not have it", change)
		}
	}
}

func (b *KeyBook) judge(t testing.TB, all []access.Key, registry *access.Registry) {
	t.Helper()
	byID := map[string]access.Key{}
	for _, k := range all {
		byID[k.ID] = k
	}
	for _, k := range all {
		if next, ok := byID[k.ReplacedBy]; k.ReplacedBy != "" && (!ok || next.Replaces != k.ID || k.Ended.IsZero()) {
			t.Errorf("half a change: %+v is replaced by %+v", k, next)
		}
		if old := byID[k.Replaces]; k.Replaces != "" && old.ReplacedBy != k.ID {
			t.Errorf("half a change: %+v replaces %+v", k, old)
		}
	}
	for _, k := range b.live {
		if got, ok := byID[k.id]; !ok || !got.Ended.IsZero() || got.Name != k.name {
			t.Errorf("key %s of %q was answered as made; there is %+v", k.id, k.name, got)
		} else if _, err := registry.Authenticate(k.secret); k.secret != "" && err != nil {
			t.Errorf("key %s of %q was answered as made and is refused: %v", k.id, k.name, err)
		}
	}
	for id, by := range b.ended {
		if got, ok := byID[id]; !ok || got.Ended.IsZero() || got.ReplacedBy != by {
			t.Errorf("key %s was answered as ended, replaced by %q; there is %+v", id, by, got)
		}
	}
	for id, c := range b.open {
		switch got, ok := byID[id]; {
		case !ok:
			t.Errorf("key %s is gone after %s without an answer", id, c.Action)
		case got.Ended.IsZero():
			b.live = append(b.live, c.key)
		case (got.ReplacedBy != "") != (c.Action == "rotate"):
			t.Errorf("after %s without an answer there is %+v", c.Action, got)
		default:
			b.ended[id] = got.ReplacedBy
		}
	}
	known := map[string]bool{}
	for _, k := range b.live {
		known[k.id] = true
	}
	for _, k := range all {
		_, ended := b.ended[k.ID]
		_, replaced := b.open[k.Replaces]
		switch {
		case known[k.ID] || ended:
		case b.making[k.Name] || replaced && k.Ended.IsZero():
			delete(b.making, k.Name)
			b.live = append(b.live, bookedKey{k.ID, k.Name, ""})
		default:
			t.Errorf("nobody made %+v", k)
		}
	}
	b.making, b.open = map[string]bool{}, map[string]KeyChange{}
}
