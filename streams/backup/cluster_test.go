package backup_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/access/callout"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

var mebibytes = flag.Int("backup.mib", 0, "how much TestOneServerBecomesThreeAndOneAgain puts on each lane that does not compress; 0 = little, and a small window")

// TestOneServerBecomesThreeAndOneAgain: all that is done as the servers' user, with streams above the window, whose chunks are
// acknowledged. A log of one server is restored to a cluster with three copies of everything. The first restore
// is killed, and what it left there is removed, although a stream whose first bytes did not all come is one that the cluster knows
// only half. Each node has all of it by the time the restore returns. A node is lost right then, one that led: the lanes go on from
// their snapshots, and nothing is decided twice. A backup of that cluster is restored to one server.
func TestOneServerBecomesThreeAndOneAgain(t *testing.T) {
	users := accounts(t)
	source := streamtest.Start(t, streamtest.Lanes(lanes), users).JetStream(t)
	newRig(t, source, 1)
	fill(t, source)
	r, held := claimed(t, source, 1, 10, 100)
	r.stop() // writes snapshots
	stored := contents(t, r)
	store, _ := history(t, r.js)
	if _, err := store.Set(t.Context(), settings.PatchOf("reminder.rate", "100").Flat(), nil, ann); err != nil {
		t.Fatal(err)
	}
	dir, m := takeAbove(t, r.js)

	c := streamtest.StartCluster(t, streamtest.Lanes(lanes), users)
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
			have := local(t, node.Nats(), want.Name)
			if want.Name == topology.StateStream { // it has the record of the restore, too
				if have.Last < want.Last {
					t.Errorf("node %d has %+v, the backup %+v", i, have, want)
				}
				continue
			}
			if have != (backup.Stream{Name: want.Name, Messages: want.Messages, First: max(1, want.First), Last: want.Last}) {
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
		list := js.StreamNames(t.Context())
		for range list.Name() {
		}
		return list.Err() == nil
	})
	dir, m = takeAbove(t, js)
	var config struct {
		Config struct {
			Replicas int `json:"num_replicas"`
		}
	}
	if err := json.Unmarshal(backup.Text(t, dir, m.Streams[3].Name+".json.age", testKey), &config); err != nil || config.Config.Replicas != 3 {
		t.Fatalf("the backup's configuration: %+v, %v", config, err)
	}
	one := streamtest.Start(t, streamtest.Lanes(lanes), users).JetStream(t)
	if err := open(t, dir).Restore(t.Context(), one, backup.RestoreOptions{Logger: streamtest.Logger(t)}); err == nil || !strings.Contains(err.Error(), "--replicas 1") {
		t.Errorf("with three copies as before: %v", err)
	}
	restore(t, dir, one, 1)
	other = newRig(t, one, 1)
	for i, all := range contents(t, other) {
		if !bytes.HasPrefix(all, stored[i]) {
			t.Errorf("stream %d: the first %d messages are not the same", i, len(stored[i])/sha256.Size)
		}
	}
	other.work(nil)
	other.repeats(held)
	if *mebibytes > 0 {
		t.Logf("soak: %d MiB backed up and restored", m.Size()>>20)
	}
}

// accounts gives a server the permissions that the servers' user has.
func accounts(t *testing.T) streamtest.Option {
	t.Helper()
	issuer, err := callout.NewIssuer()
	streamtest.Must(t, err)
	servers := natsauth.User{Name: streamtest.ServersUser, Password: streamtest.ServersPassword}
	return streamtest.Accounts(natsauth.Render(natsauth.Config{Lanes: lanes, Users: []natsauth.User{servers}, Issuer: issuer.Public()}))
}

// fill puts messages on the event streams that do not compress. Readers pass over them: they have no seal.
func fill(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	size, messages := 4<<10, 64
	if *mebibytes > 0 {
		size, messages = 512<<10, 2**mebibytes
	}
	for n := range lanes {
		for range messages {
			data := make([]byte, size)
			_, _ = rand.Read(data) // never fails
			if _, err := js.Publish(t.Context(), topology.Evt(n), data); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// takeAbove takes a backup whose large copies are several times as large as the window.
func takeAbove(t *testing.T, js jetstream.JetStream) (dir string, m *backup.Manifest) {
	t.Helper()
	window := 64 << 10
	if *mebibytes > 0 {
		window = 0
	}
	dir = filepath.Join(t.TempDir(), "backup")
	m, err := backup.Create(t.Context(), js, dir, backup.CreateOptions{Key: testKey, Logger: streamtest.Logger(t)}.Window(window))
	streamtest.Must(t, err)
	for _, s := range m.Streams {
		if s.Name == topology.EvtStream(1) && s.Size < int64(4*max(window, *mebibytes<<18)) {
			t.Fatalf("the copy of stream %s has only %d bytes", s.Name, s.Size)
		}
	}
	return dir, m
}

// contents are the digests of all messages of each lane's events, one after the other.
func contents(t *testing.T, r *rig) (all [lanes][]byte) {
	t.Helper()
	for n := range lanes {
		stream, err := r.js.Stream(t.Context(), topology.EvtStream(n))
		streamtest.Must(t, err)
		consumer, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
		streamtest.Must(t, err)
		messages, err := consumer.Messages()
		streamtest.Must(t, err)
		for sequence := uint64(1); sequence <= stream.CachedInfo().State.LastSeq; sequence++ {
			msg, err := messages.Next()
			streamtest.Must(t, err)
			meta, err := msg.Metadata()
			streamtest.Must(t, err)
			text := fmt.Sprintf("%s %d %d %v %x", msg.Subject(), meta.Sequence.Stream, meta.Timestamp.UnixNano(), msg.Headers(), msg.Data())
			sum := sha256.Sum256([]byte(text))
			all[n] = append(all[n], sum[:]...)
		}
		messages.Stop()
	}
	return all
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
