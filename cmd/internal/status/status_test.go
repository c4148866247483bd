package status

import (
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/lane"
)

// TestStatusShowsWhyNothingFires: a lane whose scheduler has failed has no other error. A report about a lane that does
// not exist is ignored.
func TestStatusShowsWhyNothingFires(t *testing.T) {
	t.Parallel()
	st := &Status{PerLane: make([]Lane, 1)}
	for _, n := range []int{-1, 0, 1} {
		detail := map[string]any{"lanes": []LaneReadiness{{Lane: n, Status: lane.Status{State: lane.StateOwner}, DueWaits: "the disk is full"}}}
		st.addLanes(Report{Readiness: Readiness{Checks: map[string]Result{"lanes": {Detail: detail}, "projector": {Detail: detail}}}})
	}
	if l := st.PerLane[0]; l.State != string(lane.StateOwner) || l.Error != "expiries and reminders wait: the disk is full" {
		t.Errorf("%+v", l)
	}
}
