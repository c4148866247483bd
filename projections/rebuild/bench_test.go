package rebuild

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// size is how many coupons the log of the benchmarks has; SCRIP_BENCH_COUPONS changes it.
func size(b *testing.B) int {
	n, err := strconv.Atoi(os.Getenv("SCRIP_BENCH_COUPONS"))
	if err != nil {
		return 200_000
	}
	return n
}

// claims writes a log of claims, half of them to each lane, in messages of 500.
func (r *rig) claims(b *testing.B, coupons int) {
	b.Helper()
	const perMessage = 500
	at := wire.At(r.Clock)
	for lane := range lanes {
		campaign := fmt.Sprintf("c%d", lane)
		r.Write(lane, projtest.Created(campaign, lane, `,"expires_at":"2027-01-01T00:00:00Z"`))
		var payload []byte
		for n := 1; n <= coupons/lanes; n++ {
			payload = append(projtest.Claimed(campaign, uint32(n), at).AppendJSON(payload), '\n')
			if n%perMessage == 0 || n == coupons/lanes {
				header := r.Header(lane)
				r.Covered[lane]++
				if _, err := r.JS.PublishMsgAsync(&nats.Msg{Subject: topology.Evt(lane), Header: header, Data: bytes.Clone(payload)}); err != nil {
					b.Fatal(err)
				}
				payload = payload[:0]
			}
		}
	}
	<-r.JS.PublishAsyncComplete()
}

// A log of claims, loaded, indexed, compared with empty tables and exchanged.
func BenchmarkRebuild(b *testing.B) {
	r := newRig(b)
	n := size(b)
	r.claims(b, n)
	for b.Loop() {
		s := r.open(Options{Limits: fill.Limits{Lines: 20_000}})
		got, err := s.Rebuild(b.Context())
		s.Close()
		if err != nil || got.Events < uint64(n) {
			b.Fatalf("%+v: %v", got, err)
		}
		b.ReportMetric(float64(got.Events)/got.Took.Seconds(), "events/s")
		b.ReportMetric(got.Loaded.Seconds(), "s-loading")
		b.ReportMetric(got.Indexed.Seconds(), "s-indexing")
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.Sys)/(1<<20), "MiB")
	}
}
