package domain

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkRemindDue fires the reminders of one minute in a campaign whose coupons fall in every minute of a month.
func BenchmarkRemindDue(b *testing.B) {
	const minutes = 30 * 24 * 60
	due := func(i int) Instant { return start + Instant(i+1)*minute }
	l, fired := (*Lane)(nil), minutes
	var evs []Event
	var cpu cpuClock
	for b.Loop() {
		if fired == minutes {
			b.StopTimer()
			cpu.stop()
			l, fired = benchLane(1, benchSettings(minutes), minutes), 0
			for i := range minutes {
				c := l.campaigns["c0"]
				extend := Command{Type: Extend, ID: fmt.Sprint("e", i), Code: l.codeOf(c, uint32(i)+1), ExpiresAt: due(i) + hour}
				evs, _ = l.Decide(&extend, start, evs[:0])
				remind := Command{Type: Remind, ID: fmt.Sprint("r", i), Campaign: "c0", CustomerID: fmt.Sprint("customer-", i), Kind: KindExpires, Before: time.Hour}
				evs, _ = l.Decide(&remind, start, evs[:0])
			}
			cpu.start()
			b.StartTimer()
		}
		var out Outcome
		cmd := Command{Type: RemindDue, ID: "due", Campaign: "c0", Kind: KindExpires, DueAt: due(fired), ThroughR: 1 << 40}
		if evs, out = l.Decide(&cmd, due(fired), evs[:0]); out.Count != 1 {
			b.Fatal(outcomeText(out))
		}
		fired++
	}
	cpu.stop()
	cpu.report(b, 1)
}
