package lane_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// An owner that was replaced and has nothing to decide finds that out without a write, and does not take the lane back
// while its lease is another's: two owners would fence each other out for ever.
func TestAReplacedOwnerThatIsIdleLeaves(t *testing.T) {
	r := newRig(t)
	gone := errors.New("the lease is another server's")
	clock := streamtest.NewClock()
	o := r.options()
	o.Clock = clock
	o.Contested = func(context.Context) error { return gone }
	zombie := r.up(r.start(o))
	r.one(create("c", 10, ""))
	// A message after its last step is not the zombie's.
	if _, err := r.js.Publish(t.Context(), topology.Evt(0), []byte("another's step")); err != nil {
		t.Fatal(err)
	}
	clock.Move(5 * time.Second)
	if err := zombie.wait(); !errors.Is(err, gone) {
		t.Fatalf("the zombie ended with %v", err)
	}
	if s := zombie.Status(); s.State != lane.StateIdle {
		t.Errorf("the zombie has status %+v", s)
	}
	r.up(r.start(r.options()))
	if out := r.one(claim("c", "ann")); out.Refused() {
		t.Errorf("%+v", out)
	}
}

// An owner that cannot learn whether it was replaced stops answering queries after a while, and answers again when it can.
func TestAnOwnerThatIsCutOffStopsAnsweringQueries(t *testing.T) {
	r := newRig(t)
	y := streamtest.NewRelay(t, r.srv)
	clock := streamtest.NewClock()
	o := r.options()
	o.JetStream, o.Clock = y.JetStream, clock
	run := r.up(r.start(o))
	r.one(create("c", 10, ""))
	answered := func(within time.Duration) bool {
		_, err := r.nc.Request(topology.LaneQuery(0), []byte(`{"query":"campaign.show","campaign":"c"}`), within)
		if err != nil && !errors.Is(err, nats.ErrTimeout) {
			t.Fatal(err)
		}
		return err == nil
	}
	if !answered(time.Minute) {
		t.Fatal("a query is not answered")
	}
	y.Answer(func(request string, _ func() []byte) []byte {
		if request == "STREAM.INFO."+topology.EvtStream(0) {
			return streamtest.NeverAnswered
		}
		return nil
	})
	clock.Move(15 * time.Second)
	if answered(200 * time.Millisecond) {
		t.Error("a query is answered 15 s after the last proof")
	}
	y.Answer(nil)
	run.Signals().Confirmed.Wait(t)
	if !answered(time.Minute) {
		t.Error("a query is not answered after the lane was confirmed")
	}
}
