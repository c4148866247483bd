package status

import (
	"reflect"
	"testing"

	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/streams/lane"
)

// TestStatusShowsWhyNothingFires: a lane whose scheduler has failed has no other error. A report about a lane that does
// not exist is ignored.
func TestStatusShowsWhyNothingFires(t *testing.T) {
	t.Parallel()
	st := &Status{PerLane: make([]Lane, 1)}
	for _, n := range []int{-1, 0, 1} {
		detail := map[string]any{"lanes": []LaneReadiness{{Lane: n, Status: lane.Status{State: lane.StateOwner}, DueWaits: "the disk is full"}}}
		st.addReports([]Report{{Readiness: Readiness{Checks: map[string]Result{"lanes": {Detail: detail}, "projector": {Detail: detail}}}}})
	}
	if l := st.PerLane[0]; l.State != string(lane.StateOwner) || l.Error != "expiries and reminders wait: the disk is full" {
		t.Errorf("%+v", l)
	}
}

// TestStatusShowsTheServerThatFillsTheTables, whichever reports last. Those on standby know nothing about them.
func TestStatusShowsTheServerThatFillsTheTables(t *testing.T) {
	t.Parallel()
	row := func(server string, p Projected) Report {
		detail := map[string]any{"lanes": []Projected{p}}
		return Report{Server: server, Readiness: Readiness{Checks: map[string]Result{"projector": {OK: true, Detail: detail}}}}
	}
	standby := row("a", Projected{State: projector.Standby, Current: -1})
	following := row("b", Projected{State: projector.Following, Sequence: 7, Behind: 3, LagSeconds: 2.5})
	stopped := row("c", Projected{State: projector.Stopped, LagSeconds: 9, Error: "the log lost its tail"})
	for _, c := range []struct {
		reports []Report
		want    Lane
	}{
		{[]Report{standby, following, standby}, Lane{Tables: "following", TablesAt: 7, Behind: 3, LagSeconds: 2.5}},
		{[]Report{following, stopped}, Lane{Tables: "following", TablesAt: 7, Behind: 3, LagSeconds: 2.5}},
		{[]Report{stopped, standby}, Lane{Tables: "stopped", LagSeconds: 9, Error: "tables: the log lost its tail"}},
		{[]Report{standby}, Lane{Tables: "standby", Current: -1}},
		{nil, Lane{}},
	} {
		st := &Status{PerLane: make([]Lane, 1)}
		st.addReports(c.reports)
		if got := st.PerLane[0]; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: %+v, want %+v", c.reports, got, c.want)
		}
	}
}
