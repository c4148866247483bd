package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// busyNeighbours is the part of the CPU above which other programs spoil the numbers; the kernel alone has a few percent.
const busyNeighbours = 0.15

// page writes a result for people. The first error of the writer is kept; the rest is then not written.
type page struct {
	w   io.Writer
	err error
}

func (p *page) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// rows writes a table after an empty line.
func (p *page) rows(rows [][]string) {
	p.printf("")
	if p.err == nil {
		p.err = columns(p.w, rows)
	}
}

// head writes date, version and machine.
func (p *page) head(r Report) {
	m := r.Machine
	p.printf("%s, scrip %s", r.Date.UTC().Format("2006-01-02 15:04 UTC"), r.Version)
	p.printf("%d cores of %s, %s of memory, %s, files on %s, %s", m.Cores, m.CPU, m.Memory, m.System, m.Filesystem, m.Go)
	p.printf("Load generator, clients and servers share the machine.")
}

// conditions writes durability and settings.
func (p *page) conditions(d durability, settings ...string) {
	p.printf("durability: %s", d.label())
	for _, s := range settings {
		p.printf("%s", s)
	}
}

// busy warns of runs during which other programs used much of the CPU.
func (p *page) busy(others, all float64) {
	// A moment is too short, because CPU time is counted in hundredths of a second.
	if all >= 1 && others/all > busyNeighbours {
		p.printf("BUSY MACHINE: other programs had %.0f%% of its CPU during the runs; measure again when it is quiet", others/all*100)
	}
}

// leastMost is the range of a number over the runs.
func leastMost[R any](runs []R, of func(R) float64, text func(float64) string) (string, int) {
	least, most := math.Inf(1), 0.0
	for _, r := range runs {
		least, most = min(least, of(r)), max(most, of(r))
	}
	return text(least) + "-" + text(most), len(runs)
}

func tableText(w io.Writer, t Table) error {
	p := page{w: w}
	p.printf("%s: %s", t.Workload, t.About)
	loop := "closed loop; latency counts from when it was sent, not from when a caller became free to send (see --rate)"
	if t.OpenLoop != "" {
		loop = fmt.Sprintf("open loop at %s; latency counts from the instant at which it was to be sent", t.OpenLoop)
	}
	p.conditions(t.Durability, append([]string{loop}, t.Settings...)...)
	runs := 0
	rows := [][]string{{"SYSTEM", strings.ToUpper(t.Unit) + "/S", "LEAST-MOST", "SCRIP IS", "IN FLIGHT", "P50", "P99", "P99.9", "SERVER CPU", "CLIENT CPU", "MEMORY", "RECIPE"}}
	for _, s := range t.Systems {
		m := s.Median
		between, n := leastMost(s.Runs, func(m Measure) float64 { return m.Rate }, thousands)
		runs = max(runs, n)
		rows = append(rows, []string{
			s.Name, thousands(m.Rate), between, ratioText(s.Ratio), num(s.InFlight),
			microText(m.Latency.P50), microText(m.Latency.P99), microText(m.Latency.P999),
			perOperation(m.ServerCPU, m.Done), perOperation(m.ClientCPU, m.Done), mebibytes(m.Memory), s.Recipe,
		})
	}
	p.printf("up to %s %s a run, medians of %d; load average before: %s", num(t.N), t.Unit, runs, t.Load)
	p.busy(t.others())
	p.rows(rows)
	return p.err
}

