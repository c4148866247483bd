// Package report has the results of scripbench: numbers, and text for people.
//
//	runs of each system ──> medians, ratios ──> Report ──> JSON
//	                                              └──────> text
//
// JSON of earlier versions can be read. Owner: none, the package has no state.
package report

import (
	"fmt"
	"reflect"
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
	Version     string    `json:"version"`
	Date        time.Time `json:"date"`
	Machine     Machine   `json:"machine"`
	Tables      []*Table  `json:"tables,omitempty"`
	Restart     *Restart  `json:"restart,omitempty"`
	Projections *Tables   `json:"projections,omitempty"`
	Due         *Due      `json:"due,omitempty"`
	Pending     *Pending  `json:"pending,omitempty"`
}

// Result is what one measurement yields.
type Result interface {
	name() string
}

// FileName is the name of a result's file, without date.
func FileName(r Result) string { return r.name() + ".txt" }

func (r *Restart) name() string { return "restart-" + string(r.Durability) }
func (r *Tables) name() string  { return "tables" }
func (r *Due) name() string     { return r.Job + "-" + string(r.Durability) }
func (r *Pending) name() string { return "pending-" + string(r.Durability) }
func (t *Table) name() string {
	if t.OpenLoop != "" {
		return t.Workload + "-" + string(t.Durability) + "-open-loop"
	}
	return t.Workload + "-" + string(t.Durability)
}

// Add adds a result.
func (r *Report) Add(result Result) {
	switch v := result.(type) {
	case *Table:
		r.Tables = append(r.Tables, v)
	case *Restart:
		r.Restart = v
	case *Tables:
		r.Projections = v
	case *Due:
		r.Due = v
	case *Pending:
		r.Pending = v
	}
}

// FileName is the name of the report's JSON file, without date.
func (r *Report) FileName() string {
	if len(r.Tables) == 0 {
		return r.Results()[0].name() + ".json"
	}
	kind := "run-"
	if r.Tables[0].OpenLoop != "" {
		kind = "open-loop-"
	}
	return kind + string(r.Tables[0].Durability) + ".json"
}

