package reminder

import (
	"runtime"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// BenchmarkSubscriptionBytes sets b.N reminders of one campaign and prints what each costs on the heap after a collection.
// Run with -benchtime 15000000x for a lane of the budget.
func BenchmarkSubscriptionBytes(b *testing.B) {
	own := func(each int) func(i int) wire.Instant {
		return func(i int) wire.Instant { return start + wire.Instant(i/each)*second }
	}
	for _, kind := range []struct {
		name, kind string
		own        func(i int) wire.Instant
	}{
		{"opens", wire.KindOpens, func(int) wire.Instant { return 0 }},
		{"expires with the campaign", wire.KindExpires, func(int) wire.Instant { return 0 }},
		{"300 fall together", wire.KindExpires, own(300)},
		{"each falls alone", wire.KindExpires, own(1)},
	} {
		b.Run(kind.name, func(b *testing.B) {
			var s Subscriptions
			before := heapBytes()
			for i := range b.N {
				s.Set(uint64(i+1), kind.kind, time.Hour, uint32(i+1), kind.own(i))
			}
			each := float64(b.N)
			b.ReportMetric(float64(heapBytes()-before)/each, "heap-B/reminder")
			began := time.Now()
			s.Freeze()
			s.Cancel(1)
			b.ReportMetric(float64(time.Since(began).Microseconds()), "first-write-µs")
			runtime.KeepAlive(s)
		})
	}
	b.Run("campaign with one", func(b *testing.B) {
		list := make([]Subscriptions, b.N)
		before := heapBytes()
		for i := range list {
			list[i].Set(1, wire.KindExpires, time.Hour, 1, start)
		}
		b.ReportMetric(float64(heapBytes()-before)/float64(b.N), "heap-B/reminder")
		runtime.KeepAlive(list)
	})
}
