package sample

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/cmd/internal/alert"
	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/streams/lane"
)

// report is that of a server which owns lanes, each with what it has answered.
func report(server string, lanes map[int]map[string]uint64) status.Report {
	var all []status.LaneReadiness
	for n, outcomes := range lanes {
		all = append(all, status.LaneReadiness{Lane: n, Status: lane.Status{State: lane.StateOwner}, Outcomes: outcomes})
	}
	return status.Report{Server: server, Readiness: status.Readiness{Checks: map[string]status.Result{"lanes": {OK: true, Detail: map[string]any{"lanes": all}}}}}
}

// TestRates: rates are of the whole log, and a lane that moves, or an owner that starts again, makes neither a spike nor a fall below 0.
func TestRates(t *testing.T) {
	s := New(Options{Lanes: 2})
	now := time.Unix(1e9, 0)
	for i, step := range []struct {
		reports         []status.Report
		claims, refused float64
		orphans         int
	}{
		{[]status.Report{report("a", map[int]map[string]uint64{0: {"claim ok": 1000}}), report("b", map[int]map[string]uint64{1: {"claim ok": 50}})}, 0, 0, 0},
		{[]status.Report{report("a", map[int]map[string]uint64{0: {"claim ok": 1300, "claim sold_out": 7, "claim repeat": 9}}), report("b", map[int]map[string]uint64{1: {"claim ok": 60}})}, 310, 7, 0},
		{[]status.Report{report("a", map[int]map[string]uint64{0: {"claim ok": 1400, "claim sold_out": 7}, 1: {"claim ok": 900}})}, 100, 0, 0}, // lane 1 has moved
		{[]status.Report{report("a", map[int]map[string]uint64{0: {"claim ok": 3}, 1: {"claim ok": 905}})}, 5, 0, 0},                           // lane 0 has started again
		{[]status.Report{report("a", map[int]map[string]uint64{1: {"claim ok": 905}})}, 0, 0, 1},
	} {
		now = now.Add(time.Second)
		got := s.sample(now, step.reports, nil)
		if got.Claims != step.claims || got.Refused["sold_out"] != step.refused || got.Refusals != step.refused || s.nowhere[alert.Owned] != step.orphans {
			t.Errorf("%d: %+v, %d lanes without an owner", i, got, s.nowhere[alert.Owned])
		}
	}
	if got := s.sample(now, nil, nil); got.Error == "" {
		t.Error("no reports, and no error")
	}
}

// TestRing keeps ten minutes, shows one sample of each ten seconds, and when the disk is full.
func TestRing(t *testing.T) {
	s := New(Options{Lanes: 1})
	start := time.Unix(1e9, 0)
	for i := range kept + 50 {
		s.add(Sample{At: start.Add(time.Duration(i) * time.Second), Claims: 10, left: []uint64{1e9, uint64(7200+600-i) * 1000}})
	}
	got := s.Overview(time.Now())
	if len(got.Recent) != kept/10 || got.Recent[0].Claims != 10 || !got.At.Equal(start.Add((kept+49)*time.Second)) {
		t.Errorf("%d samples, the first %+v, the last of %s", len(got.Recent), got.Recent[0], got.At)
	}
	if got.FullIn < 1.9 || got.FullIn > 2.1 {
		t.Errorf("full in %f hours", got.FullIn)
	}
}

// TestAlerts are judged with the metrics of this server and the reports of all: a lane without an owner, and tables that no server
// fills, are seen by every server. Of the tables the row counts of the server that fills them.
func TestAlerts(t *testing.T) {
	late := prometheus.NewGauge(prometheus.GaugeOpts{Name: "scrip_projection_lag_seconds"})
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(late)
	tables := func(server string, state projector.State, lag float64) status.Report {
		rows := map[string]any{"lanes": []status.Projected{{State: state, LagSeconds: lag}}}
		return status.Report{Server: server, Readiness: status.Readiness{Checks: map[string]status.Result{"projector": {OK: true, Detail: rows}}}}
	}
	owner, full := report("a", map[int]map[string]uint64{0: nil}), report("a", map[int]map[string]uint64{0: nil})
	full.Checks["lanes"].Detail.(map[string]any)["lanes"].([]status.LaneReadiness)[0].State = lane.StateFull
	for _, c := range []struct {
		reports []status.Report
		late    float64
		alerts  string
		lag     float64
	}{
		{[]status.Report{owner, tables("b", projector.Following, 2), tables("c", projector.Standby, 900)}, 0, "", 2},
		{[]status.Report{full, tables("b", projector.Following, 2)}, 61, "ScripTablesAreBehind", 2},
		{[]status.Report{owner, tables("b", projector.Waiting, 70), tables("c", projector.Standby, 0)}, 0, "ScripTablesHaveNoProjector", 70},
		{[]status.Report{owner, tables("b", projector.Standby, 0), tables("c", projector.Starting, 0)}, 0, "ScripTablesHaveNoProjector", -1},
		{[]status.Report{owner}, 0, "", -1},
		{nil, 0, "ScripLaneHasNoOwner", -1},
	} {
		s, now := New(Options{Lanes: 1, Metrics: metrics}), time.Unix(1e9, 0)
		late.Set(c.late)
		s.Take(now, c.reports, nil)
		got := s.Overview(now.Add(time.Hour))
		var names []string
		for _, a := range got.Alerts {
			names = append(names, a.Name)
		}
		if strings.Join(names, " ") != c.alerts || got.Lag != c.lag {
			t.Errorf("%v: %v, tables %g s late, want %q, %g", c.reports, names, got.Lag, c.alerts, c.lag)
		}
	}
}
