package dial_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/dial"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestAConnectionLeavesANodeThatReachesNobody: the node answers pings, the responder is at another node.
func TestAConnectionLeavesANodeThatReachesNobody(t *testing.T) {
	t.Parallel()
	alone, other := streamtest.Start(t), streamtest.Start(t)
	_, err := other.Conn(t).Subscribe("question", func(m *nats.Msg) { _ = m.Respond(nil) })
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(alone.ClientURL()+","+other.ClientURL(), append(dial.Options("test"), nats.DontRandomize())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if nc.ConnectedUrl() != alone.ClientURL() {
		t.Fatalf("connected to %s, expected the first node %s", nc.ConnectedUrl(), alone.ClientURL())
	}
	mover := dial.NewMover(nc)
	streamtest.Eventually(t, "the request is answered", func() bool {
		_, err := nc.Request("question", nil, time.Second)
		if errors.Is(err, nats.ErrNoResponders) {
			mover.Nobody()
		}
		return err == nil
	})
	mover.Found()
}
