package backup_test

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestOneServerBecomesThree: a log of one server is restored to a cluster with three copies of everything. Each node has
// all of it by the time the restore returns. A node is lost right then, one that led: the lanes go on from their
// snapshots, and nothing is decided twice.
func TestOneServerBecomesThree(t *testing.T) {
	s := streamtest.Start(t, streamtest.Lanes(lanes))
	r, held := claimed(t, s.JetStream(t), 1, 10, 100)
	r.stop() // writes snapshots
	settings, _ := history(t, r.js)
	if _, err := settings.Set(t.Context(), "reminder.rate", "100", ann); err != nil {
		t.Fatal(err)
	}
	dir, m := take(t, r.js)

	c := streamtest.StartCluster(t, streamtest.Lanes(lanes))
	js := c.JetStream(t)
	restore(t, dir, js, 3)
	// What each node itself has, read right after the end of the restore.
	for i, node := range c.Nodes {
		for _, want := range m.Streams {
			if have := local(t, node.Nats(), want.Name); have != (backup.Stream{Name: want.Name, Messages: want.Messages, First: max(1, want.First), Last: want.Last}) {
				t.Errorf("node %d has %+v, the backup %+v", i, have, want)
			}
		}
	}
	lost := c.StreamLeader(t, topology.EvtStream(0))
	c.Stop(t, lost)
	for _, want := range m.Streams {
		c.StreamLeader(t, want.Name)
	}
	other := newRig(t, js, 3)
	other.work(nil)
	for n := range lanes {
		if status := other.run[n].Status(); status.Replayed != 0 {
			t.Errorf("lane %d replayed %d lines, its snapshot was not used", n, status.Replayed)
		}
	}
	other.repeats(held)
	for n := range lanes {
		if _, holders := other.events(n); len(holders) != len(held)/lanes {
			t.Errorf("lane %d: %d codes were given out, want %d", n, len(holders), len(held)/lanes)
		}
	}
}

// local is what a node has of a stream in its own store.
func local(t *testing.T, node *server.Server, name string) backup.Stream {
	t.Helper()
	z, err := node.Jsz(&server.JSzOptions{Account: "$G", Streams: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, account := range z.AccountDetails {
		for _, s := range account.Streams {
			if s.Name == name {
				return backup.Stream{Name: name, Messages: s.State.Msgs, First: s.State.FirstSeq, Last: s.State.LastSeq}
			}
		}
	}
	return backup.Stream{}
}
