package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// dueText is a job for people.
func dueText(w io.Writer, r Due) error {
	fmt.Fprintf(w, "%s: %s %s\n", r.Job, thousands(float64(r.N)), r.Says)
	if r.Campaigns > 1 {
		fmt.Fprintf(w, "%s campaigns\n", thousands(float64(r.Campaigns)))
	}
	fmt.Fprintf(w, "durability: %s\n", r.Durability.label())
	for _, s := range r.Settings {
		fmt.Fprintln(w, s)
	}
	runs := 0
	for _, s := range r.Systems {
		runs = max(runs, len(s.Runs))
	}
	fmt.Fprintf(w, "medians of %d; times count from the instant; systems take turns, alone on the machine; load average before: %s\n", runs, r.Load)
	if part := r.neighbours(runtime.NumCPU()); part > busyNeighbours {
		fmt.Fprintf(w, "BUSY MACHINE: other programs had %.0f%% of its CPU during the runs; measure again when it is quiet\n", part*100)
	}
	fmt.Fprintln(w)
	reminders := r.Job == "remind"
	head := []string{"SYSTEM", strings.ToUpper(r.Unit), "FIRST", "ALL", "LEAST-MOST", strings.ToUpper(r.Unit) + "/S", "SCRIP IS"}
	if reminders {
		head = append(head, "P50", "P99")
	}
	rows := [][]string{append(head, "SERVER CPU", "CLIENT CPU", "MEMORY", "RECIPE")}
	for _, s := range r.Systems {
		m := s.Median
		least, most := math.Inf(1), 0.0
		for _, run := range s.Runs {
			least, most = min(least, run.All), max(most, run.All)
		}
		all := secondsText(m.All)
		if s.Extrapolated {
			all = "extrapolated: " + all
		}
		row := []string{s.Name, thousands(float64(m.Done)), secondsText(m.First), all, secondsText(least) + "-" + secondsText(most), thousands(m.Rate), ratioText(s.Ratio)}
		if reminders {
			row = append(row, latenessText(s, m.Lateness.P50), latenessText(s, m.Lateness.P99))
		}
		rows = append(rows, append(row, cpuText(m.ServerCPU), cpuText(m.ClientCPU), mebibytes(m.Memory), s.Recipe))
	}
	if err := columns(w, rows); err != nil {
		return err
	}
	for _, s := range r.Systems {
		if s.N < r.N {
			fmt.Fprintf(w, "%s was given %s of the %s %s: rates are compared.\n", s.Name, thousands(float64(s.N)), thousands(float64(r.N)), r.Unit)
		}
	}
	for _, s := range r.Systems {
		if s.Median.Scrip != nil {
			return scripDueText(w, r, *s.Median.Scrip)
		}
	}
	return nil
}

// scripDueText is what is known of scrip only.
func scripDueText(w io.Writer, r Due, s ScripDue) error {
	fmt.Fprintln(w)
	grew := fmt.Sprintf("%s lines in %s messages, %s bytes with headers", thousands(float64(s.Lines)), thousands(float64(s.Messages)), thousands(float64(s.Bytes)))
	if r.Job == "expire" {
		return columns(w, [][]string{
			{"scrip: last redeem that succeeded was handed in", secondsText(s.Accepted)},
			{"first redeem refused", secondsText(s.Refused)},
			{"first validate refused", secondsText(s.Validated)},
			{"event on the log", secondsText(s.Event)},
			{"what it added to the log", grew},
		})
	}
	rows := [][]string{
		{"scrip: last reminders.due event on the log", secondsText(s.Event)},
		{"last line on the reminder stream", secondsText(s.Line)},
		{"what they are on the reminder stream", grew},
	}
	if s.Rate > 0 {
		rows = append(rows,
			[]string{"claims beside, scrip only, at", thousands(s.Rate) + " a second"},
			[]string{"p50, p99, most before", latencyText(s.Before)},
			[]string{"p50, p99, most meanwhile", latencyText(s.During)},
			[]string{"p99 meanwhile / before", ratioText(float64(s.During.P99) / float64(max(1, s.Before.P99)))},
		)
	}
	return columns(w, rows)
}

// latenessText is nothing where nobody was reminded: the limit has no workers.
func latenessText(s DueSystem, us int64) string {
	if s.Name == "limit" {
		return "-"
	}
	return microText(us)
}

// secondsText writes seconds as people do.
func secondsText(s float64) string {
	switch a := math.Abs(s); {
	case a < 10:
		if s < 0 {
			return "-" + microText(int64(-s*1e6))
		}
		return microText(int64(s * 1e6))
	case a < 600:
		return strconv.FormatFloat(s, 'f', 1, 64) + "s"
	case a < 2*time.Hour.Seconds():
		return thousands(s/60) + "min"
	}
	return thousands(s/3600) + "h"
}

// cpuText is CPU time in seconds.
func cpuText(s float64) string { return strconv.FormatFloat(s, 'f', 2, 64) + "s" }
