package tables

import (
	"fmt"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Reading, folding and writing claims, one backend. The cluster of tests runs without fsync; the projector commits with
// synchronous_commit=off, which comes to the same.
func BenchmarkClaims(b *testing.B) {
	for _, size := range []int{1, 100, 20_000} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			pool := open(b)
			r := new(reader)
			commit(b, pool, r.batch(script(`{"type":"campaign.created","campaign":"hot","at":"@1","number":1,"codes":1000000000,"expires_at":"2027-01-01T00:00:00Z","max_redemptions":1}`)))
			n := 0
			for b.Loop() {
				b.StopTimer()
				var lines []byte
				for range size {
					n++
					e := wire.Event{Type: wire.CouponClaimed, Campaign: "hot", At: minute(2), ID: fmt.Sprintf("0193a7b2-%08d", n), N: uint32(n),
						Code: fmt.Sprintf("%04X-%04X-%04X", n*7919%65536, n%65536, n*31%65536), CustomerID: fmt.Sprintf("customer-%d", n)}
					lines = append(e.AppendJSON(lines), '\n')
				}
				b.StartTimer()
				commit(b, pool, r.batch([]message{{at: minute(2), lines: lines}}))
			}
			b.ReportMetric(float64(size)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
