package power

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// keyBook is what an operator knows of the keys that it changes one after the other: what was answered, and the change that was
// sent last and has no answer.
type keyBook struct {
	live     []bookedKey
	ended    map[string]string // by id: the key that replaced it, "" = none: it was revoked
	open     keyChange
	recorded map[string]bool // action and id of what was answered
	number   int
}

type bookedKey struct{ id, name, secret string } // secret "" = its answer was lost

// keyChange is a change of a key: create, rotate or revoke; "" = none.
type keyChange struct {
	action string
	key    bookedKey // to be made, replaced or revoked
}

func newKeyBook() *keyBook { return &keyBook{ended: map[string]string{}, recorded: map[string]bool{}} }

// next chooses a change and books it as sent.
func (b *keyBook) next(rng *rand.Rand) keyChange {
	if len(b.live) < 2 || rng.IntN(3) == 0 {
		b.number++
		b.open = keyChange{"create", bookedKey{name: fmt.Sprint("key ", b.number)}}
		return b.open
	}
	i := rng.IntN(len(b.live))
	b.open = keyChange{[]string{"rotate", "revoke"}[rng.IntN(2)], b.live[i]}
	b.live = append(b.live[:i], b.live[i+1:]...)
	return b.open
}

// answered books the answer to the open change: the key that was made or revoked, and the secret of a new one.
func (b *keyBook) answered(k access.Key, secret string) {
	b.recorded[b.open.action+" "+k.ID] = true
	switch b.open.action {
	case "revoke":
		b.ended[b.open.key.id] = ""
	case "rotate":
		b.ended[b.open.key.id] = k.ID
	}
	if b.open.action != "revoke" {
		b.live = append(b.live, bookedKey{k.ID, k.Name, secret})
	}
	b.open = keyChange{}
}

// keysBefore is how many changes of keys are answered before the power can be cut: each round has something to lose.
const keysBefore = 3

// changeKeys: each answered change of a key is there, in force and recorded, and one without an answer as a whole or not at
// all.
func (w *world) changeKeys() {
	rng := rand.New(rand.NewPCG(w.rng.Uint64(), 0))
	for range keysBefore {
		if c := w.changeKey(rng); c.code != 0 {
			w.t.Fatalf("a change of a key failed: %s", c.out.String())
		}
	}
	ended := make(chan struct{})
	w.cutAfter(w.steps(300), func() <-chan struct{} {
		go func() {
			defer close(ended)
			for range 20 {
				if c := w.changeKey(rng); c.code != 0 {
					return // killed
				}
			}
		}()
		return ended
	})
	<-ended
	w.up()
	w.judgeKeys()
}

// changeKey makes, replaces or revokes a key, and books the answer.
func (w *world) changeKey(rng *rand.Rand) *command {
	change := w.keys.next(rng)
	args := []string{"access", change.action, change.key.id}
	if change.action == "create" {
		args = []string{"access", "create", change.key.name, "--role", "support"}
	}
	c := w.run(append(args, "-o", "json", "--data", w.path("scrip"), "--timeout", "60s")...)
	if c.code != 0 {
		return c
	}
	var made ops.MadeKey
	if err := json.Unmarshal(c.out.Bytes(), &made); err != nil {
		w.t.Errorf("%s: %v: %s", change.action, err, c.out.String())
		return c
	}
	w.keys.answered(made.Key, made.Secret)
	return c
}

// judgeKeys holds the keys of the log against the answers. What is there is booked, so that the next changes start with it.
func (w *world) judgeKeys() {
	t, b := w.t, w.keys
	t.Helper()
	js, closed := w.jetStream(w.url)
	defer closed()
	store := access.Open(js, access.Options{})
	all, err := store.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	registry := store.Registry()
	defer streamtest.Background(t, registry.Run)()
	<-registry.Ready()

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
	if b.open.action == "rotate" || b.open.action == "revoke" {
		switch got, ok := byID[b.open.key.id]; {
		case !ok:
			t.Errorf("key %s is gone after %s without an answer", b.open.key.id, b.open.action)
		case got.Ended.IsZero():
			b.live = append(b.live, b.open.key)
		case (got.ReplacedBy != "") != (b.open.action == "rotate"):
			t.Errorf("after %s without an answer there is %+v", b.open.action, got)
		default:
			b.ended[got.ID] = got.ReplacedBy
		}
	}
	known := map[string]bool{}
	for _, k := range b.live {
		known[k.id] = true
	}
	for _, k := range all {
		_, ended := b.ended[k.ID]
		made := b.open.action == "create" && k.Name == b.open.key.name || b.open.action == "rotate" && k.Replaces == b.open.key.id
		switch {
		case known[k.ID] || ended:
		case made && k.Ended.IsZero():
			b.live = append(b.live, bookedKey{k.ID, k.Name, ""})
		default:
			t.Errorf("no change made %+v", k)
		}
	}
	b.open = keyChange{}
	w.judgeAudit(js)
}

// judgeAudit looks for each answered change in the audit stream.
func (w *world) judgeAudit(js jetstream.JetStream) {
	w.t.Helper()
	entries, _, err := audit.Open(js, nil).Read(w.t.Context(), audit.Filter{Kind: audit.Keys}, 1_000_000)
	if err != nil {
		w.t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, e := range entries {
		about := strings.Fields(e.About)
		if e.Action == "rotate" {
			about = about[1:] // the first is the id of the key that it replaces
		}
		seen[e.Action+" "+about[0]] = true
	}
	for change := range w.keys.recorded {
		if !seen[change] {
			w.t.Errorf("%s was answered, and the audit stream does not have it", change)
		}
	}
}
