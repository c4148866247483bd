package timers

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// manyReminders makes timers of that many pending reminders in so many campaigns. Of kind expires, a coupon's reminder
// shares its instant with some three hundred others.
func manyReminders(b *testing.B, reminders, campaigns int, kind string) *Timers {
	b.Helper()
	bk := New("")
	names := make([]string, campaigns)
	for i := range names {
		names[i] = fmt.Sprintf("campaign-%06d", i)
		fold(b, bk, wire.Event{Type: wire.CampaignCreated, Campaign: names[i], Settings: wire.Settings{OpensAt: start}})
	}
	claim := wire.Event{Type: wire.CouponClaimed}
	set := wire.Event{Type: wire.ReminderSet, Kind: kind}
	for i := range reminders {
		r := i/campaigns + 1
		set.Campaign, set.R, set.CustomerID = names[i%campaigns], uint64(r), "customer-"+strconv.Itoa(10_000_000+i)
		set.Before = time.Duration(1+i%3) * time.Hour
		set.DueAt = start - wire.Instant(set.Before/time.Microsecond)
		if kind == wire.KindExpires {
			claim.Campaign, claim.N, claim.ExpiresAt = set.Campaign, uint32(2*r), start+seconds(60*(r/1000+1))
			fold(b, bk, claim)
			set.N, set.DueAt = claim.N, claim.ExpiresAt-wire.Instant(set.Before/time.Microsecond)
		}
		fold(b, bk, set)
	}
	return bk
}

// BenchmarkTimersBytes: what a pending reminder takes in memory; customers lie on disk. PENDING changes how many there are.
func BenchmarkTimersBytes(b *testing.B) {
	for _, c := range []struct {
		kind      string
		campaigns int
		pending   int
	}{
		{wire.KindOpens, 1, 1_000_000}, {wire.KindExpires, 1, 1_000_000},
		{wire.KindOpens, 10_000, 1_000_000}, {wire.KindExpires, 10_000, 1_000_000},
		{wire.KindOpens, 1, 10_000_000}, {wire.KindExpires, 1, 10_000_000},
	} {
		if s := os.Getenv("PENDING"); s != "" {
			c.pending, _ = strconv.Atoi(s)
		}
		b.Run(fmt.Sprintf("%s/campaigns=%d/pending=%d", c.kind, c.campaigns, c.pending), func(b *testing.B) {
			for b.Loop() {
				heap := heapInUse()
				started := time.Now()
				bk := manyReminders(b, c.pending, c.campaigns, c.kind)
				took := time.Since(started)
				b.ReportMetric((heapInUse()-heap)/float64(c.pending), "heapB/reminder")
				disk := int64(0)
				for _, s := range bk.customers.open {
					disk += s.end
				}
				b.ReportMetric(float64(disk)/float64(c.pending), "diskB/reminder")
				b.ReportMetric(float64(took.Nanoseconds())/float64(c.pending), "ns/reminder")
				b.ReportMetric(0, "ns/op")
				bk.Close()
			}
		})
	}
}

func heapInUse() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse)
}
