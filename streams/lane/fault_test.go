package lane_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// behindProxy returns options whose connection goes through a proxy that can strike at the lane's event writes.
func (r *rig) behindProxy() (*proxy, lane.Options) {
	r.t.Helper()
	p := newProxy(r.t, r.srv.ClientURL(), topology.Evt(0))
	nc, err := nats.Connect(p.url(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	o := r.options()
	if o.JetStream, err = jetstream.New(nc); err != nil {
		r.t.Fatal(err)
	}
	o.WriteTimeout = 300 * time.Millisecond
	return p, o
}

// TestAWriteWhoseResultIsNotKnown is the table of places at which a step's write can break: before it took effect and
// after. Whatever happens, one claim makes one event, the claim is answered, and the answer is what the log holds.
func TestAWriteWhoseResultIsNotKnown(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault fault
	}{
		{"the connection breaks before the publish", cutBefore},
		{"the connection breaks after the publish", cutAfter},
		{"the publish vanishes", swallowed},
		{"the ack vanishes", ackSwallowed},
		{"the publish arrives twice", doubled},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			p, o := r.behindProxy()
			r.up(r.start(o))
			r.one(create("c", 1000, ""))
			for i := range 5 {
				p.arm(c.fault)
				customer := fmt.Sprintf("customer-%d", i)
				_, sub := r.send(topology.LaneCmd(0), claim("c", customer))
				out := wire.Outcome{}
				// An outcome is a core message and may be lost with the connection: then the client retries with the same id.
				if msg, err := sub.NextMsg(5 * time.Second); err == nil {
					if out, err = wire.ParseOutcome(msg.Data[:len(msg.Data)-1]); err != nil {
						t.Fatal(err)
					}
				} else {
					out = r.one(claim("c", customer))
				}
				if out.Status != wire.StatusClaimed || out.N != uint32(i+1) {
					t.Fatalf("claim %d: %+v", i, out)
				}
				if held := r.holders(); held[out.Code] != customer || len(held) != i+1 {
					t.Fatalf("the log has %v", held)
				}
			}
			if p.struck() != 5 {
				t.Fatalf("the fault struck %d times, want 5", p.struck())
			}
		})
	}
}

// TestAnOwnerCutOffWhileAnotherTakesOver: the first owner's write is lost on the way, a second owner takes the lane and
// answers, then the first one's connection heals. It must find itself fenced out.
func TestAnOwnerCutOffWhileAnotherTakesOver(t *testing.T) {
	r := newRig(t)
	p, o := r.behindProxy()
	old := r.up(r.start(o))
	r.one(create("c", 1000, ""))
	p.armAll(1, swallowed) // as often as it tries
	_, sub := r.send(topology.LaneCmd(0), claim("c", "alice"))
	streamtest.Eventually(t, "the old owner has published in vain", func() bool { return p.struck() > 0 })
	before := old.Status().Owner
	young := r.up(r.start(r.options()))
	out := r.answers(sub)[0]
	if out.Status != wire.StatusClaimed {
		t.Fatalf("claim: %+v", out)
	}
	messages, _ := r.events()
	if last := messages[len(messages)-1]; last.Owner != young.Status().Owner {
		t.Fatalf("the claim was written by %s, want the second owner", last.Owner)
	}
	p.armAll(1)
	// The old owner resolves, finds another's message in its place, loads again.
	streamtest.Eventually(t, "the old owner gave up its nonce", func() bool { s := old.Status(); return s.State == lane.StateOwner && s.Owner != before })
	for i := range 20 {
		if out := r.one(claim("c", fmt.Sprintf("later-%d", i))); out.Status != wire.StatusClaimed {
			t.Fatalf("claim %d: %+v", i, out)
		}
	}
	if held := r.holders(); len(held) != 21 {
		t.Fatalf("%d holders, want 21", len(held))
	}
}

func TestAServerRestartUnderLoad(t *testing.T) {
	r := newRig(t)
	r.up(r.start(r.options()))
	r.one(create("c", 1000, ""))
	answered := make(map[string]string)
	for i := range 30 {
		if i%10 == 5 {
			r.srv.Restart(t)
		}
		customer := fmt.Sprintf("customer-%d", i)
		var out wire.Outcome
		streamtest.Eventually(t, "the claim is answered", func() bool {
			inbox := r.nc.NewRespInbox()
			sub, err := r.nc.SubscribeSync(inbox)
			if err != nil {
				return false
			}
			defer sub.Unsubscribe() //nolint:errcheck
			_, err = r.js.PublishMsg(t.Context(), &nats.Msg{Subject: topology.LaneCmd(0), Data: []byte(claim("c", customer)), Header: nats.Header{topology.HeaderReply: {inbox}}})
			if err != nil {
				return false
			}
			msg, err := sub.NextMsg(2 * time.Second)
			if err != nil {
				return false
			}
			out, err = wire.ParseOutcome(msg.Data[:len(msg.Data)-1])
			return err == nil
		})
		if out.Status != wire.StatusClaimed {
			t.Fatalf("claim %d: %+v", i, out)
		}
		answered[out.Code] = customer
	}
	held := r.holders()
	for code, customer := range answered {
		if held[code] != customer {
			t.Errorf("%s was answered to %s, the log has %q", code, customer, held[code])
		}
	}
}
