package main

import (
	"runtime"
	"time"
)

// Measure is one run of one system.
type Measure struct {
	// Done operations, of which Refused were refused as sold out.
	Done    int     `json:"done"`
	Refused int     `json:"refused,omitempty"`
	Seconds float64 `json:"seconds"`
	// Rate is operations a second.
	Rate    float64 `json:"rate"`
	Latency Latency `json:"latency"`
	spent
}

// System is the result of one recipe.
type System struct {
	Name     string    `json:"name"`
	Recipe   string    `json:"recipe"`
	InFlight int       `json:"in_flight"`
	Runs     []Measure `json:"runs"`
	// Median of each number over the runs.
	Median Measure `json:"median"`
	// Ratio is how many times as fast scrip was, by the medians; 0 = not known.
	Ratio float64 `json:"scrip_is_times,omitempty"`
}

// Table is a workload at one durability. Only systems in one table are compared.
type Table struct {
	Workload   string     `json:"workload"`
	About      string     `json:"says"`
	Unit       string     `json:"unit"`
	Durability durability `json:"durability"`
	// OpenLoop is the rate at which operations are to be sent; "" = closed loop.
	OpenLoop string   `json:"open_loop,omitempty"`
	N        int      `json:"n"`
	Settings []string `json:"settings"`
	Systems  []System `json:"systems"`
	// Load is the machine's load average before the first run; numbers of a busy machine are worthless.
	Load string `json:"load"`
}

// Report is the result of one call of scripbench.
type Report struct {
	Version     string        `json:"version"`
	Date        time.Time     `json:"date"`
	Machine     Machine       `json:"machine"`
	Tables      []Table       `json:"tables,omitempty"`
	Growth      *Growth       `json:"growth,omitempty"`
	Restart     *Restart      `json:"restart,omitempty"`
	Projections *TablesReport `json:"projections,omitempty"`
	Due         *Due          `json:"due,omitempty"`
	Pending     *Pending      `json:"pending,omitempty"`
}

// compare takes medians and ratios. In an open loop all systems have the rate that --rate sets.
func (t *Table) compare() {
	var ours float64
	for i := range t.Systems {
		s := &t.Systems[i]
		s.Median = median(s.Runs)
		if s.Name == subject && t.OpenLoop == "" {
			ours = s.Median.Rate
		}
	}
	for i := range t.Systems {
		t.Systems[i].Ratio = ratio(t.Systems[i].Name, ours, t.Systems[i].Median.Rate)
	}
}

// ratio is how many times as fast scrip was as another system; 0 = not known.
func ratio(name string, ours, rate float64) float64 {
	if name == subject || rate <= 0 {
		return 0
	}
	return ours / rate
}

// others is the CPU time that other programs had during the runs, and all that the machine had, in seconds.
func (t *Table) others() (others, all float64) {
	for _, s := range t.Systems {
		for _, r := range s.Runs {
			others += r.OthersCPU
			all += r.Seconds * float64(runtime.NumCPU())
		}
	}
	return others, all
}
