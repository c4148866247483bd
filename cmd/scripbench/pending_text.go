package main

import (
	"fmt"
	"io"
)

// pendingText is the table for people.
func pendingText(w io.Writer, r Pending) error {
	fmt.Fprintf(w, "pending: %s reminders of %s campaigns that are not due yet\n", thousands(float64(r.N)), thousands(float64(r.Campaigns)))
	fmt.Fprintf(w, "durability: %s\n", r.Durability.label())
	if r.Scrip != nil {
		fmt.Fprintln(w, r.Scrip.Settings)
	}
	for i, p := range r.Peers {
		if i == 0 || p.Settings != r.Peers[i-1].Settings {
			fmt.Fprintf(w, "%s: %s\n", p.Name, p.Settings)
		}
	}
	fmt.Fprintf(w, "load average before: %s\n", r.Load)
	if s := r.Scrip; s != nil {
		fmt.Fprintln(w, "memory is what the server's process holds itself after garbage collection; the file cache is not in it")
		fmt.Fprintln(w)
		memory := func(bytes int64) string {
			return fmt.Sprintf("%s (%.1f bytes a reminder)", mebibytes(bytes), bytesEach(bytes-s.Empty, r.N))
		}
		part := func(bytes int64) string { return fmt.Sprintf("%.1f", bytesEach(bytes, r.N)) }
		rows := [][]string{
			{"subscribed and known to the schedulers", thousands(s.FillRate) + " a second"},
			{"memory, empty", mebibytes(s.Empty)},
			{"memory, all pending", memory(s.Filled)},
			{"memory, started again", memory(s.Again)},
			{"heap, bytes a reminder (sample)", fmt.Sprintf("scheduler %s, lane %s, all else %s", part(s.Heap.Scheduler), part(s.Heap.Lane), part(s.Heap.Other))},
			{"on disk, bytes a reminder", fmt.Sprintf("events %s, all else %s", part(s.Events), part(s.Disk))},
			{"covered by the lanes' snapshots", fmt.Sprintf("%.0f s after the last", s.Covered)},
			{"clean stop", fmt.Sprintf("%.1f s", s.Stop)},
			{"after it ready; all known", fmt.Sprintf("%.1f s; %.1f s", s.ReadyAfterStop, s.KnownAfterStop)},
			{"after kill -9 ready; all known", fmt.Sprintf("%.1f s; %.1f s, with %s subscriptions since the start", s.ReadyAfterKill, s.KnownAfterKill, thousands(float64(s.Since)))},
		}
		if err := columns(w, rows); err != nil {
			return err
		}
	}
	if len(r.Peers) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	rows := [][]string{{"SYSTEM", "REMINDERS", "BYTES EACH", "TIMES SCRIP'S", "RESTART", "EXTRAPOLATED TO ALL", "RECIPE"}}
	if s := r.Scrip; s != nil {
		rows = append(rows, []string{subject, thousands(float64(r.N)), fmt.Sprintf("%.1f", bytesEach(s.Filled-s.Empty, r.N)), "-", fmt.Sprintf("%.1f s", s.KnownAfterStop), "-", "above"})
	}
	for _, p := range r.Peers {
		bytes, ratio, restart, all := fmt.Sprintf("%.1f", bytesEach(p.Bytes, p.N)), "-", "-", "-"
		if p.Disk {
			bytes += " on disk"
		}
		if p.Ratio > 0 {
			ratio = ratioText(p.Ratio)
		}
		if p.FromLog > 0 {
			times := float64(r.N) / float64(p.N)
			restart = fmt.Sprintf("%.1f s, from a snapshot %.1f s", p.FromLog, p.FromSnapshot)
			all = fmt.Sprintf("%.0f s, from a snapshot %.0f s", p.FromLog*times, p.FromSnapshot*times)
		}
		rows = append(rows, []string{p.Name, thousands(float64(p.N)), bytes, ratio, restart, all, p.Recipe})
	}
	return columns(w, rows)
}
