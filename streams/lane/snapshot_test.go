package lane_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/snapstore"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func (r *rig) withSnapshots() lane.Options {
	r.t.Helper()
	o := r.options()
	var err error
	if o.Snapshots, err = snapstore.New(r.t.Context(), r.js, snapstore.Options{Seal: r.log.WithKey(o.Key).Seal, Logger: streamtest.Logger(r.t)}); err != nil {
		r.t.Fatal(err)
	}
	return o
}

// TestASnapshotOnlySavesTime: whatever becomes of the snapshot, the lane starts with the same state; what differs is how
// much it replays.
func TestASnapshotOnlySavesTime(t *testing.T) {
	damage := func(match string) func(*rig) {
		return func(r *rig) {
			bucket, err := r.js.ObjectStore(r.t.Context(), topology.SnapBucket)
			if err != nil {
				r.t.Fatal(err)
			}
			objects, err := bucket.List(r.t.Context())
			if err != nil {
				r.t.Fatal(err)
			}
			hit := 0
			for _, o := range objects {
				if strings.Contains(o.Name, match) {
					hit++
					if _, err := bucket.PutBytes(r.t.Context(), o.Name, []byte("truncated")); err != nil {
						r.t.Fatal(err)
					}
				}
			}
			if hit == 0 {
				r.t.Fatalf("no object matches %q among %d", match, len(objects))
			}
		}
	}
	for _, c := range []struct {
		name     string
		damage   func(r *rig)
		replayed bool
	}{
		{"whole", func(*rig) {}, false},
		{"a part truncated", damage("/00000"), true},
		{"the manifest truncated", damage("/manifest"), true},
		{"the bucket gone", func(r *rig) {
			if err := r.js.DeleteObjectStore(r.t.Context(), topology.SnapBucket); err != nil {
				r.t.Fatal(err)
			}
			if _, err := r.js.CreateObjectStore(r.t.Context(), jetstream.ObjectStoreConfig{Bucket: topology.SnapBucket}); err != nil {
				r.t.Fatal(err)
			}
		}, true},
		{"one of a newer format on top", func(r *rig) {
			messages, _ := r.events()
			last := messages[len(messages)-1]
			meta := snapstore.Meta{Format: domain.SnapshotFormat + 1, Position: last.Position(r.log.UUID, 0)}
			write := func(w io.Writer) error { _, err := io.WriteString(w, "from the future"); return err }
			if err := r.withSnapshots().Snapshots.Save(r.t.Context(), "lane-0", meta, write); err != nil {
				r.t.Fatal(err)
			}
		}, false},
		{"one of another log on top", func(r *rig) {
			meta := snapstore.Meta{Format: domain.SnapshotFormat, Position: eventlog.Position{Log: "another", Sequence: 3, Digest: "0"}}
			if err := r.withSnapshots().Snapshots.Save(r.t.Context(), "lane-0", meta, func(io.Writer) error { return nil }); err != nil {
				r.t.Fatal(err)
			}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			run := r.up(r.start(r.withSnapshots()))
			r.one(create("c", 1000, `,"max_redemptions":3,"per_customer":2`))
			codes := map[string]string{}
			for i := range 30 {
				customer := fmt.Sprintf("customer-%d", i)
				codes[customer] = r.one(claim("c", customer)).Code
				if i%3 == 0 {
					r.one(redeem(codes[customer], "o"))
				}
			}
			if err := run.stop(); err != nil {
				t.Fatal(err)
			}
			c.damage(r)
			again := r.up(r.start(r.withSnapshots()))
			if replayed := again.Status().Replayed > 0; replayed != c.replayed {
				t.Errorf("replayed %d event lines, want some: %v", again.Status().Replayed, c.replayed)
			}
			for customer, code := range codes {
				if out := r.one(claim("c", customer)); out.Code != code || !out.Repeat {
					t.Fatalf("%s had %s, now %+v", customer, code, out)
				}
			}
			if out := r.one(redeem(codes["customer-0"], "o")); !out.Repeat || out.RedeemedCount != 1 {
				t.Fatalf("redeem again: %+v", out)
			}
			if out := r.one(redeem(codes["customer-0"], "o2")); out.RedeemedCount != 2 {
				t.Fatalf("second redeem: %+v", out)
			}
			r.holders()
		})
	}
}

// TestSnapshotsAreTakenUnderLoad: the lane goes on while its state is written, and a start replays only what came after.
func TestSnapshotsAreTakenUnderLoad(t *testing.T) {
	r := newRig(t)
	o := r.withSnapshots()
	o.SnapshotEvents = 100
	run := r.up(r.start(o))
	r.one(create("c", 100_000, ""))
	saved := func() bool {
		bucket, err := r.js.ObjectStore(t.Context(), topology.SnapBucket)
		if err != nil {
			return false
		}
		objects, err := bucket.List(t.Context())
		return err == nil && len(objects) > 0
	}
	n := 0
	streamtest.Eventually(t, "a snapshot is there", func() bool {
		for range 20 {
			n++
			if out := r.one(claim("c", fmt.Sprintf("customer-%d", n))); out.N != uint32(n) {
				t.Fatalf("claim %d: %+v", n, out)
			}
		}
		return saved()
	})
	run.cancel()
	if err := run.wait(); err != nil {
		t.Fatal(err)
	}
	again := r.up(r.start(r.withSnapshots()))
	if replayed := again.Status().Replayed; replayed >= n {
		t.Errorf("replayed %d event lines of %d in spite of the snapshot", replayed, n)
	}
	if out := r.one(claim("c", "customer-1")); !out.Repeat || out.N != 1 {
		t.Fatalf("repeat: %+v", out)
	}
}

// TestALostLeaseIsNoCleanStop: an owner whose lease is another's ends at once. A last snapshot would keep it for seconds where
// JetStream elects leaders, and the lease may be this server's again before that.
func TestALostLeaseIsNoCleanStop(t *testing.T) {
	for _, c := range []struct {
		cause error
		saved bool
	}{{lease.ErrLost, false}, {lease.ErrReleased, true}} {
		t.Run(c.cause.Error(), func(t *testing.T) {
			r := newRig(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			run := &running{Lane: lane.New(r.withSnapshots()), cancel: func() { cancel(c.cause) }, done: make(chan error, 1)}
			go func() { run.done <- run.Run(ctx) }()
			r.up(run)
			r.request(create("c", 10, ""), claim("c", "a"))
			if err := run.stop(); err != nil {
				t.Fatal(err)
			}
			next := r.up(r.start(r.withSnapshots()))
			if replayed := next.Status().Replayed; (replayed == 0) != c.saved {
				t.Errorf("the next owner replays %d events, snapshot expected: %v", replayed, c.saved)
			}
		})
	}
}
