package backup_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// sample is a backup of a log with some claims.
func sample(t *testing.T) (dir string, held map[string]string) {
	t.Helper()
	s := streamtest.Start(t, streamtest.Lanes(lanes))
	r, held := claimed(t, s.JetStream(t), 1, 5, 100)
	r.stop()
	dir, _ = take(t, r.js)
	s.Shutdown()
	return dir, held
}

// streams are the names of all streams of a server.
func streams(t *testing.T, js jetstream.JetStream) []string {
	t.Helper()
	var names []string
	lister := js.StreamNames(t.Context())
	for name := range lister.Name() {
		names = append(names, name)
	}
	if err := lister.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// places are where a restore may be interrupted.
var places = []string{topology.StateStream, topology.SnapStream, topology.EvtStream(0), topology.CmdStream(lanes - 1), "the end"}

// beside is a server that holds a foreign stream.
func beside(t *testing.T) *streamtest.Server {
	t.Helper()
	to := streamtest.Start(t, streamtest.Lanes(lanes))
	if _, err := to.JetStream(t).CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHERS", Subjects: []string{"others"}}); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestAStoppedRestore removes what it made, and nothing else, wherever it is stopped.
func TestAStoppedRestore(t *testing.T) {
	dir, held := sample(t)
	for _, at := range places {
		to := beside(t)
		js := to.JetStream(t)
		ctx, stop := context.WithCancel(t.Context())
		err := open(t, dir).RestoreHooked(ctx, js, backup.RestoreOptions{Logger: streamtest.Logger(t)}, func(stream string) {
			if stream == at {
				stop()
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("stopped at %s: %v", at, err)
		}
		if left := streams(t, js); !slices.Equal(left, []string{"KV_SCRIP_LEASE", "OTHERS"}) {
			t.Errorf("stopped at %s: left behind: %v", at, left)
		}
		again(t, dir, js, held)
	}
}

// TestAKilledRestore: no server starts on what it left; the next one removes that, and nothing else, and starts over.
func TestAKilledRestore(t *testing.T) {
	dir, held := sample(t)
	var left []jetstream.JetStream
	for _, at := range places {
		to := beside(t)
		dying, js := to.JetStream(t), to.JetStream(t)
		err := open(t, dir).RestoreHooked(t.Context(), dying, backup.RestoreOptions{Logger: streamtest.Logger(t)}, func(stream string) {
			if stream == at {
				dying.Conn().Close() // nothing it does reaches the server any more
			}
		})
		if err == nil {
			t.Errorf("killed at %s, it came to its end", at)
		}
		streamtest.Eventually(t, "what it had sent is there", func() bool { return slices.Contains(streams(t, js), topology.StateStream) })
		_, err = topology.Ensure(t.Context(), js, topology.Spec{Lanes: lanes, KeyFingerprint: code.Fingerprint(testKey)})
		if !errors.Is(err, topology.ErrRefused) || !strings.Contains(err.Error(), "scrip restore") {
			t.Errorf("killed at %s, then a server starts: %v", at, err)
		}
		if _, _, err := topology.Inspect(t.Context(), js); !errors.Is(err, topology.ErrRefused) {
			t.Errorf("killed at %s, then a client looks: %v", at, err)
		}
		left = append(left, js)
	}
	for _, js := range left {
		expire(t, js, lease.RestoreLock)
		again(t, dir, js, held)
	}
}

// TestAKilledRestoreOnACluster: what it left there is removed, too, although a stream whose first bytes did not all come
// is one that the cluster knows only half.
func TestAKilledRestoreOnACluster(t *testing.T) {
	dir, held := sample(t)
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
	other := newRig(t, js, 3)
	other.work(nil)
	other.repeats(held)
}

// again restores, and checks that all is well.
func again(t *testing.T, dir string, js jetstream.JetStream, held map[string]string) {
	t.Helper()
	restore(t, dir, js, 0)
	if have := streams(t, js); !slices.Contains(have, "OTHERS") || len(have) != 2+3*lanes+2 {
		t.Errorf("streams: %v", have)
	}
	other := newRig(t, js, 1)
	other.work(nil)
	other.repeats(held)
	other.stop()
}

// TestRestoresThatAreRefused: nothing is changed by any of them.
func TestRestoresThatAreRefused(t *testing.T) {
	dir, held := sample(t)
	b := open(t, dir)
	to := streamtest.Start(t, streamtest.Lanes(lanes))
	js := to.JetStream(t)
	refused := func(what string, want ...string) {
		t.Helper()
		before := streams(t, js)
		err := b.Restore(t.Context(), js, backup.RestoreOptions{Logger: streamtest.Logger(t)})
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want %q", what, err, w)
			}
		}
		if after := streams(t, js); !slices.Equal(before, slices.DeleteFunc(after, func(s string) bool { return s == topology.LeaseStream && !slices.Contains(before, s) })) {
			t.Errorf("%s: %v became %v", what, before, after)
		}
	}
	// A stream without the rest.
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: topology.RmdStream(1)}); err != nil {
		t.Fatal(err)
	}
	refused("a stray stream", topology.RmdStream(1), "restore to another server")
	if err := js.DeleteStream(t.Context(), topology.RmdStream(1)); err != nil {
		t.Fatal(err)
	}
	// Another log, and then the same one.
	r := newRig(t, js, 1)
	refused("another log", r.log.UUID, "stop all scrip servers")
	for _, name := range streams(t, js) {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	restore(t, dir, js, 0)
	refused("the same log", b.Log, "the one that the backup is of")
	// More copies than nodes.
	other := streamtest.Start(t)
	err := b.Restore(t.Context(), other.JetStream(t), backup.RestoreOptions{Replicas: 3, Logger: streamtest.Logger(t)})
	if err == nil || !strings.Contains(err.Error(), "--replicas 1") {
		t.Errorf("three copies on one server: %v", err)
	}
	if left := streams(t, other.JetStream(t)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	r = newRig(t, js, 1)
	r.work(nil)
	r.repeats(held)
}

// TestOneRestoreAtATime: the second waits for a moment, in case the first is dead, and gives up.
func TestOneRestoreAtATime(t *testing.T) {
	dir, _ := sample(t)
	b := open(t, dir)
	to := streamtest.Start(t, streamtest.Lanes(lanes))
	js := to.JetStream(t)
	if _, err := js.CreateStream(t.Context(), topology.LeaseConfig(1)); err != nil {
		t.Fatal(err)
	}
	h, err := lease.TakeLock(t.Context(), js, lease.RestoreLock, "test", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan error, 1)
	go func() { running <- h.Run(ctx) }()
	err = b.Restore(t.Context(), js, backup.RestoreOptions{Logger: streamtest.Logger(t)}.Impatient())
	var other *lease.LockedError
	if !errors.As(err, &other) || other.Note.By != "test" {
		t.Errorf("a second restore: %v", err)
	}
	cancel()
	if err := <-running; err != nil {
		t.Error(err)
	}
	if err := h.Release(t.Context()); err != nil {
		t.Error(err)
	}
	restore(t, dir, js, 0)
}

// TestFromThreeToOne: a backup of a cluster, taken while a node is away, is restored to one server.
func TestFromThreeToOne(t *testing.T) {
	c := streamtest.StartCluster(t, streamtest.Lanes(lanes))
	r, held := claimed(t, c.JetStream(t), 3, 1, 200)
	r.stop()
	c.Stop(t, c.StreamLeader(t, topology.EvtStream(0)))
	for n := range lanes {
		for _, name := range []string{topology.EvtStream(n), topology.CmdStream(n), topology.RmdStream(n), topology.StateStream, topology.SnapStream, topology.LeaseStream} {
			c.StreamLeader(t, name)
		}
	}
	streamtest.Eventually(t, "the other nodes answer", func() bool {
		_, err := r.js.AccountInfo(t.Context())
		return err == nil
	})
	dir, m := take(t, r.js)
	var config struct {
		Config struct {
			Replicas int `json:"num_replicas"`
		}
	}
	if err := json.Unmarshal(backup.File(t, dir, m.Streams[3].Name+".json"), &config); err != nil || config.Config.Replicas != 3 {
		t.Fatalf("the backup's configuration: %+v, %v", config, err)
	}
	to := streamtest.Start(t, streamtest.Lanes(lanes))
	js := to.JetStream(t)
	if err := open(t, dir).Restore(t.Context(), js, backup.RestoreOptions{Logger: streamtest.Logger(t)}); err == nil || !strings.Contains(err.Error(), "--replicas 1") {
		t.Errorf("with three copies as before: %v", err)
	}
	restore(t, dir, js, 1)
	other := newRig(t, js, 1)
	other.work(nil)
	other.repeats(held)
}
