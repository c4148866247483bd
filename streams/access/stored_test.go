package access

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestAWriteWithoutAResult: whenever it was stored, there is one key, and the secret that was returned opens it; a
// revocation and a rotation likewise happen once.
func TestAWriteWithoutAResult(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	r := run(t, open(t, js).Registry())
	for when, lose := range map[string]func(jetstream.JetStream) jetstream.JetStream{
		"never":   func(js jetstream.JetStream) jetstream.JetStream { return streamtest.LostAnswer(js, false) },
		"at once": func(js jetstream.JetStream) jetstream.JetStream { return streamtest.LostAnswer(js, true) },
		"late":    streamtest.LateWrite,
	} {
		t.Run(when, func(t *testing.T) {
			before := r.Status().Change
			broken := func() *Store { return open(t, lose(js)) }
			k, secret, err := broken().Create(t.Context(), New{Name: "ann", Role: Operator}, by("bob"))
			if err != nil {
				t.Fatal(err)
			}
			becomes(t, r, secret, nil)
			next, nextSecret, err := broken().Rotate(t.Context(), "ann", 0, by("bob"))
			if err != nil || next.Replaces != k.ID {
				t.Fatalf("%+v %v", next, err)
			}
			becomes(t, r, nextSecret, nil)
			becomes(t, r, secret, ErrRevoked)
			if ended, err := broken().Revoke(t.Context(), "ann", by("bob")); err != nil || ended.ID != next.ID || ended.Ended.IsZero() {
				t.Fatalf("%+v %v", ended, err)
			}
			becomes(t, r, nextSecret, ErrRevoked)
			if n := r.Status().Change - before; n != 3 {
				t.Errorf("%d changes are stored", n)
			}
		})
	}
}
