package client_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
)

// BenchmarkClaimRedeem measures customers who claim and redeem at once, fsynced, by 4,096 callers that wait: SDK, NATS,
// service and lanes in this process. What counts is the CPU time of a pair, all of them together. Profile it with
// -cpuprofile.
func BenchmarkClaimRedeem(b *testing.B) {
	url, stop, err := serve(natsd.SyncAlways)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := stop(); err != nil {
			b.Error(err)
		}
	})
	c, err := client.Connect(url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	if out, err := c.CreateCampaign(b.Context(), "pairs", wire.DefaultSettings(uint32(b.N))); err != nil || out.Refused() {
		b.Fatal(out, err)
	}
	const callers = 4096
	var next atomic.Int64
	var wg sync.WaitGroup
	cpu := cpuTime()
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				n := strconv.FormatInt(i, 10)
				claimed, err := c.Claim(b.Context(), "pairs", "customer-"+n)
				if err != nil || claimed.Refused() {
					b.Error(claimed, err)
					return
				}
				redeemed, err := c.Redeem(b.Context(), claimed.Code, "order-"+n)
				if err != nil || redeemed.Refused() {
					b.Error(redeemed, err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/float64(b.N)/1e3, "cpu-µs/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "op/s")
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
