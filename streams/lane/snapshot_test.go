package lane_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/snapstore"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
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

// TestASnapshotOnlySavesTime: the lane starts with the same state as from the whole log, from the newest snapshot that is its own.
func TestASnapshotOnlySavesTime(t *testing.T) {
	for _, c := range []struct {
		name string
		over func(last eventlog.Position) snapstore.Meta // of a snapshot on top; nil = none
	}{
		{"alone", nil},
		{"under one of a newer format", func(last eventlog.Position) snapstore.Meta {
			return snapstore.Meta{Format: domain.SnapshotFormat + 1, Position: last}
		}},
		{"under one of another log", func(eventlog.Position) snapstore.Meta {
			return snapstore.Meta{Format: domain.SnapshotFormat, Position: eventlog.Position{Log: "another", Sequence: 3, Digest: "0"}}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			run := r.up(r.start(r.withSnapshots()))
			r.one(create("c", 1000, `,"max_redemptions":3,"per_customer":2`))
			codes := map[string]string{}
			for i := range 9 {
				customer := fmt.Sprintf("customer-%d", i)
				codes[customer] = r.one(claim("c", customer)).Code
				if i%3 == 0 {
					r.one(redeem(codes[customer], "o"))
				}
			}
			if err := run.stop(); err != nil {
				t.Fatal(err)
			}
			if c.over != nil {
				messages, _ := r.events()
				meta := c.over(messages[len(messages)-1].Position(r.log.UUID, 0))
				write := func(w io.Writer) error { _, err := io.WriteString(w, "not ours"); return err }
				if err := r.withSnapshots().Snapshots.Save(t.Context(), "lane-0", meta, write); err != nil {
					t.Fatal(err)
				}
			}
			again := r.up(r.start(r.withSnapshots()))
			if replayed := again.Status().Replayed; replayed > 0 {
				t.Errorf("replayed %d event lines", replayed)
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
		})
	}
}

// TestSnapshotsAreTakenUnderLoad: the lane goes on while its state is written, and a start replays only what came after.
func TestSnapshotsAreTakenUnderLoad(t *testing.T) {
	r := newRig(t)
	o := r.withSnapshots()
	clock := streamtest.NewClock()
	o.SnapshotEvents, o.Clock = 100, clock
	run := r.up(r.start(o))
	r.one(create("c", 100_000, ""))
	n := 0
	claims := func() {
		t.Helper()
		for range 120 {
			n++
			if out := r.one(claim("c", fmt.Sprintf("customer-%d", n))); out.N != uint32(n) {
				t.Fatalf("claim %d: %+v", n, out)
			}
		}
	}
	claims()
	clock.Move(time.Second) // the lane considers it
	claims()
	if err := run.Signals().Saved.Wait(t); err != nil {
		t.Fatal(err)
	}
	if err := run.stop(); err != nil {
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
			run := r.up(r.start(r.withSnapshots()))
			r.request(create("c", 10, ""), claim("c", "a"))
			run.cancel(c.cause)
			if err := run.wait(); err != nil {
				t.Fatal(err)
			}
			next := r.up(r.start(r.withSnapshots()))
			if replayed := next.Status().Replayed; (replayed == 0) != c.saved {
				t.Errorf("the next owner replays %d events, snapshot expected: %v", replayed, c.saved)
			}
		})
	}
}
