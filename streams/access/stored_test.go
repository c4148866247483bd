package access

import (
	"fmt"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestAWriteWithoutAResult: whether it was stored or not, there is one key, and the secret that was returned opens it; a
// revocation and a rotation likewise happen once.
func TestAWriteWithoutAResult(t *testing.T) {
	for _, stored := range []bool{false, true} {
		t.Run(fmt.Sprintf("stored=%t", stored), func(t *testing.T) {
			js := streamtest.Start(t).JetStream(t)
			r := run(t, open(t, js).Registry())
			broken := func() *Store { return open(t, streamtest.LostAnswer(js, stored)) }
			k, secret, err := broken().Create(t.Context(), New{Name: "ann", Role: Operator}, "bob")
			if err != nil {
				t.Fatal(err)
			}
			becomes(t, r, secret, nil)
			next, nextSecret, err := broken().Rotate(t.Context(), "ann", 0, "bob")
			if err != nil || next.Replaces != k.ID {
				t.Fatalf("%+v %v", next, err)
			}
			becomes(t, r, nextSecret, nil)
			becomes(t, r, secret, ErrRevoked)
			if ended, err := broken().Revoke(t.Context(), "ann", "bob"); err != nil || ended.ID != next.ID || ended.Ended.IsZero() {
				t.Fatalf("%+v %v", ended, err)
			}
			becomes(t, r, nextSecret, ErrRevoked)
			if all, err := open(t, js).List(t.Context()); err != nil || len(all) != 2 {
				t.Errorf("%+v %v", all, err)
			}
			if n := r.Status().Change; n != 3 {
				t.Errorf("%d changes are stored", n)
			}
		})
	}
}
