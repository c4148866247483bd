package lane_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestAStepStaysWithinItsSize: messages that cost many times their size in events arrive at once; no event message is
// larger than the contract allows, and every line is answered.
func TestAStepStaysWithinItsSize(t *testing.T) {
	r := newRig(t)
	ready := r.options()
	setup := r.up(r.start(ready))
	r.one(create("c", 100_000, ""))
	if err := setup.stop(); err != nil {
		t.Fatal(err)
	}
	// Sent while the lane has no owner, so that they are ready together.
	var subs []*nats.Subscription
	for m := range 12 {
		var lines []string
		for i := range 900 {
			if i%2 == 0 {
				lines = append(lines, claim("c", fmt.Sprintf("customer-%d-%d", m, i)))
			} else {
				lines = append(lines, strings.Repeat("\x01", 250)) // a dead letter, six bytes for each of these
			}
		}
		_, sub := r.send(topology.LaneCmd(0), strings.Join(lines, "\n"))
		subs = append(subs, sub)
	}
	r.up(r.start(r.options()))
	for m, sub := range subs {
		outs := r.answers(sub)
		if len(outs) != 900 {
			t.Fatalf("message %d: %d outcomes", m, len(outs))
		}
		for i, out := range outs {
			if i%2 == 0 && out.Status != wire.StatusClaimed || i%2 == 1 && out.Refusal != wire.Invalid {
				t.Fatalf("message %d, line %d: %+v", m, i+1, out)
			}
		}
	}
	messages, _ := r.events()
	for _, m := range messages {
		if len(m.Payload) > wire.MaxStep {
			t.Errorf("event message %d has %d bytes", m.Sequence, len(m.Payload))
		}
	}
}