func growthText(w io.Writer, g Growth) error {
	p := page{w: w}
	p.printf("growth: claims a second against what is held")
	p.conditions(g.Durability, g.Settings)
	p.printf("medians of %d windows of %s claims; load average before: %s", growthRuns, num(g.Window), g.Load)
	for _, part := range []struct {
		name   string
		levels []Level
	}{{"CLAIMED IN ONE CAMPAIGN", g.Claimed}, {"CAMPAIGNS", g.Campaigns}} {
		rows := [][]string{{part.name, "CLAIMS/S", "OF THE FIRST", "P50", "P99", "SERVER CPU", "MEMORY", ""}}
		for _, l := range part.levels {
			m := l.Rates
			rows = append(rows, []string{num(l.Size), thousands(m.Rate), fmt.Sprintf("%.0f%%", l.OfFirst*100),
				microText(m.Latency.P50), microText(m.Latency.P99), perOperation(m.ServerCPU, m.Done), mebibytes(m.Memory), ""})
		}
		if len(part.levels) > 0 {
			p.rows(rows)
		}
	}
	return p.err
}

const memoryNote = "memory is private memory of the server's process after garbage collection; %s are not in it"

func restartText(w io.Writer, r Restart) error {
	p := page{w: w}
	p.printf("restart: memory, snapshots and starts with many coupons")
	p.conditions(r.Durability, r.Settings)
	p.printf("load average before: %s", r.Load)
	p.printf(memoryNote, "PostgreSQL's and the file cache")
	for _, h := range r.Rows {
		memory := func(bytes int64) string {
			return fmt.Sprintf("%s (%.1f bytes a coupon)", mebibytes(bytes), bytesEach(bytes-h.Empty, h.Claims))
		}
		p.printf("\n%s campaigns, %s coupons claimed", num(h.Campaigns), num(h.Claims))
		if p.err == nil {
			p.err = columns(w, [][]string{
				{"campaigns created", tenths(h.Created)},
				{"coupons claimed", thousands(h.FillRate) + " a second"},
				{"memory, empty", mebibytes(h.Empty)},
				{"memory, filled", memory(h.Filled)},
				{"memory, started again", memory(h.Again)},
				{"open loop at", thousands(h.Rate) + " a second"},
				{"p50, p99, most without a snapshot", latencyText(h.Without)},
				{"p50, p99, most while one is written", latencyText(h.With) + ", of " + num(h.During) + " claims"},
				{"p99 with / without", ratioText(p99Ratio(h.With, h.Without))},
				{"clean stop", tenths(h.Stop)},
				{"ready after it", tenths(h.AfterStop)},
				{"ready after kill -9", fmt.Sprintf("%s, with %s claims since the start", tenths(h.AfterKill), num(h.Since))},
			})
		}
	}
	return p.err
}

func tablesText(w io.Writer, r TablesReport) error {
	p := page{w: w}
	p.printf("tables: what is made of a log of %s coupons in %s event lines\n%s\nload average before: %s", num(r.Coupons), num(r.Lines), r.Settings, r.Load)
	rates := map[string]float64{}
	for _, row := range r.Rows {
		rates[row.Name] = row.rate()
	}
	rows := [][]string{{"WORK", "LINES/S", "SECONDS", "MEMORY", "OF BARE", "BARE"}}
	for _, row := range r.Rows {
		of := "-"
		if bare := rates[row.Bare]; bare > 0 {
			of = fmt.Sprintf("%.2f", row.rate()/bare)
		}
		rows = append(rows, []string{row.Name, thousands(row.rate()), fmt.Sprintf("%.1f", row.Seconds), mebibytes(row.Memory), of, row.Bare})
	}
	p.rows(rows)
	p.printf("\nclaims at %s a second, p50, p99, most: %s before the last rebuild, %s during it (p99 %s)",
		thousands(r.Rate), latencyText(r.Before), latencyText(r.During), ratioText(p99Ratio(r.During, r.Before)))
	return p.err
}

