package lane_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestALaneGoesOnWhileAnotherHasTheTurn: a snapshot is due all the time, and another lane has the slot for as long as the
// test lasts. Everything that lies ready is decided nevertheless, also when nothing more arrives to wake the lane, in steps that stay
// within their size.
func TestALaneGoesOnWhileAnotherHasTheTurn(t *testing.T) {
	r := newRig(t)
	setup := r.up(r.start(r.options()))
	r.one(create("c", 10, ""))
	if err := setup.stop(); err != nil {
		t.Fatal(err)
	}
	// Work for many thoughts of a snapshot; and messages of which no two fit into
	// a step, so that its arrival has always been signalled already.
	payload := []byte(strings.Repeat(strings.Repeat("\x01", 250)+"\n", 900))
	for range 300 {
		if _, err := r.js.PublishMsgAsync(&nats.Msg{Subject: topology.LaneCmd(0), Data: payload}); err != nil {
			t.Fatal(err)
		}
	}
	<-r.js.PublishAsyncComplete()
	_, last := r.send(topology.LaneCmd(0), claim("c", "the last"))

	o := r.withSnapshots()
	o.SnapshotEvents, o.Clock = 1, streamtest.Hurried(200)
	over, ok := o.Snapshots.TryAcquire()
	if !ok {
		t.Fatal("the slot is taken already")
	}
	defer over()
	r.up(r.start(o))
	if out := r.answers(last); len(out) != 1 || out[0].Status != wire.StatusClaimed || out[0].N != 1 {
		t.Errorf("the last claim: %+v", out)
	}
	messages, _ := r.events()
	for _, m := range messages {
		if len(m.Payload) > wire.MaxStep {
			t.Errorf("event message %d has %d bytes", m.Sequence, len(m.Payload))
		}
	}
}
