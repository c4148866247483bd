package streamtest_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/dial"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func TestMain(m *testing.M) {
	streamtest.NodeMain()
	os.Exit(m.Run())
}

// TestNodesLoseTheirLeader: what was acknowledged outlives its leader, however that one goes, and writes go on without it.
func TestNodesLoseTheirLeader(t *testing.T) {
	nodes := streamtest.StartNodes(t)
	js, err := jetstream.New(nodes.Site(t).Conn(t, dial.Options("test")...))
	if err != nil {
		t.Fatal(err)
	}
	const name = "test"
	streamtest.Eventually(t, "the stream is made", func() bool {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}, Replicas: 3})
		return err == nil
	})
	acked := uint64(0)
	write := func() {
		t.Helper()
		streamtest.Eventually(t, "a write is acknowledged", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			ack, err := js.Publish(ctx, name, nil)
			if err != nil {
				return false
			}
			if ack.Sequence <= acked {
				t.Errorf("message %d was acknowledged after %d", ack.Sequence, acked)
			}
			acked = ack.Sequence
			return true
		})
	}
	for _, fault := range []struct {
		name     string
		do, undo func(i int)
	}{
		{"killed", func(i int) { nodes.Kill(t, i) }, func(i int) { nodes.Start(t, i) }},
		{"cut off", func(i int) { nodes.Cut(i, true, true) }, nodes.Heal},
	} {
		write()
		nodes.Current(t, name)
		leader := nodes.Leader(t, name)
		fault.do(leader)
		began := time.Now()
		write()
		t.Logf("%s: written again after %s", fault.name, time.Since(began).Round(10*time.Millisecond))
		if now := nodes.Leader(t, name); now == leader {
			t.Errorf("%s: node %d leads again", fault.name, now)
		}
		fault.undo(leader)
	}
	nodes.Current(t, name)
}
