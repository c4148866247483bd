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

// TestStatusShowsTheServerThatFillsTheTables, whichever reports last. Those on standby know nothing about them; if no other answers,
// how late the tables are is not known, and the check of projectors fails with the session that has the lock.
func TestStatusShowsTheServerThatFillsTheTables(t *testing.T) {
	t.Parallel()
	row := func(server string, p Projected) Report {
		detail := map[string]any{"lanes": []Projected{p}}
		ok := p.State == projector.Standby || p.State == projector.Following
		return Report{Server: server, Readiness: Readiness{Checks: map[string]Result{"projector": {OK: ok, Detail: detail}}}}
	}
	number := func(n uint64) *uint64 { return &n }
	standby := row("a", Projected{State: projector.Standby, Current: -1, LockedBy: "scrip projector, process 7"})
	following := row("b", Projected{State: projector.Following, Sequence: 7, Behind: number(3), LagSeconds: 2.5})
	stopped := row("c", Projected{State: projector.Stopped, Sequence: 4, LagSeconds: 9, Error: "the disk is damaged"})
	lost := row("c", Projected{State: projector.Stopped, Sequence: 12, LagSeconds: 9, Error: "the log lost its tail"})
	blocked := row("d", Projected{State: projector.Waiting, LagSeconds: 5, Current: -1, Error: "psql has the lock"})
	for _, c := range []struct {
		reports []Report
		want    Lane
		ok      bool
	}{
		{[]Report{standby, following, standby}, Lane{Tables: "following", TablesAt: 7, Behind: number(3), LagSeconds: 2.5}, true},
		{[]Report{following, stopped}, Lane{Tables: "following", TablesAt: 7, Behind: number(3), LagSeconds: 2.5}, false},
		{[]Report{stopped, standby}, Lane{Tables: "stopped", TablesAt: 4, Behind: number(6), LagSeconds: 9, Error: "tables: the disk is damaged"}, false},
		{[]Report{lost}, Lane{Tables: "stopped", TablesAt: 12, LagSeconds: 9, Error: "tables: the log lost its tail"}, false},
		{[]Report{blocked}, Lane{Tables: "waiting", LagSeconds: 5, Current: -1, Error: "tables: psql has the lock"}, false},
		{[]Report{standby}, Lane{Tables: "standby", Current: -1,
			Error: "tables: no server that answers fills them; the projector's lock has scrip projector, process 7"}, false},
		{nil, Lane{}, false},
	} {
		c.want.Events = 10
		st := &Status{PerLane: []Lane{{Events: 10}}}
		st.addReports(c.reports)
		if got := st.PerLane[0]; !reflect.DeepEqual(got, c.want) || st.Checks["projector"].OK != c.ok {
			t.Errorf("%v: %+v, %+v, want %+v", c.reports, got, st.Checks, c.want)
		}
	}
}

// TestAnEndangeredLogIsNotReady: its servers are, so that they get claims. A log that cannot be read, and a node that lags, are shown only.
func TestAnEndangeredLogIsNotReady(t *testing.T) {
	t.Parallel()
	good := map[string]any{"endangered": map[string][]string{}, "differ": map[string][]string{"SCRIP_EVT_0": {"compression"}}}
	for _, row := range []struct {
		log   Result
		ready bool
	}{
		{Result{OK: true, Detail: good}, true},
		{Result{Detail: map[string]any{"error": "not read yet"}}, true},
		{Result{Detail: map[string]any{"error": "max_msgs is 10", "endangered": map[string][]string{"SCRIP_EVT_0": {"max_msgs is 10"}}}}, false},
	} {
		st := &Status{Ready: true}
		ready := func(log Result) Report {
			return Report{Server: "a", Readiness: Readiness{Ready: true, Checks: map[string]Result{"log": log, "nodes": {Detail: map[string]any{"error": "n3"}}}}}
		}
		st.addReports([]Report{ready(Result{OK: true, Detail: good}), ready(Result{Detail: map[string]any{"error": "not read yet"}}), ready(row.log)})
		if st.Ready != row.ready || !row.ready && !reflect.DeepEqual(st.Checks["log"], row.log) || st.Checks["nodes"].OK {
			t.Errorf("%+v: %+v", row.log, st)
		}
	}
}
