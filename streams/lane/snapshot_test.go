package lane_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
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

// TestALaneGoesOnWhileAnotherHasTheTurn: a snapshot is due all the time, and another lane has the slot for as long as the
// test lasts. Everything that lies ready is decided nevertheless, also when nothing more arrives to wake the lane, in steps that stay
// within their size.
func TestALaneGoesOnWhileAnotherHasTheTurn(t *testing.T) {
	r := newRig(t)
	setup := r.up(r.start(r.options()))
	r.one(create("c", 10, ""))
	if err := setup.stop(); err != nil {
		t.Fatal(err)
	}
	// Work for many thoughts of a snapshot; and messages of which no two fit into
	// a step, so that its arrival has always been signalled already.
	payload := []byte(strings.Repeat(strings.Repeat("\x01", 250)+"\n", 900))
	for range 300 {
		if _, err := r.js.PublishMsgAsync(&nats.Msg{Subject: topology.LaneCmd(0), Data: payload}); err != nil {
			t.Fatal(err)
		}
	}
	<-r.js.PublishAsyncComplete()
	_, last := r.send(topology.LaneCmd(0), claim("c", "the last"))

	o := r.withSnapshots()
	o.SnapshotEvents, o.Clock = 1, streamtest.Hurried(200)
	over, ok := o.Snapshots.TryAcquire()
	if !ok {
		t.Fatal("the slot is taken already")
	}
	defer over()
	r.up(r.start(o))
	if out := r.answers(last); len(out) != 1 || out[0].Status != wire.StatusClaimed || out[0].N != 1 {
		t.Errorf("the last claim: %+v", out)
	}
	messages, _ := r.events()
	for _, m := range messages {
		if len(m.Payload) > wire.MaxStep {
			t.Errorf("event message %d has %d bytes", m.Sequence, len(m.Payload))
		}
	}
}
