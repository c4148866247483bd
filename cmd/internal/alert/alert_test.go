package alert

import (
	"flag"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
)

var (
	update = flag.Bool("update", false, "write docker/prometheus/alerts.yaml")
	start  = time.Unix(1e9, 0)
)

// TestFile: docker/prometheus/alerts.yaml is the table. The module beside it has it read by Prometheus.
func TestFile(t *testing.T) {
	const path = "../../../docker/prometheus/alerts.yaml"
	if *update {
		if err := os.WriteFile(path, []byte(File()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != File() {
		t.Errorf("docker/prometheus/alerts.yaml is not the table (%v); run: go test ./cmd/internal/alert -run TestFile -update", err)
	}
}

// gathered are the values of gauges and counters, by name with labels: a{lane="1"}.
type gathered map[string]float64

func (g gathered) families() (all []*dto.MetricFamily) {
	for text, v := range g {
		name, labels, _ := strings.Cut(strings.TrimSuffix(text, "}"), "{")
		m := &dto.Metric{Counter: &dto.Counter{Value: &v}}
		if labels != "" {
			for pair := range strings.SplitSeq(labels, ",") {
				key, value, _ := strings.Cut(strings.ReplaceAll(pair, `"`, ""), "=")
				m.Label = append(m.Label, &dto.LabelPair{Name: &key, Value: &value})
			}
		}
		all = append(all, &dto.MetricFamily{Name: &name, Metric: []*dto.Metric{m}})
	}
	return all
}

// histogram has values in buckets by their upper bounds, of lane 0.
func histogram(name string, all uint64, upTo map[float64]uint64) []*dto.MetricFamily {
	lane, zero := "lane", "0"
	h := &dto.Histogram{SampleCount: &all}
	for le, n := range upTo {
		h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: &le, CumulativeCount: &n})
	}
	m := &dto.Metric{Label: []*dto.LabelPair{{Name: &lane, Value: &zero}}, Histogram: h}
	return []*dto.MetricFamily{{Name: &name, Metric: []*dto.Metric{m}}}
}

// TestEachAlertFires by its metric, and only by it. What only Prometheus sees has no cause here.
func TestEachAlertFires(t *testing.T) {
	slow := func(fast uint64) []*dto.MetricFamily {
		return histogram("scrip_lane_write_seconds", 100, map[float64]uint64{0.2048: fast, 0.4096: 100})
	}
	for _, c := range []struct {
		fires   string // with a space between two
		of      gathered
		also    []*dto.MetricFamily
		nowhere map[string]int
	}{
		{fires: "ScripDueWorkIsLate", of: gathered{`scrip_scheduler_oldest_due_age_seconds{lane="1",priority="low"}`: 11}},
		{of: gathered{`scrip_scheduler_oldest_due_age_seconds{lane="1",priority="low"}`: 10}},
		{fires: "ScripSchedulerDoesNotWork", of: gathered{`scrip_lane_owned{lane="1"}`: 1, `scrip_scheduler_caught_up{lane="1"}`: 0, `scrip_scheduler_caught_up{lane="2"}`: 1}},
		{of: gathered{`scrip_lane_owned{lane="1"}`: 1, `scrip_scheduler_caught_up{lane="1"}`: 1, `scrip_lane_owned{lane="2"}`: 0}},
		{fires: "ScripRemindersAreDropped", of: gathered{`scrip_scheduler_reminders_dropped_total{lane="1",priority="low"}`: 1}},
		{fires: "ScripSchedulersDisagree", of: gathered{`scrip_scheduler_disagreements_total{lane="1"}`: 1}},
		{fires: "ScripLaneHasNoOwner", nowhere: map[string]int{Owned: 1}},
		{fires: "ScripLaneStopped", of: gathered{`scrip_lane_stopped_total{lane="1"}`: 1}},
		{fires: "ScripClockWasSetAhead", of: gathered{`scrip_clock_step_seconds`: 3}},
		{fires: "ScripLaneWaitsForClock", of: gathered{`scrip_lane_waiting_for_clock{lane="1"}`: 1}},
		{fires: "ScripLogTakesNoWrites", of: gathered{`scrip_lane_writes_unknown_total{lane="1"}`: 6}},
		{of: gathered{`scrip_lane_writes_unknown_total{lane="1"}`: 5, `scrip_lane_writes_unknown_total{lane="2"}`: 5}},
		{fires: "ScripSlowWrites", also: slow(98)},
		{also: slow(99)},
		{fires: "ScripCommandsNotStored", of: gathered{`scrip_command_not_durable_total`: 1}},
		{fires: "ScripCommandDeadLetters", of: gathered{`scrip_lane_outcomes_total{lane="1",command="claim",outcome="invalid"}`: 1}},
		{of: gathered{`scrip_lane_outcomes_total{lane="1",command="claim",outcome="ok"}`: 1e6}},
		{fires: "ScripLogLosesEvents", of: gathered{`scrip_log_endangered`: 1}},
		{fires: "ScripLogSettingsDiffer", of: gathered{`scrip_log_settings_differ`: 1}},
		{fires: "ScripStreamFull", of: gathered{`scrip_log_stream_full{stream="KV_SCRIP_ONCE"}`: 0.95, `scrip_log_stream_full{stream="SCRIP_CMD_0"}`: 0.5}},
		{fires: "ScripNodeLags", of: gathered{`scrip_nats_node_lag{node="nats-1"}`: 0, `scrip_nats_node_lag{node="nats-2"}`: 1}},
		{fires: "ScripForeignMessages", of: gathered{`scrip_lane_foreign_messages_total{lane="1"}`: 1}},
		{fires: "ScripRepliesRefused", of: gathered{`scrip_replies_refused_total{place="query"}`: 1}},
		{fires: "ScripRequestsDropped", of: gathered{`scrip_requests_dropped_total{endpoint="claim"}`: 1}},
		{fires: "ScripSnapshotsAreOld", of: gathered{`scrip_lane_events_since_snapshot{lane="1"}`: 21e6}},
		{fires: "ScripPostgresDown", of: gathered{`scrip_postgres_up`: 0}},
		{of: gathered{`scrip_postgres_up`: 1}},
		{fires: "ScripRevokedKeysMayRead", of: gathered{`scrip_analysts_unguarded_seconds`: 11}},
		{of: gathered{`scrip_analysts_unguarded_seconds`: 10}},
		{fires: "ScripTablesHaveNoProjector", nowhere: map[string]int{Followed: 1}},
		{fires: "ScripTablesAreBehind", of: gathered{`scrip_projection_lag_seconds{lane="1"}`: 61}},
		{fires: "ScripTablesStopped", of: gathered{`scrip_projection_stopped{lane="1"}`: 1}},
		{fires: "ScripSegmentsAreOverdue", of: gathered{`scrip_projection_segments_overdue`: 1}},
		{of: gathered{`scrip_projection_segments_overdue`: 0}},
		{fires: "ScripDeadLetters", of: gathered{`scrip_projection_poison_total{lane="1"}`: 1}},
		{fires: "ScripNotDelivered", of: gathered{`scrip_push_oldest_seconds{name="a",lane="1"}`: 3601}},
		{of: gathered{`scrip_push_dead_total{name="a",lane="1"}`: 7}}, // since the name was used first
		{fires: "ScripWebhookDisabled", of: gathered{`scrip_webhooks{state="disabled"}`: 1}},
		{of: gathered{`scrip_webhooks{state="paused"}`: 1, `scrip_webhooks{state="disabled"}`: 0}},
		{fires: "ScripConfigIgnored", of: gathered{`scrip_config_ignored_total`: 1}},
		{fires: "ScripRequestsFail", of: gathered{`scrip_requests_total{endpoint="claim",result="failed"}`: 40, `scrip_requests_total{endpoint="redeem",result="failed"}`: 21}},
		{of: gathered{`scrip_requests_total{endpoint="claim",result="done"}`: 1e6, `scrip_requests_total{endpoint="redeem",result="failed"}`: 60}},
		{fires: "ScripDiskFills", of: gathered{`scrip_disk_free_bytes{place="log"}`: 14, `scrip_disk_size_bytes{place="log"}`: 100}},
		{fires: "ScripDiskFills ScripDiskIsFull", of: gathered{`scrip_disk_free_bytes{place="log"}`: 4, `scrip_disk_size_bytes{place="log"}`: 100}},
		{of: gathered{`scrip_disk_free_bytes{place="log"}`: 15, `scrip_disk_size_bytes{place="log"}`: 100}},
		{fires: "ScripCertificateExpires", of: gathered{`scrip_tls_expires_timestamp_seconds`: 1e9 + 13*86400}},
		{fires: "ScripCertificateExpires ScripCertificateExpiresSoon", of: gathered{`scrip_tls_expires_timestamp_seconds`: 1e9 + 86400}},
		{of: gathered{`scrip_tls_expires_timestamp_seconds`: 1e9 + 15*86400}},
		{fires: "ScripLimitReached", of: gathered{`scrip_limit_refused_total{limit="http_connections"}`: 1}},
		{fires: "ScripServerMayNot", of: gathered{`scrip_nats_violations_total`: 1}},
		{fires: "ScripBackupIsOld", of: gathered{`scrip_backup_age_seconds`: 86401, `scrip_backup_age_limit_seconds`: 86400}},
		{of: gathered{`scrip_backup_age_seconds`: 86400, `scrip_backup_age_limit_seconds`: 86400}},
		{of: gathered{`scrip_backup_age_seconds`: 1e9, `scrip_backup_age_limit_seconds`: 0}},
		{fires: "ScripLogLinesDropped", of: gathered{`scrip_log_lines_dropped_total`: 1}},
		{fires: "ScripCodesAreGuessed", of: gathered{`scrip_wrong_codes_refused_total{budget="key"}`: 301}},
		{fires: "ScripCodesAreGuessed", of: gathered{`scrip_wrong_codes_total{budget="key"}`: 1501}},
		{fires: "ScripClientsAreRateLimited", of: gathered{`scrip_rate_limited_total`: 301}},
	} {
		j := NewJudge(start)
		j.Look(start.Add(30*time.Second), append(c.of.families(), c.also...), c.nowhere)
		var got []string
		for _, a := range j.Alerts(start.Add(time.Hour)) {
			got = append(got, a.Name)
		}
		if strings.Join(got, " ") != c.fires {
			t.Errorf("%v %v: %v fire, want %q", c.of, c.nowhere, got, c.fires)
		}
		caused = append(caused, got...)
	}
	for _, r := range Rules {
		if _, elsewhere := r.When.(Elsewhere); !elsewhere && !slices.Contains(append(caused, kept...), r.Name) {
			t.Errorf("nothing causes %s", r.Name)
		}
	}
}

// caused are the alerts that TestEachAlertFires has seen, and kept those that it cannot: TestGrowth causes them.
var (
	caused []string
	kept   = []string{"ScripPushDead"}
)

// TestAnAlertLasts: it fires after its condition has held for long enough, and not after it is over.
func TestAnAlertLasts(t *testing.T) {
	j := NewJudge(start)
	late := func(s float64) []*dto.MetricFamily {
		return gathered{`scrip_scheduler_oldest_due_age_seconds{lane="1",priority="low"}`: s}.families()
	}
	j.Look(start, late(11), nil)
	if got := j.Alerts(start.Add(29 * time.Second)); len(got) != 0 {
		t.Errorf("before it has lasted: %v", got)
	}
	if got := j.Alerts(start.Add(30 * time.Second)); len(got) != 1 || got[0].Name != "ScripDueWorkIsLate" || !got[0].Since.Equal(start) {
		t.Errorf("after it: %v", got)
	}
	if j.Due(start.Add(Every-1)) || !j.Due(start.Add(Every)) {
		t.Error("it is not due after 15 seconds")
	}
	j.Look(start.Add(Every), late(0), nil)
	if got := j.Alerts(start.Add(time.Hour)); len(got) != 0 {
		t.Errorf("after it is over: %v", got)
	}
}

// TestGrowth is counted within the window only, from 0 on where a counter of this process appears, and from what is there first
// where the log keeps it. What a process counted before its Judge saw it is growth, for it is the process's own.
func TestGrowth(t *testing.T) {
	for name, c := range map[string]struct {
		of     string
		counts []float64 // each 5 minutes; below zero = absent
		fires  []bool
	}{
		"grows":                {`scrip_config_ignored_total`, []float64{0, 1, 1, 1, 1, 1}, []bool{false, true, true, true, false, false}},
		"appears":              {`scrip_config_ignored_total`, []float64{-1, -1, -1, -1, 2, 2}, []bool{false, false, false, false, true, true}},
		"there at the start":   {`scrip_config_ignored_total`, []float64{3, 3, 3, 3, 3}, []bool{true, true, true, true, false}},
		"kept, there first":    {`scrip_push_dead_total{name="a",lane="1"}`, []float64{7, 7, -1, 7}, []bool{false, false, false, false}},
		"kept, appears":        {`scrip_push_dead_total{name="a",lane="1"}`, []float64{-1, 7, 7}, []bool{false, false, false}},
		"kept, grows":          {`scrip_push_dead_total{name="a",lane="1"}`, []float64{7, 8, 8}, []bool{false, true, true}},
		"falls by a new owner": {`scrip_push_dead_total{name="a",lane="1"}`, []float64{7, 2, 2}, []bool{false, false, false}},
	} {
		j := NewJudge(start)
		var got []bool
		for i, n := range c.counts {
			of := gathered{}
			if n >= 0 {
				of[c.of] = n
			}
			at := start.Add(time.Duration(i) * 5 * time.Minute)
			j.Look(at, of.families(), nil)
			got = append(got, len(j.Alerts(at)) > 0)
		}
		if !slices.Equal(got, c.fires) {
			t.Errorf("%s: fires %v, want %v", name, got, c.fires)
		}
	}
}

// TestQuantile is what Prometheus's histogram_quantile has at the same buckets: the test of the module docker/prometheus has the
// same numbers.
func TestQuantile(t *testing.T) {
	for fast, fires := range map[uint64]bool{9888: true, 9890: false} {
		j := NewJudge(start)
		j.Look(start.Add(time.Second), histogram("scrip_lane_write_seconds", 10000, map[float64]uint64{0.1024: 9000, 0.2048: fast, 0.4096: 9939}), nil)
		if got := len(j.firing) > 0; got != fires {
			t.Errorf("%s of 10000 writes within 0.2048 s: fires %t", strconv.Itoa(int(fast)), got)
		}
	}
}