func dueText(w io.Writer, r Due) error {
	p := page{w: w}
	p.printf("%s: %s %s", r.Job, num(r.N), r.About)
	if r.Campaigns > 1 {
		p.printf("%s campaigns", num(r.Campaigns))
	}
	p.conditions(r.Durability, r.Settings...)
	reminders := r.Job == "remind"
	head := []string{"SYSTEM", strings.ToUpper(r.Unit), "FIRST", "ALL", "LEAST-MOST", strings.ToUpper(r.Unit) + "/S", "SCRIP IS"}
	if reminders {
		head = append(head, "P50", "P99")
	}
	rows, runs := [][]string{append(head, "SERVER CPU", "CLIENT CPU", "MEMORY", "RECIPE")}, 0
	for _, s := range r.Systems {
		m := s.Median
		between, n := leastMost(s.Runs, func(m DueRun) float64 { return m.All }, secondsText)
		runs = max(runs, n)
		all := secondsText(m.All)
		if s.Extrapolated {
			all = "extrapolated: " + all
		}
		row := []string{s.Name, num(m.Done), secondsText(m.First), all, between, thousands(m.Rate), ratioText(s.Ratio)}
		switch {
		case reminders && s.Name == "limit": // it has no workers
			row = append(row, "-", "-")
		case reminders:
			row = append(row, microText(m.Lateness.P50), microText(m.Lateness.P99))
		}
		rows = append(rows, append(row, fmt.Sprintf("%.2fs", m.ServerCPU), fmt.Sprintf("%.2fs", m.ClientCPU), mebibytes(m.Memory), s.Recipe))
	}
	p.printf("medians of %d; times count from the instant; systems take turns, alone on the machine; load average before: %s", runs, r.Load)
	p.busy(r.others())
	p.rows(rows)
	for _, s := range r.Systems {
		if s.N < r.N {
			p.printf("%s was given %s of the %s %s: rates are compared.", s.Name, num(s.N), num(r.N), r.Unit)
		}
	}
	for _, s := range r.Systems {
		if s.Median.Scrip != nil {
			p.rows(scripDueRows(r.Job, *s.Median.Scrip))
			break
		}
	}
	return p.err
}

// scripDueRows is what is measured of scrip only.
func scripDueRows(job string, s ScripDue) [][]string {
	grew := fmt.Sprintf("%s lines in %s messages, %s bytes with headers", num(s.Lines), num(s.Messages), num(s.Bytes))
	if job == "expire" {
		return [][]string{
			{"scrip: last redeem that succeeded was sent", secondsText(s.Accepted)},
			{"first redeem refused", secondsText(s.Refused)},
			{"first validate refused", secondsText(s.Validated)},
			{"event on the log", secondsText(s.Event)},
			{"growth of the log", grew},
		}
	}
	rows := [][]string{
		{"scrip: last reminders.due event on the log", secondsText(s.Event)},
		{"last line on the reminder stream", secondsText(s.Line)},
		{"growth of the reminder stream", grew},
	}
	if s.Rate > 0 {
		rows = append(rows,
			[]string{"claims beside, scrip only, at", thousands(s.Rate) + " a second"},
			[]string{"p50, p99, most before", latencyText(s.Before)},
			[]string{"p50, p99, most meanwhile", latencyText(s.During)},
			[]string{"p99 meanwhile / before", ratioText(p99Ratio(s.During, s.Before))},
		)
	}
	return rows
}

