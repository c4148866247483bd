package api

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestCommandIDs: the id of an Idempotency-Key never changes, since retries cross upgrades; one that the server made is known as
// such to its key alone, whatever was changed in it.
func TestCommandIDs(t *testing.T) {
	shop, other := access.Principal{ID: "k1"}, access.Principal{ID: "k2"}
	for key, want := range map[string]string{"cart 1": "hhnm4o5pl1d454bkudh2g47jpc", strings.Repeat("x", 255): "h7hch96qg7rse53o1gsk6e38ar"} {
		if id := commandID(shop, key); id != want {
			t.Errorf("the id of Idempotency-Key %s is %s, want %s", key, id, want)
		}
	}
	if rotated := (access.Principal{ID: "k9", First: "k1"}); commandID(rotated, "cart 1") != commandID(shop, "cart 1") {
		t.Error("a key that replaced another does not repeat its commands")
	}
	if commandID(shop, "cart 1") == commandID(other, "cart 1") || commandID(shop, "cart 1") == commandID(shop, "cart 2") {
		t.Error("ids of different Idempotency-Keys are not different")
	}
	for _, p := range []access.Principal{shop, other, {}} {
		made := commandID(p, "")
		if again := commandID(p, made); again != made {
			t.Errorf("%s, sent again, is %s", made, again)
		}
		if commandID(p, "") == made {
			t.Errorf("%s was made twice", made)
		}
		if id := commandID(access.Principal{ID: "k3"}, made); id == made {
			t.Errorf("%s is that of another key, too", made)
		}
		for i := range made {
			altered := []byte(made)
			altered[i] ^= 1
			if id := commandID(p, string(altered)); id == string(altered) {
				t.Errorf("%s was not made and is taken", altered)
			}
		}
		if id := commandID(p, made+"x"); id == made+"x" || commandID(p, made[1:]) == made[1:] {
			t.Errorf("%s", id)
		}
	}
}

// TestACommandThatCannotBeSentHasNoEffect: while NATS is away the answer has the fact that nothing was sent.
func TestACommandThatCannotBeSentHasNoEffect(t *testing.T) {
	nats := streamtest.Start(t)
	lanes := command.New(nats.Conn(t), command.Options{Count: 1, Codec: code.New([32]byte{})})
	streamtest.Background(t, lanes.Run)
	a := &API{Options: Options{Lanes: lanes}}
	nats.Shutdown()
	var effects []web.Effect
	for range 3 { // the first may be sent before the end of the connection is noticed
		var p *web.Problem
		hasty, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := a.send(hasty, access.Principal{}, &wire.Command{ID: "a", Type: wire.Claim, Campaign: "summer", CustomerID: "ann"}); !errors.As(err, &p) || p.Status != 503 {
			t.Fatalf("%v", err)
		}
		if p.Effect == web.NoEffect {
			return
		}
		effects = append(effects, p.Effect)
	}
	t.Errorf("the effects are %v, want %s", effects, web.NoEffect)
}
