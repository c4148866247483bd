package backup_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestOneServerBecomesThreeAndOneAgain: a log of one server is restored to a cluster with three copies of everything. The first restore
// is killed, and what it left there is removed, although a stream whose first bytes did not all come is one that the cluster knows
// only half. Each node has all of it by the time the restore returns. A node is lost right then, one that led: the lanes go on from
// their snapshots, and nothing is decided twice. A backup of that cluster is restored to one server.
func TestOneServerBecomesThreeAndOneAgain(t *testing.T) {
	r, held := claimed(t, streamtest.Start(t, streamtest.Lanes(lanes)).JetStream(t), 1, 10, 100)
	r.stop() // writes snapshots
	store, _ := history(t, r.js)
	if _, err := store.Set(t.Context(), settings.PatchOf("reminder.rate", "100").Flat(), nil, ann); err != nil {
		t.Fatal(err)
	}
	dir, m := take(t, r.js)

	c := streamtest.StartCluster(t, streamtest.Lanes(lanes))
	dying, js := c.JetStream(t), c.JetStream(t)
	err := open(t, dir).RestoreHooked(t.Context(), dying, backup.RestoreOptions{Replicas: 3, Logger: streamtest.Logger(t)}, func(stream string) {
		if stream == topology.EvtStream(0) {
			dying.Conn().Close()
		}
	})
	if err == nil {
		t.Fatal("killed, it came to its end")
	}
	// The node that takes the stream in answers before the meta leader, which lists the streams, has applied its assignment.
	streamtest.Eventually(t, "the half restored stream is listed", func() bool { return slices.Contains(streams(t, js), topology.EvtStream(0)) })
	expire(t, js, lease.RestoreLock)
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
	for n := range lanes {
		other.claims(n, 1000, 1100, held)
	}
	other.stop()

	streamtest.Eventually(t, "the other nodes answer", func() bool {
		_, err := js.AccountInfo(t.Context())
		return err == nil
	})
	dir, m = take(t, js)
	var config struct {
		Config struct {
			Replicas int `json:"num_replicas"`
		}
	}
	if err := json.Unmarshal(backup.File(t, dir, m.Streams[3].Name+".json"), &config); err != nil || config.Config.Replicas != 3 {
		t.Fatalf("the backup's configuration: %+v, %v", config, err)
	}
	one := streamtest.Start(t, streamtest.Lanes(lanes)).JetStream(t)
	if err := open(t, dir).Restore(t.Context(), one, backup.RestoreOptions{Logger: streamtest.Logger(t)}); err == nil || !strings.Contains(err.Error(), "--replicas 1") {
		t.Errorf("with three copies as before: %v", err)
	}
	restore(t, dir, one, 1)
	other = newRig(t, one, 1)
	other.work(nil)
	other.repeats(held)
}

// local is what a node has of a stream in its own store.
func local(t *testing.T, node *server.Server, name string) backup.Stream {
	t.Helper()
	z, err := node.Jsz(&server.JSzOptions{Account: "$G", Streams: true})
	streamtest.Must(t, err)
	for _, account := range z.AccountDetails {
		for _, s := range account.Streams {
			if s.Name == name {
				return backup.Stream{Name: name, Messages: s.State.Msgs, First: s.State.FirstSeq, Last: s.State.LastSeq}
			}
		}
	}
	return backup.Stream{}
}
