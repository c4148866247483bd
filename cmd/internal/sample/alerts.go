package sample

import (
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
)

const (
	// measureEvery is how often the metrics are gathered for alerts, and windowFor how long they are kept: the longest window
	// of an alert is 15 minutes. That of an hour is judged by these.
	measureEvery = 15 * time.Second
	windowFor    = 16 * time.Minute
)

// Alert is an alert that would fire.
type Alert struct {
	Name     string    `json:"name"`
	Severity string    `json:"severity" enum:"page,warn,info"`
	Since    time.Time `json:"since" doc:"When its condition was first seen."`
	Next     string    `json:"next" doc:"What to do."`
}

// rule is an alert of docker/prometheus/alerts.yaml, as it can be judged by the metrics of one server; a test compares the tables.
type rule struct {
	name, severity string
	lasts          time.Duration // how long the condition holds before it fires
	holds          func(m history) bool
	next           string
}

// rules are those of the file, in its order, but for ScripDown, which no server sees of itself.
var rules = []rule{
	{"ScripDueWorkIsLate", "page", 30 * time.Second, func(m history) bool { return m.max("scrip_scheduler_oldest_due_age_seconds") > 10 }, "See Due. If the lane is owned and busy, raise reminder.rate or add a server."},
	{"ScripSchedulerDoesNotWork", "page", 2 * time.Minute, func(m history) bool {
		return m.sum("scrip_lane_owned") > m.sum("scrip_scheduler_caught_up")
	}, "The log of the lane's owner has the error of its scheduler."},
	{"ScripRemindersAreDropped", "warn", 0, grew("scrip_scheduler_reminders_dropped_total", 5*time.Minute, 0), "What they announce had passed, or they were too late. A pause, or a scheduler that was down, is the usual reason."},
	{"ScripSchedulersDisagree", "page", 0, grew("scrip_scheduler_disagreements_total", 10*time.Minute, 0), "Keep the log and report it. Claims and redemptions are not affected."},
	{"ScripLaneHasNoOwner", "page", 30 * time.Second, func(m history) bool { return m.max(orphans) > 0 }, "scrip status shows why the lane stopped and the next step."},
	{"ScripLaneStopped", "page", 0, grew("scrip_lane_stopped_total", 5*time.Minute, 0), "scrip status shows the inconsistency and how to rebase. Do not restart in a loop."},
	{"ScripClockWasSetAhead", "page", 0, func(m history) bool { return m.max("scrip_clock_step_seconds") > 0 }, "Correct the clock, or accept it with scrip config set clock.accepted now."},
	{"ScripLaneWaitsForClock", "page", 10 * time.Second, func(m history) bool { return m.max("scrip_lane_waiting_for_clock") == 1 }, "Compare the clocks of the machines that run NATS and scrip."},
	{"ScripLogTakesNoWrites", "page", time.Minute, grew("scrip_lane_writes_unknown_total", time.Minute, 5), "Check the disk of NATS first, then its logs. None of the commands is lost."},
	{"ScripSlowWrites", "warn", 5 * time.Minute, func(m history) bool {
		all, fast := m.grown("scrip_lane_write_seconds_count", 5*time.Minute), m.grown(slowBucket, 5*time.Minute)
		return all > 0 && all-fast > all/100
	}, "The disk under NATS is slow or shared."},
	{"ScripForeignMessages", "warn", 0, grew("scrip_lane_foreign_messages_total", 10*time.Minute, 0), "Readers ignore them. Find the client that may publish there, and revoke that permission."},
	{"ScripRepliesRefused", "warn", 0, grew("scrip_replies_refused_total", 10*time.Minute, 0), "A client's inbox prefix is not _INBOX, or this is an attempt to publish with scrip's rights."},
	{"ScripRequestsDropped", "warn", 0, grew("scrip_requests_dropped_total", 5*time.Minute, 0), "Find the sender of so many requests, or add servers with role api."},
	{"ScripSnapshotsAreOld", "warn", 10 * time.Minute, func(m history) bool { return m.max("scrip_lane_events_since_snapshot") > 20e6 }, "Snapshots fail; the server's log has the error."},
	{"ScripTablesAreBehind", "warn", 5 * time.Minute, func(m history) bool { return m.max("scrip_projection_lag_seconds") > 60 }, "Claims and redemptions are served. Check PostgreSQL: connections, disk, long transactions."},
	{"ScripTablesStopped", "page", time.Minute, func(m history) bool { return m.max("scrip_projection_stopped") == 1 }, "See Tables for the error; a rebuild makes the tables from the log."},
	{"ScripDeadLetters", "warn", 0, grew("scrip_projection_poison_total", 15*time.Minute, 0), "See Dead letters for the reasons."},
	{"ScripNotDelivered", "warn", 5 * time.Minute, func(m history) bool { return m.max("scrip_push_oldest_seconds") > 3600 }, "Does the push sender run, does the webhook's receiver work? See Reminders and Webhooks."},
	{"ScripPushDead", "warn", 0, grew("scrip_push_dead_total", 15*time.Minute, 0), "See Reminders and Webhooks for what was given up, and retry it."},
	{"ScripConfigIgnored", "warn", 0, grew("scrip_config_ignored_total", 15*time.Minute, 0), "See Settings for the change and the reason."},
	{"ScripRequestsFail", "page", time.Minute, func(m history) bool {
		return m.grown(`scrip_requests_total{result="failed"}`, time.Minute) > 60
	}, "Callers retry with the same id and lose nothing. Check the lanes and the disk of NATS."},
	{"ScripCodesAreGuessed", "warn", 5 * time.Minute, func(m history) bool {
		return m.grown("scrip_wrong_codes_total", 5*time.Minute) > 5*300 || m.grown("scrip_wrong_codes_refused_total", 5*time.Minute) > 300
	}, "See Access for the wrong codes of each key in this hour, and revoke the one that guesses."},
	{"ScripClientsAreRateLimited", "info", 10 * time.Minute, grew("scrip_rate_limited_total", 5*time.Minute, 300), "Let the client send many commands in one request, or raise http.rate."},
}

