package lane_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/lane"
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
			for i := range 2 {
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
			if p.struck() != 2 {
				t.Fatalf("the fault struck %d times, want 2", p.struck())
			}
		})
	}
}

// A lane whose event stream takes no writes and does not answer reports it, with the error.
func TestALaneWithoutItsEventStreamSaysSo(t *testing.T) {
	r := newRig(t)
	run := r.up(r.start(r.options()))
	r.one(create("c", 10, ""))
	if err := r.js.DeleteStream(t.Context(), topology.EvtStream(0)); err != nil {
		t.Fatal(err)
	}
	r.send(topology.LaneCmd(0), claim("c", "alice"))
	run.reports(t, lane.StateUnknown, "does not answer")
}
