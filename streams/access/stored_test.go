package access

import (
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestAWriteWithoutAResult: the secret that is returned opens the key that was stored late, and a revocation finds it. Package
// registry shows that each is one change.
func TestAWriteWithoutAResult(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	r := run(t, open(t, js).Registry())
	broken := func() *Store { return open(t, streamtest.LateWrite(js)) }
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
}
