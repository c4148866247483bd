package natsauth_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestLogins: a key opens as token and as password; anything else does not.
func TestLogins(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, revoked := r.keys.add(kinds["producer"]), r.keys.add(kinds["producer"])
	r.inForce(t, key)
	r.keys.revoke(revoked)
	becomes(t, r.registry, revoked, access.ErrRevoked)
	other := map[bool]string{false: "0", true: "1"} // than the last symbol, which may be 0
	for _, test := range []struct {
		name string
		opts []nats.Option
		open bool
	}{
		{"token", []nats.Option{nats.Token(key)}, true},
		{"password", []nats.Option{nats.UserInfo("any name", key)}, true},
		{"servers' user", []nats.Option{nats.UserInfo(streamtest.ServersUser, streamtest.ServersPassword)}, true},
		{"nothing", nil, false},
		{"wrong token", []nats.Option{nats.Token(key[:len(key)-1] + other[key[len(key)-1] == '0'])}, false},
		{"no key", []nats.Option{nats.Token("hello")}, false},
		{"revoked", []nats.Option{nats.Token(revoked)}, false},
		{"servers' user, wrong password", []nats.Option{nats.UserInfo(streamtest.ServersUser, "wrong")}, false},
		{"servers' user, no password", []nats.Option{nats.UserInfo(streamtest.ServersUser, "")}, false},
		{"user alone", []nats.Option{nats.UserInfo(key, "")}, false},
		{"long", []nats.Option{nats.Token(strings.Repeat("x", 3000))}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			nc, err := nats.Connect(r.ClientURL(), append(test.opts, nats.MaxReconnects(0), nats.Timeout(20*time.Second))...)
			if nc != nil {
				defer nc.Close()
			}
			if test.open != (err == nil) || err != nil && !errors.Is(err, nats.ErrAuthorization) {
				t.Errorf("the log-in ended with %v", err)
			}
		})
	}
}

// TestAUserHearsItsOwnAnswersOnly: no other user's inbox, no request, no event.
func TestAUserHearsItsOwnAnswersOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := natsx.KeyInbox(r.keys.add(kinds["producer"]))
	for _, principal := range kinds {
		key := r.keys.add(principal)
		g := r.guest(t, key)
		if _, err := g.SubscribeSync(natsx.KeyInbox(key) + ".>"); err != nil {
			t.Fatal(err)
		}
		g.deniedSubscriptions(t, ">", "_INBOX.>", "_INBOX_producer.>", other+".>", "scrip.>", "scrip.claim.*", "scrip.evt.0", "$SYS.>", "$SRV.>", "_R_.>", "$JS.>")
		g.allowed(t)
	}
}

// inForce is how long a change may take to have its effect at every server.
const inForce = time.Second

// TestARevokedKeyIsDisconnected: within a second, every connection of the key and none else, and it does not come back.
func TestARevokedKeyIsDisconnected(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key, kept := r.keys.add(kinds["producer"]), r.keys.add(kinds["producer"])
	ended := make(chan struct{}, 8)
	for range 3 {
		r.guest(t, key, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ClosedHandler(func(*nats.Conn) { ended <- struct{}{} }))
	}
	other, servers := r.guest(t, kept), r.Conn(t)
	r.keys.revoke(key)
	answered := time.Now()
	for range 3 {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("a connection of a revoked key is still open")
		}
	}
	if took := time.Since(answered); took > inForce {
		t.Errorf("closed %s after the revocation was answered, promised is %s", took, inForce)
	}
	if _, err := other.Request("scrip.claim.summer", []byte(`{"customer_id":"c"}`), 20*time.Second); err != nil || !servers.IsConnected() {
		t.Errorf("another key: %v", err)
	}
}

// TestKeysAreNotReadYet: a server that has not read the keys yet refuses no log-in: nats.go gives a connection up that one NATS
// server refuses twice. The log-in times out, and the next one is answered.
func TestKeysAreNotReadYet(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key := r.keys.add(kinds["producer"])
	r.inForce(t, key)
	r.away()
	registry := access.Open(r.js, access.Options{Logger: streamtest.Logger(t)}).Registry()
	r.answer(registry)
	if nc, err := nats.Connect(r.ClientURL(), nats.Token(key), nats.Timeout(20*time.Second)); err == nil || errors.Is(err, nats.ErrAuthorization) {
		nc.Close()
		t.Errorf("the log-in ended with %v", err)
	}
	run(t, registry.Run, registry.Ready())
	r.guest(t, key)
}

// TestTheSDKWorksWithAKey: a producer's writes to the lanes, and gets outcomes through its own inbox; one that may not, or
// another role, makes requests.
func TestTheSDKWorksWithAKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for kind, direct := range map[string]bool{"producer": true, "limited": false, "rated": false, "operator": false} {
		t.Run(kind, func(t *testing.T) {
			key := r.keys.add(kinds[kind])
			r.inForce(t, key)
			c, err := client.Connect(strings.Replace(r.ClientURL(), "nats://", "nats://"+key+"@", 1))
			streamtest.Must(t, err)
			defer c.Close()
			for i := range 3 {
				out, err := c.Do(t.Context(), wire.Command{Type: wire.Claim, Campaign: "summer", CustomerID: "c", ID: kind + string(rune('0'+i))})
				if err != nil || out.Status != wire.StatusClaimed {
					t.Fatalf("%+v, %v", out, err)
				}
			}
			stream, err := r.js.Stream(t.Context(), topology.CmdStream(topology.LaneOf("summer", lanes)))
			streamtest.Must(t, err)
			last, err := stream.GetLastMsgForSubject(t.Context(), topology.LaneShop(topology.LaneOf("summer", lanes)))
			if direct && (err != nil || !strings.HasPrefix(last.Header.Get(topology.HeaderReply), natsx.KeyInbox(key))) {
				t.Errorf("the last message on the shop's subject is %v, %v", last, err)
			}
			if !direct && err == nil && strings.HasPrefix(last.Header.Get(topology.HeaderReply), natsx.KeyInbox(key)) {
				t.Errorf("it wrote to the lane: %v", last.Header)
			}
		})
	}
}
