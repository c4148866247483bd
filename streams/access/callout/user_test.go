package callout

import (
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// only is a registry of one key.
type only struct{ access.Principal }

func (o only) Authenticate(string) (access.Principal, error) { return o.Principal, nil }
func (only) Watch(func(string)) func()                       { return func() {} }

// TestWhoReadsTheLogLogsInEachHour, because its log-ins are recorded, and nothing that it reads.
func TestWhoReadsTheLogLogsInEachHour(t *testing.T) {
	issuer, err := NewIssuer()
	streamtest.Must(t, err)
	pair, err := nkeys.CreateUser()
	streamtest.Must(t, err)
	user, err := pair.PublicKey()
	streamtest.Must(t, err)
	clock := streamtest.NewClock()
	for rights, want := range map[[2]bool]time.Duration{{true, true}: time.Hour, {true, false}: validFor, {false, true}: validFor, {}: validFor} {
		p := access.Principal{ID: "01h8z3qk", Name: "eve", Role: access.Analyst, Codes: rights[0], Customers: rights[1]}
		r := &Responder{lanes: 1, issuer: issuer, keys: only{p}, clock: clock}
		signed, err := r.user(user, p, natsauth.Permissions{})
		streamtest.Must(t, err)
		claims, err := jwt.DecodeUserClaims(signed)
		if err != nil || claims.Expires != clock.Now().Add(want).Unix() {
			t.Errorf("codes and customers %t: %+v, %v", rights, claims, err)
		}
	}
}
