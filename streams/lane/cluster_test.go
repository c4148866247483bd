package lane_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestThreeNodes: on a replicated log the leader of the event stream steps down, and then its node stops, while claims
// are made and two owners compete. In-flight conflicts there have code 10164, which is ambiguous: it must be resolved.
func TestThreeNodes(t *testing.T) {
	c := streamtest.StartCluster(t)
	r := &rig{t: t, nc: c.Conn(t), js: c.JetStream(t)}
	var err error
	if r.log, err = topology.Ensure(t.Context(), r.js, topology.Spec{Lanes: 1, Replicas: 3, KeyFingerprint: "test"}); err != nil {
		t.Fatal(err)
	}
	first := r.options()
	first.JetStream = c.JetStream(t)
	r.up(r.start(first))
	second := r.options()
	second.JetStream = c.JetStream(t)
	r.up(r.start(second))

	answered := make(map[string]string)
	send := func(line string) (out wire.Outcome) {
		t.Helper()
		streamtest.Eventually(t, "an answer to "+line, func() bool {
			inbox := r.nc.NewRespInbox()
			sub, err := r.nc.SubscribeSync(inbox)
			if err != nil {
				return false
			}
			defer sub.Unsubscribe() //nolint:errcheck
			if _, err := r.js.PublishMsg(t.Context(), &nats.Msg{Subject: topology.LaneCmd(0), Data: []byte(line), Header: nats.Header{topology.HeaderReply: {inbox}}}); err != nil {
				return false
			}
			msg, err := sub.NextMsg(3 * time.Second)
			if err != nil {
				return false
			}
			out, err = wire.ParseOutcome(msg.Data[:len(msg.Data)-1])
			return err == nil
		})
		return out
	}
	if out := send(create("c", 1000, "")); out.Refused() {
		t.Fatalf("create: %+v", out)
	}
	for i := range 60 {
		switch i {
		case 20:
			c.StepDown(t, topology.EvtStream(0))
		case 40:
			c.Stop(t, c.StreamLeader(t, topology.EvtStream(0)))
		}
		customer := fmt.Sprintf("customer-%d", i)
		out := send(claim("c", customer))
		if out.Status != wire.StatusClaimed {
			t.Fatalf("claim %d: %+v", i, out)
		}
		if other, taken := answered[out.Code]; taken {
			t.Fatalf("%s was answered to %s and to %s", out.Code, other, customer)
		}
		answered[out.Code] = customer
	}
	held := r.holders()
	for code, customer := range answered {
		if held[code] != customer {
			t.Errorf("%s was answered to %s, the log has %q", code, customer, held[code])
		}
	}
	if len(held) != 60 {
		t.Errorf("the log knows %d claims, want 60", len(held))
	}
}
