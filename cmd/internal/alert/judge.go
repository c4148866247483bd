package alert

import (
	"time"

	dto "github.com/prometheus/client_model/go"
)

// Every is how often a Judge is given the metrics.
const Every = 15 * time.Second

// The work that servers report as their own.
const (
	Owned    = "scrip_lane_owned"
	Followed = "scrip_projection_following"
)

// Alert is an alert that would fire.
type Alert struct {
	Name     string    `json:"name"`
	Severity string    `json:"severity" enum:"page,warn,info"`
	Since    time.Time `json:"since" doc:"When its condition was first seen."`
	Next     string    `json:"next" doc:"What to do."`
}

// Judge judges the rules by the metrics of one server.
type Judge struct {
	history *history
	seen    time.Time
	firing  map[string]time.Time // since when the condition of an alert holds
}

// NewJudge returns a Judge of a server that started at a time.
func NewJudge(started time.Time) *Judge {
	return &Judge{history: newHistory(Rules, started), firing: map[string]time.Time{}}
}

// Due is true if the metrics that it has are older than Every.
func (j *Judge) Due(now time.Time) bool { return now.Sub(j.seen) >= Every }

// Look judges the metrics of an instant. nowhere is, for [Owned] and [Followed], the number of lanes whose work no server reports.
func (j *Judge) Look(now time.Time, families []*dto.MetricFamily, nowhere map[string]int) {
	j.seen = now
	j.history.add(now, families, nowhere)
	for _, r := range Rules {
		switch {
		case !r.When.holds(j.history):
			delete(j.firing, r.Name)
		case j.firing[r.Name].IsZero():
			j.firing[r.Name] = now
		}
	}
}

// Alerts are those whose condition has held for long enough.
func (j *Judge) Alerts(now time.Time) []Alert {
	all := []Alert{}
	for _, r := range Rules {
		if since := j.firing[r.Name]; !since.IsZero() && now.Sub(since) >= r.For {
			all = append(all, Alert{r.Name, string(r.Severity), since.UTC(), r.Action})
		}
	}
	return all
}
