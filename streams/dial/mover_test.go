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
			mover.Unanswered()
		}
		return err == nil
	})
	mover.Answered()
}

// TestAConnectionTriesEveryNode: requests through a node that takes them and answers nothing count as well, as on a node that
// believes to lead a stream; and a move to a node that is no better is followed by another.
func TestAConnectionTriesEveryNode(t *testing.T) {
	t.Parallel()
	first, second, third := streamtest.Start(t), streamtest.Start(t), streamtest.Start(t)
	for _, silent := range []*streamtest.Server{first, second} {
		if _, err := silent.Conn(t).Subscribe("question", func(*nats.Msg) {}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := third.Conn(t).Subscribe("question", func(m *nats.Msg) { _ = m.Respond(nil) }); err != nil {
		t.Fatal(err)
	}
	urls := first.ClientURL() + "," + second.ClientURL() + "," + third.ClientURL()
	nc, err := nats.Connect(urls, append(dial.Options("test"), nats.DontRandomize())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	mover := dial.NewMover(nc)
	streamtest.Eventually(t, "the request is answered", func() bool {
		if _, err := nc.Request("question", nil, 100*time.Millisecond); err != nil {
			mover.Unanswered()
			return false
		}
		return true
	})
	mover.Answered()
	if nc.ConnectedUrl() != third.ClientURL() {
		t.Errorf("connected to %s, expected the third node %s", nc.ConnectedUrl(), third.ClientURL())
	}
}

// TestAnAnswerKeepsTheConnection: one of two users is answered, so that the node is not what the other waits for.
func TestAnAnswerKeepsTheConnection(t *testing.T) {
	t.Parallel()
	one, other := streamtest.Start(t), streamtest.Start(t)
	nc, err := nats.Connect(one.ClientURL()+","+other.ClientURL(), append(dial.Options("test"), nats.DontRandomize())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	mover := dial.NewMover(nc)
	began := time.Now()
	streamtest.Eventually(t, "the longest patience is over twice", func() bool {
		mover.Unanswered()
		mover.Answered()
		return time.Since(began) > 8*time.Second
	})
	if moves := nc.Stats().Reconnects; moves != 0 {
		t.Errorf("the connection moved %d times", moves)
	}
}
