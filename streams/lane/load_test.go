package lane_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// stale makes the first answers about where the command stream ends come from a copy that lags by one message more than
// what events cover.
func (r *rig) stale(answers int64, leader string) (y *streamtest.Relay, given *atomic.Int64) {
	r.t.Helper()
	y, given = streamtest.NewRelay(r.t, r.srv), new(atomic.Int64)
	messages, _ := r.events()
	bounds, err := r.js.Stream(r.t.Context(), topology.CmdStream(0))
	if err != nil {
		r.t.Fatal(err)
	}
	by := bounds.CachedInfo().State.LastSeq - messages[len(messages)-1].Commands[1] + 1
	y.Answer(func(request string, real func() []byte) []byte {
		if request == "STREAM.INFO."+topology.CmdStream(0) && given.Add(1) <= answers {
			return streamtest.Behind(r.t, real(), by, leader)
		}
		return nil
	})
	return y, given
}

// A lane that is taken while its command stream elects a leader reads bounds from a copy that lags: of a follower, or of
// a leader that was replaced and does not know. It neither stops nor, with a --rebase left in the start line, drops commands that
// were acknowledged and wait.
func TestStaleBoundsStopNothingAndDropNothing(t *testing.T) {
	lane.ContradictionPauses(t, time.Millisecond, time.Millisecond, time.Millisecond)
	for leader, rebase := range map[string]bool{"": false, "n1": true} {
		t.Run(fmt.Sprintf("leader %q, rebase %v", leader, rebase), func(t *testing.T) {
			r := newRig(t)
			first := r.up(r.start(r.options()))
			r.one(create("c", 100, ""))
			r.one(claim("c", "ann"))
			if err := first.stop(); err != nil {
				t.Fatal(err)
			}
			for i := range 3 { // acknowledged: ordered and kept
				if _, err := r.js.Publish(t.Context(), topology.LaneCmd(0), []byte(claim("c", fmt.Sprint("waits-", i)))); err != nil {
					t.Fatal(err)
				}
			}
			y, given := r.stale(3, leader)
			o := r.options()
			o.JetStream = y.JetStream
			if rebase {
				o.Rebase = new(uint64)
			}
			r.up(r.start(o))
			r.one(claim("c", "bob"))
			if given.Load() < 4 {
				t.Fatalf("only %d requests were sent", given.Load())
			}
			if n := r.rebases(); n > 0 {
				t.Errorf("%d rebase steps", n)
			}
			_, events := r.events() // a campaign and the claims of ann, those who wait, and bob
			if len(events) != 6 || events[5].CustomerID != "bob" || events[5].N != 5 {
				t.Errorf("the log acknowledged five claims, and decided %+v", events)
			}
		})
	}
}

// A contradiction that stays stops the lane; when the log agrees again the same lane goes on without an operator.
func TestAStoppedLaneGoesOnWhenTheLogAgreesAgain(t *testing.T) {
	lane.ContradictionPauses(t, time.Millisecond, time.Millisecond)
	r := newRig(t)
	first := r.up(r.start(r.options()))
	r.one(create("c", 100, ""))
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	y, given := r.stale(1<<62, "n1")
	o := r.options()
	o.JetStream = y.JetStream
	l := lane.New(o)
	stopped := r.run(l)
	if err := stopped.wait(); !errors.Is(err, lane.ErrStopped) || given.Load() != 3 {
		t.Fatalf("after %d looks: %v", given.Load(), err)
	}
	if s := stopped.Status(); s.State != lane.StateStopped || s.Error == "" {
		t.Fatalf("status %+v", s)
	}
	y.Answer(nil)
	r.up(r.run(l))
	if out := r.one(claim("c", "ann")); out.Refused() {
		t.Fatalf("%+v", out)
	}
}

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
func TestALaneWithoutItsEventStreamReportsIt(t *testing.T) {
	r := newRig(t)
	run := r.up(r.start(r.options()))
	r.one(create("c", 10, ""))
	if err := r.js.DeleteStream(t.Context(), topology.EvtStream(0)); err != nil {
		t.Fatal(err)
	}
	r.send(topology.LaneCmd(0), claim("c", "alice"))
	run.reports(t, lane.StateUnknown, "does not answer")
}