func pendingText(w io.Writer, r Pending) error {
	p := page{w: w}
	p.printf("pending: %s reminders of %s campaigns that are not due yet", num(r.N), num(r.Campaigns))
	p.conditions(r.Durability)
	if r.Scrip != nil {
		p.printf("%s", r.Scrip.Settings)
	}
	for i, peer := range r.Peers {
		if i == 0 || peer.Settings != r.Peers[i-1].Settings {
			p.printf("%s: %s", peer.Name, peer.Settings)
		}
	}
	p.printf("load average before: %s", r.Load)
	peers := [][]string{{"SYSTEM", "REMINDERS", "BYTES EACH", "TIMES SCRIP'S", "RESTART", "EXTRAPOLATED TO ALL", "RECIPE"}}
	part := func(bytes int64) string { return fmt.Sprintf("%.1f", bytesEach(bytes, r.N)) }
	if s := r.Scrip; s != nil {
		memory := func(bytes int64) string {
			return fmt.Sprintf("%s (%s bytes a reminder)", mebibytes(bytes), part(bytes-s.Empty))
		}
		p.printf(memoryNote, "pages of the file cache")
		p.rows([][]string{
			{"subscribed and known to the schedulers", thousands(s.FillRate) + " a second"},
			{"memory, empty", mebibytes(s.Empty)},
			{"memory, all pending", memory(s.Filled)},
			{"memory, started again", memory(s.Again)},
			{"heap, bytes a reminder (sample)", fmt.Sprintf("scheduler %s, lane %s, all else %s", part(s.Heap.Scheduler), part(s.Heap.Lane), part(s.Heap.Other))},
			{"on disk, bytes a reminder", fmt.Sprintf("events %s, all else %s", part(s.Events), part(s.Disk))},
			{"covered by the lanes' snapshots", fmt.Sprintf("%.0f s after the last", s.Covered)},
			{"clean stop", tenths(s.Stop)},
			{"after it ready; all known", tenths(s.ReadyAfterStop) + "; " + tenths(s.KnownAfterStop)},
			{"after kill -9 ready; all known", fmt.Sprintf("%s; %s, with %s subscriptions since the start", tenths(s.ReadyAfterKill), tenths(s.KnownAfterKill), num(s.Since))},
		})
		peers = append(peers, []string{subject, num(r.N), part(s.Filled - s.Empty), "-", tenths(s.KnownAfterStop), "-", "above"})
	}
	for _, peer := range r.Peers {
		bytes, restart, all := fmt.Sprintf("%.1f", bytesEach(peer.Bytes, peer.N)), "-", "-"
		if peer.Disk {
			bytes += " on disk"
		}
		if peer.FromLog > 0 {
			times := float64(r.N) / float64(peer.N)
			restart = fmt.Sprintf("%s, from a snapshot %s", tenths(peer.FromLog), tenths(peer.FromSnapshot))
			all = fmt.Sprintf("%.0f s, from a snapshot %.0f s", peer.FromLog*times, peer.FromSnapshot*times)
		}
		peers = append(peers, []string{peer.Name, num(peer.N), bytes, ratioText(peer.Ratio), restart, all, peer.Recipe})
	}
	if len(r.Peers) > 0 {
		p.rows(peers)
	}
	return p.err
}

// columns aligns rows: the first and last column to the left, numbers to the right.
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

// num is a whole number with commas.
func num[T int | int64](n T) string { return thousands(float64(n)) }

// tenths is a time in seconds.
func tenths(s float64) string { return fmt.Sprintf("%.1f s", s) }

func bytesEach(bytes int64, n int) float64 { return float64(bytes) / float64(n) }

func latencyText(l Latency) string {
	return microText(l.P50) + ", " + microText(l.P99) + ", " + microText(l.Max)
}

func p99Ratio(a, b Latency) float64 { return float64(a.P99) / float64(max(1, b.P99)) }

// secondsText writes seconds in the unit that suits them.
func secondsText(s float64) string {
	switch a := math.Abs(s); {
	case a < 10 && s < 0:
		return "-" + microText(int64(-s*1e6))
	case a < 10:
		return microText(int64(s * 1e6))
	case a < 600:
		return fmt.Sprintf("%.1fs", s)
	case a < 2*time.Hour.Seconds():
		return thousands(s/60) + "min"
	}
	return thousands(s/3600) + "h"
}

// ratioText is a ratio with two significant digits.
func ratioText(r float64) string {
	switch {
	case r == 0:
		return "-"
	case r < 9.95:
		return strconv.FormatFloat(r, 'f', max(1, 1-int(math.Floor(math.Log10(r)))), 64) + "x"
	}
	return thousands(r) + "x"
}

// microText writes microseconds in the unit that suits them.
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
