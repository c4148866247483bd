// Package report has the results of scripbench: numbers, and text for people.
//
//	runs of each system ──> medians, ratios ──> Report ──> JSON
//	                                              └──────> text
//
// Owner: none, the package has no state.
package report

import (
	"fmt"
	"time"
)

// Durability is what is on disk when a system answers. Only equal ones are compared.
type Durability string

const (
	// Always: each answered change is on disk. scrip --sync always, Redis appendfsync always, PostgreSQL
	// synchronous_commit on.
	Always Durability = "always"
	// Interval: changes of the last second or two may be lost on power loss. scrip --sync interval, Redis appendfsync
	// everysec, PostgreSQL synchronous_commit off.
	Interval Durability = "interval"
)

// Choose returns the first value for Always, the second for Interval.
func (d Durability) Choose(always, interval string) string {
	if d == Interval {
		return interval
	}
	return always
}

// Subject is the system that the others are compared with.
const Subject = "scrip"

// Report is the result of one call of scripbench.
type Report struct {
	Version string    `json:"version"`
	Date    time.Time `json:"date"`
	Machine Machine   `json:"machine"`
	Results []Result  `json:"results"`
}

// Machine describes hardware and system.
type Machine struct {
	Cores      int    `json:"cores"`
	CPU        string `json:"cpu"`
	Memory     string `json:"memory"`
	System     string `json:"system"`
	Filesystem string `json:"filesystem"`
	Go         string `json:"go"`
}

// Result is what one measurement yields: a Table, Held or Tables.
type Result interface {
	// FileName is the name of its file, without date and ending.
	FileName() string
}

// Head is what every result has.
type Head struct {
	Name       string     `json:"name"` // of the workload or the command
	Durability Durability `json:"durability"`
	// N is how many operations a run has at most, or how many things are due, held or in the tables.
	N        int      `json:"n"`
	Settings []string `json:"settings"`
	// Load is the machine's load average before the first run; numbers of a busy machine are worthless.
	Load string `json:"load"`
}

// FileName is described at Result.
func (h *Head) FileName() string { return h.Name + "-" + string(h.Durability) }

// Table is a job that several systems did at one durability. Only systems in one table are compared.
type Table struct {
	Head
	About string `json:"about"`
	Unit  string `json:"unit"`
	// Due: all of it was due at one instant, and times count from there. Else callers sent it in a closed loop.
	Due     bool     `json:"due,omitempty"`
	Systems []System `json:"systems"`
	// Goals of the workload, by the medians.
	Goals []Goal `json:"goals,omitempty"`
}

// Goal is a ratio within one run and its bound: at most Most or, where that is 0, at least Least; without either it is no goal, and
// beside one.
type Goal struct {
	Name  string  `json:"name"`
	Is    float64 `json:"is"`
	Most  float64 `json:"most,omitempty"`
	Least float64 `json:"least,omitempty"`
}

// Wanted is the bound for people.
func (g Goal) Wanted() string {
	switch {
	case g.Most > 0:
		return fmt.Sprintf("at most %g", g.Most)
	case g.Least > 0:
		return fmt.Sprintf("at least %g", g.Least)
	}
	return "-"
}

// Result is for people, too.
func (g Goal) Result() string {
	switch {
	case g.Most == 0 && g.Least == 0:
		return "-"
	case g.Met():
		return "met"
	}
	return "missed"
}

// Met reports whether the ratio is within its bound.
func (g Goal) Met() bool { return g.Most > 0 && g.Is <= g.Most || g.Most == 0 && g.Is >= g.Least }

// Held is what it costs scrip to hold N of a unit: it was filled, stopped and killed.
type Held struct {
	Head
	Unit      string `json:"unit"`
	Campaigns int    `json:"campaigns"`
	// Since is how many were added between the start and the kill.
	Since int `json:"before_kill"`
	// FillRate is how many a second were filled, until the schedulers knew all that concern them.
	FillRate float64 `json:"fill_rate"`
	// Private memory of its process (no file cache, no PostgreSQL) after garbage collection: started empty, filled, and
	// started again with all of it.
	Empty  int64 `json:"empty_bytes"`
	Filled int64 `json:"filled_bytes"`
	Again  int64 `json:"again_bytes"`
	// In seconds; all is known later than the server is ready where the schedulers have to know it.
	Stop           float64 `json:"stop_s"`
	ReadyAfterStop float64 `json:"ready_after_stop_s"`
	// NATSAfterStop and NATSAfterKill are what NATS took of it to read its store.
	NATSAfterStop  float64 `json:"nats_after_stop_s,omitempty"`
	NATSAfterKill  float64 `json:"nats_after_kill_s,omitempty"`
	KnownAfterStop float64 `json:"known_after_stop_s,omitempty"`
	ReadyAfterKill float64 `json:"ready_after_kill_s"`
	KnownAfterKill float64 `json:"known_after_kill_s,omitempty"`
	// Disk in bytes: event streams, and all else in the data directory but the command streams (snapshots, indexes).
	Events int64 `json:"events_bytes"`
	Disk   int64 `json:"other_disk_bytes"`
	// Covered is how many seconds after the last one snapshots covered what the lanes hold; 0 = this was not waited for.
	Covered float64 `json:"covered_s,omitempty"`
}

// HeldBytes is what all that is held takes, once filled; AgainBytes what it takes after a start.
func (h *Held) HeldBytes() int64 { return h.Filled - h.Empty }

// AgainBytes is described at HeldBytes.
func (h *Held) AgainBytes() int64 { return h.Again - h.Empty }

// Tables is how fast the read side makes tables and files from the log of N coupons, beside bare work on the same data.
type Tables struct {
	Head
	Lines int    `json:"lines"`      // events in the log
	Disk  int64  `json:"disk_bytes"` // of the tables
	Rows  []Step `json:"rows"`
}

// Step was timed.
type Step struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Lines   int     `json:"lines"`
	// Bare is the step without scrip that it is compared with, "" = none.
	Bare   string `json:"bare,omitempty"`
	Memory int64  `json:"memory_bytes,omitempty"`
	P99    int64  `json:"p99_us,omitempty"` // of one, microseconds
}

// Rate is lines a second.
func (s Step) Rate() float64 { return float64(s.Lines) / max(s.Seconds, 1e-9) }

// OfBare is the rate of a step as a part of that of its bare step.
func (t *Tables) OfBare(step Step) string {
	for _, bare := range t.Rows {
		if bare.Name == step.Bare {
			return fmt.Sprintf("%.2f", step.Rate()/bare.Rate())
		}
	}
	return "-"
}
