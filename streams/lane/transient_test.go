package lane_test

import (
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Where the log cannot be reached for longer, the lane reports it and retries, with its snapshot.
func TestALogThatCannotBeReachedIsTriedAgain(t *testing.T) {
	r := newRig(t)
	first := r.up(r.start(r.withSnapshots()))
	r.one(create("c", 1000, ""))
	r.one(claim("c", "ann"))
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	y := streamtest.NewRelay(t, r.srv)
	o := r.withSnapshots()
	o.JetStream, o.Load = y.JetStream, load.NewMeter(1)
	y.Answer(func(request string, _ func() []byte) []byte {
		if strings.HasPrefix(request, "CONSUMER.CREATE."+topology.EvtStream(0)) {
			return streamtest.Unavailable
		}
		return nil
	})
	run := r.start(o)
	run.reports(t, lane.StateLoading, "temporarily unavailable")
	loading := &o.Load.Lanes[0].Loading
	if !loading.Load() {
		t.Error("the meter does not know that the lane loads")
	}
	y.Answer(nil)
	if s := r.up(run).Status(); s.Replayed != 0 || s.Error != "" {
		t.Errorf("%+v", s)
	}
	if loading.Load() {
		t.Error("the meter does not know that the lane is loaded")
	}
}

// A lane whose event stream takes no writes and does not answer reports it, with the error.
func TestALaneWithoutItsEventStreamSaysSo(t *testing.T) {
	r := newRig(t)
	run := r.up(r.start(r.options()))
	r.one(create("c", 10, ""))
	if err := r.js.DeleteStream(t.Context(), topology.EvtStream(0)); err != nil {
		t.Fatal(err)
	}
	r.send(topology.LaneCmd(0), claim("c", "alice"))
	run.reports(t, lane.StateUnknown, "does not answer")
}
