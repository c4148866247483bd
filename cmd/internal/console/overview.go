package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/sample"
	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

var overviewPages = []page{
	{path: "/{$}", name: "overview", title: "Overview", operation: access.OpReadStatus, nav: true, live: true, load: loadOverview},
	{path: "/due", name: "due", title: "Due", nav: true, operation: access.OpReadDue, live: true, load: loadDue},
}

// overviewData is what is to be seen at a glance.
type overviewData struct {
	Now    Part[sample.Overview]
	Status Part[status.Status]
}

func loadOverview(v *view) any {
	return overviewData{get[sample.Overview](v, "/v1/overview"), get[status.Status](v, "/v1/status")}
}

// Reasons are those of refusals in the last ten minutes, the most frequent first.
func (d overviewData) Reasons() []string {
	sums := map[string]float64{}
	for _, s := range d.Now.Data.Recent {
		for reason, rate := range s.Refused {
			sums[reason] += rate
		}
	}
	return slices.SortedFunc(maps.Keys(sums), func(a, b string) int {
		if sums[a] != sums[b] {
			return map[bool]int{true: -1, false: 1}[sums[a] > sums[b]]
		}
		return map[bool]int{true: -1, false: 1}[a < b]
	})
}

// Mean is the mean rate of a refusal in the last ten minutes.
func (d overviewData) Mean(reason string) float64 {
	sum := 0.0
	for _, s := range d.Now.Data.Recent {
		sum += s.Refused[reason]
	}
	return sum / max(1, float64(len(d.Now.Data.Recent)))
}

// Point is what charts take from the live part: for each chart the instant and its values.
func (d overviewData) Point() string {
	now := d.Now.Data
	raw, _ := json.Marshal(map[string][]float64{"rates": {float64(now.At.UnixMilli()) / 1000, now.Claims, now.Redemptions, now.Refusals}}) // numbers
	return string(raw)
}

// dueData is what falls due and what is late.
type dueData struct {
	Due    Part[ops.DuePage]
	Status Part[status.Status]
	Config Part[ops.SettingsPage]
	Now    Part[sample.Overview]
}

func loadDue(v *view) any {
	d := dueData{Due: get[ops.DuePage](v, "/v1/due", "limit", "1000")}
	if may(v.Who, access.OpReadStatus, "") {
		d.Status, d.Config, d.Now = get[status.Status](v, "/v1/status"), get[ops.SettingsPage](v, "/v1/settings"), get[sample.Overview](v, "/v1/overview")
	}
	return d
}

// cell is a second of the heat strip.
type cell struct {
	X, Heat int // seconds from now; 1 to 5
	Text    string
}

// Strip are the seconds of the next hour in which something falls due.
func (d dueData) Strip() (cells []cell) {
	sums, most := map[int]int64{}, int64(1)
	now := time.Now()
	for _, s := range d.Due.Data.Items {
		x := int(s.Second.Sub(now).Seconds())
		if x >= 0 && x < 3600 {
			sums[x] += s.Due
			most = max(most, sums[x])
		}
	}
	for _, x := range slices.Sorted(maps.Keys(sums)) {
		heat := 1
		for edge := most; heat < 5 && sums[x]*4 > edge; edge *= 2 { // of a quarter, half, …
			heat++
		}
		cells = append(cells, cell{x, heat, fmt.Sprintf("%s UTC: %d", now.Add(time.Duration(x)*time.Second).UTC().Format(time.TimeOnly), sums[x])})
	}
	return cells
}

// Dropped is how many of the customers who wait for a reminder will have none, at the rate of the last minute: theirs comes later
// than the grace allows. It is nil while that rate is not known, or nothing waits.
func (d dueData) Dropped() *int64 {
	recent, now := d.Now.Data.Recent, d.Now.Data.Sample
	var grace time.Duration
	for _, s := range d.Config.Data.Details {
		if s.Setting == "reminder.grace" {
			grace, _ = time.ParseDuration(plain(s.Value))
		}
	}
	if now.Waiting == 0 || grace == 0 || len(recent) < 2 {
		return nil
	}
	first := recent[max(0, len(recent)-6)]
	rate := float64(first.Waiting-now.Waiting) / max(1, now.At.Sub(first.At).Seconds())
	left := max(0, grace.Seconds()-now.OldestDue)
	dropped := max(0, int64(float64(now.Waiting)-max(0, rate)*left))
	return &dropped
}
