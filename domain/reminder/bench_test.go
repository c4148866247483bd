package reminder

import (
	"fmt"
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
			var cpu cpuClock
			before := heapBytes()
			cpu.start()
			for i := range b.N {
				s.Set(uint64(i+1), kind.kind, time.Hour, uint32(i+1), kind.own(i))
			}
			cpu.stop()
			each := float64(b.N)
			b.ReportMetric(float64(heapBytes()-before)/each, "heap-B/reminder")
			cpu.report(b, 1)
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

// BenchmarkSubscriptions does one thing to a million reminders, 300 of which fall together and whose numbers lie apart, as
// where coupons are claimed in all minutes of a day at once.
func BenchmarkSubscriptions(b *testing.B) {
	const (
		many   = 1_000_000
		groups = many / 300
	)
	due := func(i int) wire.Instant { return start + wire.Instant(i%groups)*minute }
	set := func(s *Subscriptions) {
		for i := range many {
			s.Set(uint64(i+1), wire.KindExpires, time.Hour, uint32(i+1), due(i)+hour)
		}
	}
	for _, what := range []struct {
		name string
		do   func(s *Subscriptions) int
	}{
		{"cancel", func(s *Subscriptions) int {
			for i := range many {
				s.Cancel(uint64(i*7919%many + 1))
			}
			return many
		}},
		{"move", func(s *Subscriptions) int {
			for i := range many {
				s.Move(uint32(i+1), start+day*365)
			}
			return many
		}},
		{"fire", func(s *Subscriptions) int {
			var rs []uint64
			for i := range groups {
				rs = s.Fire(wire.DueSet{Kind: wire.KindExpires, DueAt: due(i), ThroughR: MaxReminder}, Anchors{}, rs[:0])
			}
			return many
		}},
		{"next", func(s *Subscriptions) int {
			for i := range many {
				s.NextAfter(Anchors{}, due(i*7919))
			}
			return many
		}},
		{"count an hour", func(s *Subscriptions) int {
			for i := range 1000 {
				s.Count(Anchors{}, due(i), due(i)+hour)
			}
			return 1000
		}},
		{"freeze and set", func(s *Subscriptions) int {
			for i := range 1000 {
				s.Freeze()
				s.Set(many+uint64(i)+1, wire.KindExpires, time.Hour, 1, start)
			}
			return 1000
		}},
	} {
		b.Run(what.name, func(b *testing.B) {
			var cpu cpuClock
			n := 0
			for b.Loop() {
				b.StopTimer()
				var s Subscriptions
				set(&s)
				runtime.GC()
				b.StartTimer()
				cpu.start()
				n = what.do(&s)
				cpu.stop()
			}
			cpu.report(b, n)
		})
	}
	b.Run("restore", func(b *testing.B) {
		var cpu cpuClock
		for b.Loop() {
			var s Subscriptions
			cpu.start()
			ok := s.Restore(func(yield func(Subscription) bool) {
				for i := range many {
					yield(Subscription{uint64(i + 1), wire.KindExpires, time.Hour, uint32(i + 1), due(i) + hour})
				}
			})
			cpu.stop()
			if !ok || s.Len() != many {
				b.Fatal(fmt.Sprint(s.Len()))
			}
		}
		cpu.report(b, many)
	})
}
