package main

import (
	"slices"
	"time"
)

// Measure is one run of one system.
type Measure struct {
	// Done operations, of which Refused were told that all is gone.
	Done    int     `json:"done"`
	Refused int     `json:"refused,omitempty"`
	Seconds float64 `json:"seconds"`
	// Rate is operations a second.
	Rate    float64 `json:"rate"`
	Latency Latency `json:"latency"`
	// CPU seconds of the server's processes during the run, and of scripbench with the client libraries.
	ServerCPU float64 `json:"server_cpu_s"`
	ClientCPU float64 `json:"client_cpu_s"`
	// OthersCPU is what everything else on the machine has used meanwhile, the kernel's own threads included.
	OthersCPU float64 `json:"others_cpu_s"`
	// Memory is the peak of what the server's processes hold, in bytes, without file cache.
	Memory int64 `json:"memory_bytes"`
}

// System is how one recipe did.
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

// Table is a workload at one durability: the only things that are compared.
type Table struct {
	Workload   string     `json:"workload"`
	Says       string     `json:"says"`
	Unit       string     `json:"unit"`
	Durability durability `json:"durability"`
	// OpenLoop is the rate at which operations were meant to be sent; "" = closed loop.
	OpenLoop string   `json:"open_loop,omitempty"`
	N        int      `json:"n"`
	Settings []string `json:"settings"`
	Systems  []System `json:"systems"`
	// Load is the machine's load average before the first run: a busy machine makes bad numbers.
	Load string `json:"load"`
}

// Report is all that one call of scripbench has measured.
type Report struct {
	Version string    `json:"version"`
	Date    time.Time `json:"date"`
	Machine Machine   `json:"machine"`
	Tables  []Table   `json:"tables,omitempty"`
	Growth  *Growth   `json:"growth,omitempty"`
	Restart *Restart  `json:"restart,omitempty"`
	// Projections is what was made of a log.
	Projections *TablesReport `json:"projections,omitempty"`
	Due         *Due          `json:"due,omitempty"`
	Pending     *Pending      `json:"pending,omitempty"`
}

// median takes the median of every number by itself. There must be a run.
func median(runs []Measure) Measure {
	return Measure{
		Done:    middle(runs, func(m Measure) int { return m.Done }),
		Refused: middle(runs, func(m Measure) int { return m.Refused }),
		Seconds: middle(runs, func(m Measure) float64 { return m.Seconds }),
		Rate:    middle(runs, func(m Measure) float64 { return m.Rate }),
		Latency: Latency{
			P50:  middle(runs, func(m Measure) int64 { return m.Latency.P50 }),
			P99:  middle(runs, func(m Measure) int64 { return m.Latency.P99 }),
			P999: middle(runs, func(m Measure) int64 { return m.Latency.P999 }),
			Max:  middle(runs, func(m Measure) int64 { return m.Latency.Max }),
		},
		ServerCPU: middle(runs, func(m Measure) float64 { return m.ServerCPU }),
		ClientCPU: middle(runs, func(m Measure) float64 { return m.ClientCPU }),
		OthersCPU: middle(runs, func(m Measure) float64 { return m.OthersCPU }),
		Memory:    middle(runs, func(m Measure) int64 { return m.Memory }),
	}
}

func middle[T int | int64 | float64](runs []Measure, of func(Measure) T) T { return middleOf(runs, of) }

// middleOf an even number of runs is the mean of the two in the middle.
func middleOf[R any, T int | int64 | float64](runs []R, of func(R) T) T {
	var all []T
	for _, m := range runs {
		all = append(all, of(m))
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// compare fills in the ratios. In an open loop everybody has the speed that was asked for.
func (t *Table) compare() {
	var ours float64
	if t.OpenLoop != "" {
		return
	}
	for _, s := range t.Systems {
		if s.Name == subject {
			ours = s.Median.Rate
		}
	}
	for i := range t.Systems {
		s := &t.Systems[i]
		s.Ratio = 0
		if ours > 0 && s.Median.Rate > 0 && s.Name != subject {
			s.Ratio = ours / s.Median.Rate
		}
	}
}

// neighbours is the part of the machine's CPU that other programs had during the runs.
func (t *Table) neighbours(cores int) float64 {
	var others, all float64
	for _, s := range t.Systems {
		for _, r := range s.Runs {
			others += r.OthersCPU
			all += r.Seconds * float64(cores)
		}
	}
	if all == 0 {
		return 0
	}
	return others / all
}
