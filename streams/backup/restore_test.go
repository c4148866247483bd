package backup_test

import (
	"context"
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
	r, held := claimed(t, s.JetStream(t), 1, 5, 20)
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
	streamtest.Must(t, lister.Err())
	slices.Sort(names)
	return names
}

// TestAnInterruptedRestore: one that is stopped removes what it made, and nothing else, wherever it is stopped. On what one leaves that
// is killed no server starts; the next one removes that, and nothing else, and starts over.
func TestAnInterruptedRestore(t *testing.T) {
	dir, held := sample(t)
	var left []jetstream.JetStream
	for _, at := range []string{topology.StateStream, topology.SnapStream, topology.EvtStream(0), topology.CmdStream(lanes - 1), "the end"} {
		for _, killed := range []bool{false, true} {
			to := streamtest.Start(t, streamtest.Lanes(lanes))
			restoring, js := to.JetStream(t), to.JetStream(t)
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHERS", Subjects: []string{"others"}}); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			err := open(t, dir).RestoreHooked(ctx, restoring, backup.RestoreOptions{Logger: streamtest.Logger(t)}, func(stream string) {
				switch {
				case stream != at:
				case killed:
					restoring.Conn().Close() // nothing it does reaches the server any more
				default:
					stop()
				}
			})
			stop()
			if !killed {
				if have := streams(t, js); !errors.Is(err, context.Canceled) || !slices.Equal(have, []string{"KV_SCRIP_LEASE", "OTHERS"}) {
					t.Errorf("stopped at %s: %v, left: %v", at, err, have)
				}
				again(t, dir, js, held)
				continue
			}
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
	}
	for _, js := range left {
		expire(t, js, lease.RestoreLock)
		again(t, dir, js, held)
	}
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
	js := streamtest.Start(t, streamtest.Lanes(lanes)).JetStream(t)
	refused := func(what string, want ...string) {
		t.Helper()
		before := streams(t, js)
		err := b.Restore(t.Context(), js, backup.RestoreOptions{Logger: streamtest.Logger(t)}.Impatient())
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
	// Another log, and then the same one.
	streamtest.Must(t, js.DeleteStream(t.Context(), topology.RmdStream(1)))
	r := newRig(t, js, 1)
	refused("another log", r.log.UUID, "stop all scrip servers")
	for _, name := range streams(t, js) {
		streamtest.Must(t, js.DeleteStream(t.Context(), name))
	}
	// Another restore runs: this one waits for a moment, in case that is dead, and gives up.
	if _, err := js.CreateStream(t.Context(), topology.LeaseConfig(1)); err != nil {
		t.Fatal(err)
	}
	h, err := lease.TakeLock(t.Context(), js, lease.RestoreLock, "the first", time.Second)
	streamtest.Must(t, err)
	stop := streamtest.Background(t, h.Run)
	refused("a second restore", "the first")
	stop()
	if err := h.Release(t.Context()); err != nil {
		t.Error(err)
	}
	restore(t, dir, js, 0)
	refused("the same log", b.Log, "the one that the backup is of")
	// More copies than nodes.
	other := streamtest.Start(t).JetStream(t)
	err = b.Restore(t.Context(), other, backup.RestoreOptions{Replicas: 3, Logger: streamtest.Logger(t)})
	if err == nil || !strings.Contains(err.Error(), "--replicas 1") {
		t.Errorf("three copies on one server: %v", err)
	}
	if left := streams(t, other); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	r = newRig(t, js, 1)
	r.work(nil)
	r.repeats(held)
}
