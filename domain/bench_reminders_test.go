package domain

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// BenchmarkRemindDue fires the reminders of one minute in a campaign whose coupons fall in every minute of a month.
func BenchmarkRemindDue(b *testing.B) {
	const minutes = 30 * 24 * 60
	due := func(i int) wire.Instant { return start + wire.Instant(i+1)*minute }
	l, fired := (*Lane)(nil), minutes
	var evs []wire.Event
	var cpu cpuClock
	for b.Loop() {
		if fired == minutes {
			b.StopTimer()
			cpu.stop()
			l, fired = benchLane(1, benchSettings(minutes), minutes), 0
			for i := range minutes {
				c := l.campaigns["c0"]
				extend := wire.Command{Type: wire.Extend, ID: fmt.Sprint("e", i), Code: l.codeOf(c, uint32(i)+1), ExpiresAt: due(i) + hour}
				evs, _ = l.Decide(&extend, start, evs[:0])
				remind := wire.Command{Type: wire.Remind, ID: fmt.Sprint("r", i), Campaign: "c0", CustomerID: fmt.Sprint("customer-", i), Kind: wire.KindExpires, Before: time.Hour}
				evs, _ = l.Decide(&remind, start, evs[:0])
			}
			cpu.start()
			b.StartTimer()
		}
		var out wire.Outcome
		cmd := wire.Command{Type: wire.RemindDue, ID: "due", Campaign: "c0", Kind: wire.KindExpires, DueAt: due(fired), ThroughR: 1 << 40}
		if evs, out = l.Decide(&cmd, due(fired), evs[:0]); out.Count != 1 {
			b.Fatal(outcomeText(out))
		}
		fired++
	}
	cpu.stop()
	cpu.report(b, 1)
}

// BenchmarkReminderBytes sets b.N reminders in a lane, of one campaign's opening or of coupons of which 300 fall in the same
// minute, and prints what each costs on the heap after a collection, coupons left out: the pending reminder and the
// accepted command that is remembered. Then how long the lane stops for a snapshot and for the first write after
// it, what writing and reading the snapshot takes (coupons included), and firing in chunks of up to 10,000.
// Run with -benchtime 15000000x for a lane of the budget.
func BenchmarkReminderBytes(b *testing.B) {
	for _, kind := range []string{wire.KindOpens, wire.KindExpires} {
		b.Run(kind, func(b *testing.B) {
			l := testLane()
			s := wire.DefaultSettings(wire.MaxCodes)
			s.OpensAt = start + day
			var evs []wire.Event
			decide := func(cmd wire.Command, at wire.Instant, status string) {
				var out wire.Outcome
				if evs, out = l.Decide(&cmd, at, evs[:0]); out.Status != status {
					b.Fatal(outcomeText(out))
				}
			}
			if kind == wire.KindExpires {
				s.OpensAt, s.ValidFor = 0, 365*24*time.Hour
			}
			decide(wire.Command{Type: wire.CreateCampaign, ID: "create", Campaign: "s", Patch: wire.PatchOf(s)}, start, wire.StatusCreated)
			at := func(i int) wire.Instant { return start + wire.Instant(i/300)*minute } // up to 157 million
			if kind == wire.KindExpires {
				for i := range b.N {
					decide(wire.Command{Type: wire.Claim, ID: fmt.Sprint("claim-", i), Campaign: "s", CustomerID: fmt.Sprint("customer-", i)}, at(i), wire.StatusClaimed)
				}
			} else {
				at = func(i int) wire.Instant { return start }
			}
			c := l.campaigns["s"]
			now := max(start, at(b.N-1))
			before := heapBytes()
			var set, fire cpuClock
			set.start()
			for i := range b.N {
				decide(wire.Command{Type: wire.Remind, ID: fmt.Sprint("remind-", i), Campaign: "s", CustomerID: fmt.Sprint("customer-", i), Kind: kind, Before: time.Hour}, now, wire.StatusReminderSet)
			}
			set.stop()
			each := float64(b.N)
			b.ReportMetric(float64(heapBytes()-before)/each, "heap-B/reminder")
			b.ReportMetric(float64(set.sum.Nanoseconds())/each, "set-cpu-ns")
			began := time.Now()
			frozen := l.Freeze()
			b.ReportMetric(float64(time.Since(began).Microseconds()), "freeze-µs")
			began = time.Now()
			decide(wire.Command{Type: wire.Unremind, ID: "un", Campaign: "s", CustomerID: "customer-0", Kind: kind, Before: time.Hour}, now, wire.StatusReminderCancelled)
			b.ReportMetric(float64(time.Since(began).Microseconds()), "first-write-µs")
			var buf bytes.Buffer
			began = time.Now()
			if _, err := frozen.WriteTo(&buf); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(time.Since(began).Nanoseconds())/each, "write-ns")
			b.ReportMetric(float64(buf.Len())/each, "snapshot-B")
			var reading cpuClock
			reading.start()
			read, err := ReadLane(LaneOptions{Lane: 0, Lanes: 1, Key: testKey}, &buf)
			if err != nil || read.reminders != b.N {
				b.Fatal(err, read.reminders)
			}
			reading.stop()
			b.ReportMetric(float64(reading.sum.Nanoseconds())/each, "read-cpu-ns")
			read = nil
			runtime.GC()
			longest := time.Duration(0)
			fire.start()
			for next := c.reminders().Next(c.anchors()); next != wire.Never; next = c.reminders().Next(c.anchors()) {
				began = time.Now()
				part := c.reminders().Chunk(kind, next, 0, 10_000, c.anchors())
				decide(wire.Command{Type: wire.RemindDue, ID: "due", Campaign: "s", Kind: kind, DueAt: next, ThroughR: part.LastR}, next, wire.StatusReminderSet)
				longest = max(longest, time.Since(began))
				c = l.campaigns["s"]
			}
			fire.stop()
			b.ReportMetric(float64(fire.sum.Nanoseconds())/each, "fire-cpu-ns")
			b.ReportMetric(float64(longest.Microseconds()), "longest-fire-µs")
			runtime.KeepAlive(l)
		})
	}
}
