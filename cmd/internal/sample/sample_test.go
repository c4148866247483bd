package sample

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
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
		if got.Claims != step.claims || got.Refused["sold_out"] != step.refused || got.Refusals != step.refused || s.orphans != step.orphans {
			t.Errorf("%d: %+v, %d lanes without an owner", i, got, s.orphans)
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
	got := s.Overview()
	if len(got.Recent) != kept/10 || got.Recent[0].Claims != 10 || !got.At.Equal(start.Add((kept+49)*time.Second)) {
		t.Errorf("%d samples, the first %+v, the last of %s", len(got.Recent), got.Recent[0], got.At)
	}
	if got.FullIn < 1.9 || got.FullIn > 2.1 {
		t.Errorf("full in %f hours", got.FullIn)
	}
}

// TestAlertsAreThoseOfTheFile, but for the one that no server sees of itself.
func TestAlertsAreThoseOfTheFile(t *testing.T) {
	text, err := os.ReadFile("../../../docker/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, m := range regexp.MustCompile(`(?s)- alert: (\w+).*?severity: (\w+)`).FindAllStringSubmatch(string(text), -1) {
		if m[1] != "ScripDown" {
			want = append(want, m[1]+" "+m[2])
		}
	}
	for _, r := range rules {
		got = append(got, r.name+" "+r.severity)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the alerts are\n%s\nand in the file\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestEachAlertFires by its metric, and only by it, after it has lasted.
func TestEachAlertFires(t *testing.T) {
	causes := map[string]func(w *window){
		"ScripDueWorkIsLate":         func(w *window) { w.max["scrip_scheduler_oldest_due_age_seconds"] = 11 },
		"ScripSchedulerDoesNotWork":  func(w *window) { w.sum["scrip_lane_owned"] = 1 },
		"ScripRemindersAreDropped":   func(w *window) { w.sum["scrip_scheduler_reminders_dropped_total"] = 1 },
		"ScripSchedulersDisagree":    func(w *window) { w.sum["scrip_scheduler_disagreements_total"] = 1 },
		"ScripLaneHasNoOwner":        func(w *window) { w.max[orphans] = 1 },
		"ScripLaneStopped":           func(w *window) { w.sum["scrip_lane_stopped_total"] = 1 },
		"ScripClockWasSetAhead":      func(w *window) { w.max["scrip_clock_step_seconds"] = 3 },
		"ScripLaneWaitsForClock":     func(w *window) { w.max["scrip_lane_waiting_for_clock"] = 1 },
		"ScripLogTakesNoWrites":      func(w *window) { w.sum["scrip_lane_writes_unknown_total"] = 6 },
		"ScripSlowWrites":            func(w *window) { w.sum["scrip_lane_write_seconds_count"], w.sum[slowBucket] = 100, 98 },
		"ScripForeignMessages":       func(w *window) { w.sum["scrip_lane_foreign_messages_total"] = 1 },
		"ScripRepliesRefused":        func(w *window) { w.sum["scrip_replies_refused_total"] = 1 },
		"ScripRequestsDropped":       func(w *window) { w.sum["scrip_requests_dropped_total"] = 1 },
		"ScripSnapshotsAreOld":       func(w *window) { w.max["scrip_lane_events_since_snapshot"] = 21e6 },
		"ScripTablesAreBehind":       func(w *window) { w.max["scrip_projection_lag_seconds"] = 61 },
		"ScripTablesStopped":         func(w *window) { w.max["scrip_projection_stopped"] = 1 },
		"ScripDeadLetters":           func(w *window) { w.sum["scrip_projection_poison_total"] = 1 },
		"ScripNotDelivered":          func(w *window) { w.max["scrip_push_oldest_seconds"] = 3601 },
		"ScripPushDead":              func(w *window) { w.sum["scrip_push_dead_total"] = 1 },
		"ScripConfigIgnored":         func(w *window) { w.sum["scrip_config_ignored_total"] = 1 },
		"ScripRequestsFail":          func(w *window) { w.sum[`scrip_requests_total{result="failed"}`] = 61 },
		"ScripCodesAreGuessed":       func(w *window) { w.sum["scrip_wrong_codes_refused_total"] = 301 },
		"ScripClientsAreRateLimited": func(w *window) { w.sum["scrip_rate_limited_total"] = 301 },
	}
	now := time.Unix(1e9, 0)
	empty := func(at time.Time) window { return window{at, map[string]float64{}, map[string]float64{}} }
	for _, r := range rules {
		w := empty(now.Add(30 * time.Second))
		cause := causes[r.name]
		if cause == nil {
			t.Errorf("nothing causes %s", r.name)
			continue
		}
		cause(&w)
		for _, other := range rules {
			if fires := other.holds(history{empty(now), w}); fires != (other.name == r.name) {
				t.Errorf("the cause of %s: %s %t", r.name, other.name, fires)
			}
		}
	}
	late := prometheus.NewGauge(prometheus.GaugeOpts{Name: "scrip_scheduler_oldest_due_age_seconds"})
	late.Set(11)
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(late)
	s := New(Options{Lanes: 1, Metrics: metrics})
	s.measure(now)
	if got := s.alerts(now.Add(29 * time.Second)); len(got) != 0 {
		t.Errorf("before it has lasted: %v", got)
	}
	if got := s.alerts(now.Add(30 * time.Second)); len(got) != 1 || got[0].Name != "ScripDueWorkIsLate" {
		t.Errorf("after it: %v", got)
	}
	late.Set(0)
	s.measure(now.Add(measureEvery))
	if got := s.alerts(now.Add(time.Hour)); len(got) != 0 {
		t.Errorf("after it is over: %v", got)
	}
}