// Results are all results that it has.
func (r *Report) Results() (all []Result) {
	for _, t := range r.Tables {
		all = append(all, t)
	}
	for _, one := range []Result{r.Restart, r.Projections, r.Due, r.Pending} {
		if !reflect.ValueOf(one).IsNil() {
			all = append(all, one)
		}
	}
	return all
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

// Table is a workload at one durability. Only systems in one table are compared.
type Table struct {
	Workload   string     `json:"workload"`
	About      string     `json:"says"`
	Unit       string     `json:"unit"`
	Durability Durability `json:"durability"`
	// OpenLoop is the rate at which operations are to be sent; "" = closed loop.
	OpenLoop string           `json:"open_loop,omitempty"`
	N        int              `json:"n"`
	Settings []string         `json:"settings"`
	Systems  Systems[Measure] `json:"systems"`
	// Load is the machine's load average before the first run; numbers of a busy machine are worthless.
	Load string `json:"load"`
	// Goals of the workload, by the medians.
	Goals []Goal `json:"goals,omitempty"`
}

// Goal is a ratio within one run and its bound: at most Most or, where that is 0, at least Least.
type Goal struct {
	Name  string  `json:"name"`
	Is    float64 `json:"is"`
	Most  float64 `json:"most,omitempty"`
	Least float64 `json:"least,omitempty"`
}

// Wanted is the bound for people.
func (g Goal) Wanted() string {
	if g.Most > 0 {
		return fmt.Sprintf("at most %g", g.Most)
	}
	return fmt.Sprintf("at least %g", g.Least)
}

// Met reports whether the ratio is within its bound.
func (g Goal) Met() bool { return g.Most > 0 && g.Is <= g.Most || g.Most == 0 && g.Is >= g.Least }

// Measure is one run of one system.
type Measure struct {
	Run
	// Refused of the done operations were refused as sold out.
	Refused int     `json:"refused,omitempty"`
	Seconds float64 `json:"seconds"`
	Latency Latency `json:"latency"`
}

// Due is one job that is due at one instant, done by every system.
type Due struct {
	Job        string     `json:"job"` // expire or remind
	About      string     `json:"says"`
	Unit       string     `json:"unit"`
	Durability Durability `json:"durability"`
	N          int        `json:"n"`
	// Campaigns that the reminders are spread over.
	Campaigns int             `json:"campaigns"`
	Settings  []string        `json:"settings"`
	Systems   Systems[DueRun] `json:"systems"`
	Load      string          `json:"load"`
}

// DueRun is one run of one system; its rate is Done by All. Instants are seconds after the due instant.
type DueRun struct {
	Run
	// First and All are when the first and the last of them was done.
	First float64 `json:"first_s"`
	All   float64 `json:"all_s"`
	// Lateness of each reminder at the worker, in microseconds, clipped at two minutes.
	Lateness Latency `json:"lateness"`
	// Scrip is nil for other systems.
	Scrip *ScripDue `json:"scrip,omitempty"`
}

// Advance sets that some more, or the first, are done now.
func (m *DueRun) Advance(due time.Time) {
	m.All = time.Since(due).Seconds()
	if m.First == 0 {
		m.First = m.All
	}
}

// ScripDue is measured of scrip's reminders only.
type ScripDue struct {
	// Line is when the last line was stored on the reminder stream.
	Line float64 `json:"line_s"`
	// Messages, lines and bytes (of whole messages) that this is on the log.
	Messages int   `json:"messages"`
	Lines    int   `json:"lines"`
	Bytes    int64 `json:"bytes"`
	// Claims beside: how many a second, and their latency before the instant and from it until all was done.
	Rate   float64 `json:"claims_rate,omitempty"`
	Before Latency `json:"claims_before"`
	During Latency `json:"claims_during"`
}

// Cycle is a server that was filled, stopped and killed. Bytes are private memory of its process (no file cache, no
// PostgreSQL) after garbage collection: started empty, filled, and started again with all of it. Stopping and being ready
// are in seconds, and so is the time until all of it was known, 0 where being ready means that.
type Cycle struct {
	FillRate       float64 `json:"fill_rate"`
	Empty          int64   `json:"empty_bytes"`
	Filled         int64   `json:"filled_bytes"`
	Again          int64   `json:"again_bytes"`
	Stop           float64 `json:"stop_s"`
	ReadyAfterStop float64 `json:"ready_after_stop_s"`
	KnownAfterStop float64 `json:"known_after_stop_s,omitempty"`
	ReadyAfterKill float64 `json:"ready_after_kill_s"`
	KnownAfterKill float64 `json:"known_after_kill_s,omitempty"`
}

// Restart is the cost of many coupons: memory and restarts.
type Restart struct {
	Durability Durability `json:"durability"`
	Settings   string     `json:"settings"`
	Load       string     `json:"load"`
	Rows       []Held     `json:"rows"`
}

// Held is one number of coupons.
type Held struct {
	Cycle
	Campaigns int `json:"campaigns"`
	Claims    int `json:"claims"`
	// Created is how many seconds it took to create the campaigns.
	Created float64 `json:"created_s"`
	// Since is claims between start and kill.
	Since int `json:"claims_before_kill"`
}

// Tables is how fast the read side makes tables and files from the log, beside bare work on the same data.
type Tables struct {
	Settings string `json:"settings"`
	Load     string `json:"load"`
	Coupons  int    `json:"coupons"`
	Lines    int    `json:"lines"` // events in the log
	Rows     []Step `json:"rows"`
}

// Step was timed.
type Step struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Lines   int     `json:"lines"`
	// Bare is the step without scrip that it is compared with, "" = none.
	Bare   string `json:"bare,omitempty"`
	Memory int64  `json:"memory_bytes,omitempty"`
}

// Rate is lines a second.
func (s Step) Rate() float64 { return float64(s.Lines) / max(s.Seconds, 1e-9) }

// Pending is the cost of reminders that are not due yet: memory, disk, and restarts.
type Pending struct {
	Durability Durability    `json:"durability"`
	N          int           `json:"n"`
	Campaigns  int           `json:"campaigns"`
	Load       string        `json:"load"`
	Scrip      *ScripPending `json:"scrip"`
}

// ScripPending is scrip with many reminders; FillRate is subscriptions a second until the schedulers had all.
type ScripPending struct {
	Cycle
	Settings string `json:"settings"`
	// Disk in bytes: event streams, and all else in the data directory but the command streams (snapshots, indexes).
	Events int64 `json:"events_bytes"`
	Disk   int64 `json:"other_disk_bytes"`
	// Covered is how many seconds after the last subscription snapshots covered what the lanes hold.
	Covered float64 `json:"covered_s"`
	// Since is subscriptions between start and kill.
	Since int `json:"before_kill"`
}
