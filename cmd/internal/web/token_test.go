package web

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/once"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestTokens: one stands for its key once, within its time, and with the rights that the key has then.
func TestTokens(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	log, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 1, KeyFingerprint: "k"})
	streamtest.Must(t, err)
	g := testGate()
	g.Tokens = once.Open(js, [32]byte{7}, log.UUID)
	makeToken := func(p access.Principal) string {
		text, expires, err := g.MakeToken(t.Context(), p)
		if left := time.Until(expires); err != nil || left <= TokenLife-5*time.Second || left > TokenLife {
			t.Fatal(expires, err)
		}
		return text
	}
	ann, local := makeToken(access.Principal{ID: "analyst", Role: access.Operator}), makeToken(access.Local("ops"))
	_, err = g.Tokens.Create(t.Context(), once.Owner{For: once.Minute}, "token old", fmt.Appendf(nil, "%d analyst", time.Now().Unix()-1))
	streamtest.Must(t, err)
	for _, c := range []struct {
		token, who string
		role       access.Role
	}{
		{ann, "ann", access.Analyst}, {ann, "", access.NoRole}, {local, "local:", access.Operator}, {"old", "", access.NoRole}, {"none", "", access.NoRole},
		{makeToken(access.Principal{ID: "revoked"}), "", access.NoRole},
	} {
		p, problem := g.take(t.Context(), c.token)
		if p.Name != c.who || p.Role != c.role || (problem == nil) != (c.who != "") || problem != nil && problem.Status != 401 {
			t.Errorf("%s: %+v, %v", c.token, p, problem)
		}
	}
}
