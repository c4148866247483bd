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
	lane.ConsiderEvery(t, 10*time.Millisecond)
	lane.Confirming(t, 10*time.Millisecond, time.Minute)
	r := newRig(t)
	gone := errors.New("the lease is another server's")
	o := r.options()
	o.Contested = func(context.Context) error { return gone }
	zombie := r.up(r.start(o))
	r.one(create("c", 10, ""))
	// A message after its last step is not the zombie's.
	if _, err := r.js.Publish(t.Context(), topology.Evt(0), []byte("another's step")); err != nil {
		t.Fatal(err)
	}
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
	lane.ConsiderEvery(t, 10*time.Millisecond)
	lane.Confirming(t, 10*time.Millisecond, 200*time.Millisecond)
	r := newRig(t)
	y := streamtest.NewRelay(t, r.srv)
	o := r.options()
	o.JetStream = y.JetStream
	r.up(r.start(o))
	r.one(create("c", 10, ""))
	answered := func() bool {
		_, err := r.nc.Request(topology.LaneQuery(0), []byte(`{"query":"campaign.show","campaign":"c"}`), 100*time.Millisecond)
		if err != nil && !errors.Is(err, nats.ErrTimeout) {
			t.Fatal(err)
		}
		return err == nil
	}
	streamtest.Eventually(t, "a query is answered", answered)
	y.Answer(func(request string, _ func() []byte) []byte {
		if request == "STREAM.INFO."+topology.EvtStream(0) {
			return streamtest.NeverAnswered
		}
		return nil
	})
	streamtest.Eventually(t, "queries are answered no more", func() bool { return !answered() })
	y.Answer(nil)
	streamtest.Eventually(t, "queries are answered again", answered)
}
