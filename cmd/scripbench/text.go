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

// busyNeighbours is the part of the CPU from which on others spoil the numbers; the kernel alone has a few percent.
const busyNeighbours = 0.15

// headText says when, what and where.
func headText(w io.Writer, r Report) {
	fmt.Fprintf(w, "%s, scrip %s\n", r.Date.UTC().Format("2006-01-02 15:04 UTC"), r.Version)
	m := r.Machine
	fmt.Fprintf(w, "%d cores of %s, %s of memory, %s, files on %s, %s\n", m.Cores, m.CPU, m.Memory, m.System, m.Filesystem, m.Go)
	fmt.Fprintln(w, "Load generator, clients and servers share the machine.")
}

// tableText is a table for people.
func tableText(w io.Writer, t Table) error {
	fmt.Fprintf(w, "%s: %s\n", t.Workload, t.Says)
	fmt.Fprintf(w, "durability: %s\n", t.Durability.label())
	if t.OpenLoop != "" {
		fmt.Fprintf(w, "open loop at %s; latency counts from the instant at which it was meant to be sent\n", t.OpenLoop)
	} else {
		fmt.Fprintln(w, "closed loop; latency counts from when it was asked, not from when a caller became free to ask (see --rate)")
	}
	for _, s := range t.Settings {
		fmt.Fprintf(w, "%s\n", s)
	}
	runs := 0
	for _, s := range t.Systems {
		runs = max(runs, len(s.Runs))
	}
	fmt.Fprintf(w, "up to %s %s a run, medians of %d; load average before: %s\n", thousands(float64(t.N)), t.Unit, runs, t.Load)
	if part := t.neighbours(runtime.NumCPU()); part > busyNeighbours {
		fmt.Fprintf(w, "BUSY MACHINE: other programs had %.0f%% of its CPU during the runs; measure again when it is quiet\n", part*100)
	}
	fmt.Fprintln(w)
	rows := [][]string{{"SYSTEM", strings.ToUpper(t.Unit) + "/S", "LEAST-MOST", "SCRIP IS", "IN FLIGHT", "P50", "P99", "P99.9", "SERVER CPU", "CLIENT CPU", "MEMORY", "RECIPE"}}
	for _, s := range t.Systems {
		m := s.Median
		least, most := math.Inf(1), 0.0
		for _, r := range s.Runs {
			least, most = min(least, r.Rate), max(most, r.Rate)
		}
		rows = append(rows, []string{
			s.Name, thousands(m.Rate), thousands(least) + "-" + thousands(most), ratioText(s.Ratio), thousands(float64(s.InFlight)),
			microText(m.Latency.P50), microText(m.Latency.P99), microText(m.Latency.P999),
			perOperation(m.ServerCPU, m.Done), perOperation(m.ClientCPU, m.Done), mebibytes(m.Memory), s.Recipe,
		})
	}
	return columns(w, rows)
}

// columns writes rows under each other: the first and last column to the left, numbers to the right.
func columns(w io.Writer, rows [][]string) error {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			switch {
			case i == 0:
				b.WriteString(cell + pad)
			case i == len(row)-1:
				b.WriteString("  " + cell)
			default:
				b.WriteString("  " + pad + cell)
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// thousands writes a number with commas: 1,234,567.
func thousands(v float64) string {
	digits := strconv.FormatInt(int64(math.Round(math.Abs(v))), 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if v <= -0.5 {
		digits = "-" + digits
	}
	return digits
}

// ratioText is how many times as fast scrip was: two digits that count.
func ratioText(r float64) string {
	switch {
	case r == 0:
		return "-"
	case r < 9.95:
		return strconv.FormatFloat(r, 'f', max(1, 1-int(math.Floor(math.Log10(r)))), 64) + "x"
	}
	return thousands(r) + "x"
}

// microText writes microseconds as people do.
func microText(us int64) string {
	d := time.Duration(us) * time.Microsecond
	switch {
	case d < time.Millisecond:
		return strconv.FormatInt(us, 10) + "us"
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(float64(us)/1e3, 'f', 1, 64) + "ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(float64(us)/1e3, 'f', 0, 64) + "ms"
	}
	return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
}

// perOperation is CPU time of one operation.
func perOperation(seconds float64, done int) string {
	if done == 0 {
		return "-"
	}
	return strconv.FormatFloat(seconds*1e6/float64(done), 'f', 1, 64) + "us"
}

func mebibytes(b int64) string {
	if b == 0 {
		return "-"
	}
	return thousands(float64(b)/(1<<20)) + "MiB"
}