// slowBucket is the bucket of writes that took at most 0.2048 s, the last one below the alert's quarter of a second.
const slowBucket = `scrip_lane_write_seconds_bucket{le="0.2048"}`

// orphans is how many lanes no server owns, among the metrics.
const orphans = "lanes without an owner"

// grew is the condition that a counter grew by more than most within a span.
func grew(name string, within time.Duration, most float64) func(history) bool {
	return func(m history) bool { return m.grown(name, within) > most }
}

// window are the metrics at an instant: by name, and by name and the label that a rule picks, summed up and their greatest.
type window struct {
	at       time.Time
	sum, max map[string]float64
}

// history is windows, oldest first.
type history []window

func (m history) max(name string) float64 { return m[len(m)-1].max[name] }
func (m history) sum(name string) float64 { return m[len(m)-1].sum[name] }

// grown is by how much a counter grew within a span; one that started again counts from 0.
func (m history) grown(name string, within time.Duration) float64 {
	last, first := m[len(m)-1], m[len(m)-1]
	for i := len(m) - 1; i >= 0 && last.at.Sub(m[i].at) <= within; i-- {
		first = m[i]
	}
	return max(0, last.sum[name]-first.sum[name])
}

// measure gathers the metrics if it is time, and judges the rules.
func (s *Sampler) measure(now time.Time) {
	if n := len(s.windows); s.Metrics == nil || n > 0 && now.Sub(s.windows[n-1].at) < measureEvery {
		return
	}
	families, err := s.Metrics.Gather()
	if err != nil {
		s.Logger.Debug("metrics cannot be gathered for alerts", "err", err)
	}
	w := windowOf(now, families)
	w.max[orphans] = float64(s.orphans)
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.windows) > 0 && now.Sub(s.windows[0].at) > windowFor {
		s.windows = s.windows[1:]
	}
	s.windows = append(s.windows, w)
	for _, r := range rules {
		switch {
		case !r.holds(s.windows):
			delete(s.firing, r.name)
		case s.firing[r.name].IsZero():
			s.firing[r.name] = now
		}
	}
}

// alerts are those whose condition has held for long enough.
func (s *Sampler) alerts(now time.Time) []Alert {
	all := []Alert{}
	for _, r := range rules {
		if since := s.firing[r.name]; !since.IsZero() && now.Sub(since) >= r.lasts {
			all = append(all, Alert{r.name, r.severity, since.UTC(), r.next})
		}
	}
	return all
}

// windowOf sums up what the rules look at.
func windowOf(at time.Time, families []*dto.MetricFamily) window {
	w := window{at, map[string]float64{}, map[string]float64{}}
	add := func(name string, v float64) {
		w.sum[name] += v
		w.max[name] = max(w.max[name], v)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "scrip_") {
			continue
		}
		for _, m := range f.Metric {
			switch name := f.GetName(); {
			case m.Histogram != nil:
				add(name+"_count", float64(m.Histogram.GetSampleCount()))
				for _, b := range m.Histogram.Bucket {
					if name == "scrip_lane_write_seconds" && b.GetUpperBound() < 0.21 && b.GetUpperBound() > 0.2 {
						add(slowBucket, float64(b.GetCumulativeCount()))
					}
				}
			default:
				v := m.Counter.GetValue() + m.Gauge.GetValue()
				add(name, v)
				for _, l := range m.Label {
					if l.GetName() == "result" {
						add(name+`{result="`+l.GetValue()+`"}`, v)
					}
				}
			}
		}
	}
	return w
}
