package batcher

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/dial"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestANodeThatAnswersNothingIsLeft: a node that was cut off from the others takes commands, as it believes to lead their
// stream, and answers none. The line is answered through the other node.
func TestANodeThatAnswersNothingIsLeft(t *testing.T) {
	t.Parallel()
	silent, other := streamtest.Start(t), streamtest.Start(t)
	if _, err := silent.Conn(t).Subscribe(topology.LaneCmd(0), func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	answers := other.Conn(t)
	if _, err := answers.Subscribe(topology.LaneCmd(0), func(m *nats.Msg) {
		line := `{"id":"x","status":"claimed","campaign":"c","customer_id":"customer of x"}`
		if err := answers.Publish(m.Header.Get(topology.HeaderReply), []byte(line)); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(fmt.Sprint(silent.ClientURL(), ",", other.ClientURL()), append(dial.Options("test"), nats.DontRandomize())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c := New(nc, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	streamtest.Eventually(t, "the batcher is online", c.online.Load)
	w := make(waiter, 2)
	if _, err := c.Send(t.Context(), 0, claimLine("c", "x", time.Time{}, w)); err != nil {
		t.Fatal(err)
	}
	w.get(t).claimed(t, "x")
}
