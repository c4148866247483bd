package lane_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/snapstore"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// A lane that is taken while one of the streams elects a leader uses its snapshot all the same: it replays nothing.
func TestAnElectionDoesNotThrowTheSnapshotAway(t *testing.T) {
	r := newRig(t)
	first := r.up(r.start(r.withSnapshots()))
	r.one(create("c", 1000, ""))
	for i := range 50 {
		r.one(claim("c", fmt.Sprint("k", i)))
	}
	if err := first.stop(); err != nil { // writes a snapshot
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		request string
		instead []byte
	}{
		"the position is verified, 10008":     {"STREAM.MSG.GET." + topology.EvtStream(0), streamtest.Unavailable},
		"the position is verified, no answer": {"STREAM.MSG.GET." + topology.EvtStream(0), streamtest.NeverAnswered},
		"chunks are counted, no answer":       {"STREAM.INFO." + topology.SnapStream, streamtest.NeverAnswered},
		"the snapshot is found, 10008":        {"STREAM.MSG.GET." + topology.StateStream, streamtest.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			y := streamtest.NewRelay(t, r.srv)
			o := r.options()
			o.JetStream = y.JetStream
			var err error
			if o.Snapshots, err = snapstore.New(t.Context(), y.JetStream, snapstore.Options{Seal: r.log.WithKey(o.Key).Seal, Logger: streamtest.Logger(t)}); err != nil {
				t.Fatal(err)
			}
			var struck atomic.Int64
			y.Answer(func(request string, _ func() []byte) []byte {
				if request == c.request && struck.Add(1) == 1 {
					return c.instead
				}
				return nil
			})
			run := r.up(r.start(o))
			if s := run.Status(); s.Replayed != 0 || struck.Load() == 0 {
				t.Errorf("%d requests struck, %d events replayed", struck.Load(), s.Replayed)
			}
			if err := run.stop(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Where the log cannot be reached for longer, the lane reports it and retries, with its snapshot.
func TestALogThatCannotBeReachedIsTriedAgain(t *testing.T) {
	t.Parallel() // it waits until a read gives up
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
		if request == "STREAM.MSG.GET."+topology.EvtStream(0) {
			return streamtest.Unavailable
		}
		return nil
	})
	run := r.start(o)
	streamtest.Eventually(t, "the status shows what the lane waits for", func() bool {
		s := run.Status()
		return s.State == lane.StateLoading && strings.Contains(s.Error, "temporarily unavailable")
	})
	loading := &o.Load.Lanes[0].Loading
	if !loading.Load() {
		t.Error("the meter does not know that the lane loads")
	}
	y.Answer(nil)
	if s := r.up(run).Status(); s.Replayed != 0 || s.Error != "" {
		t.Errorf("%+v", s)
	}
	streamtest.Eventually(t, "the meter has that the lane is loaded", func() bool { return !loading.Load() })
}
