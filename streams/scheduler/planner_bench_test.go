package scheduler

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// BenchmarkCatchUp: how fast a planner works off reminders that are overdue at many instants of many campaigns, beside a lane
// that answers at once. The cost of an instant must not depend on how many are overdue.
func BenchmarkCatchUp(b *testing.B) {
	for _, c := range []struct{ campaigns, instants int }{{1, 10_000}, {500, 600}, {3_000, 300}, {500, 3_600}} {
		b.Run(fmt.Sprintf("campaigns=%d/instants=%d", c.campaigns, c.instants), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				d := newPlannerRig(b)
				for i := range c.campaigns {
					name := fmt.Sprintf("c%05d", i)
					d.campaign(name, "", start, 0)
					for j := range c.instants {
						d.fold(wire.Event{Type: wire.ReminderSet, Campaign: name, R: uint64(j + 1), CustomerID: "x", Kind: wire.KindOpens, Before: time.Duration(c.instants-j) * time.Second})
					}
				}
				before := heapInUse()
				b.StartTimer()
				began := time.Now()
				cmds := d.p.requests(start)
				first := time.Since(began)
				b.StopTimer()
				grown := float64(heapInUse()) - float64(before)
				b.StartTimer()
				began = time.Now()
				fired := 0
				for len(cmds) > 0 && time.Since(began) < time.Minute {
					for i := range cmds {
						fired += d.answer(&cmds[i])
					}
					cmds = d.p.requests(start)
				}
				b.ReportMetric(float64(fired)/time.Since(began).Seconds(), "instants/s")
				b.ReportMetric(float64(first.Milliseconds()), "ms/first")
				b.ReportMetric(grown/float64(c.campaigns*c.instants), "plannerB/instant")
				b.ReportMetric(0, "ns/op")
				d.p.timers.Close()
				runtime.KeepAlive(d)
			}
		})
	}
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}
