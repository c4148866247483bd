package domain

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// heapBytes is what is on the heap after a collection.
func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkStateBytes claims b.N coupons of one campaign and prints what each costs on the heap after a collection, then
// writes and reads a snapshot of it. Run with -benchtime 10000000x for the size in the budget.
func BenchmarkStateBytes(b *testing.B) {
	l := testLane()
	before := heapBytes()
	var evs []wire.Event
	evs, _ = l.Decide(&wire.Command{Type: wire.CreateCampaign, ID: "create", Campaign: "s", Patch: wire.PatchOf(wire.DefaultSettings(wire.MaxCodes))}, start, evs)
	longest := time.Duration(0)
	b.ResetTimer()
	for i := range b.N {
		cmd := wire.Command{Type: wire.Claim, ID: fmt.Sprint("claim-", i), Campaign: "s", CustomerID: fmt.Sprint("customer-", i)}
		began := time.Now()
		evs, _ = l.Decide(&cmd, start, evs[:0])
		longest = max(longest, time.Since(began))
	}
	b.StopTimer()
	claims := float64(b.N)
	b.ReportMetric(float64(heapBytes()-before)/claims, "heap-B/claim")
	b.ReportMetric(float64(longest.Microseconds()), "longest-µs")
	var buf bytes.Buffer
	began := time.Now()
	frozen := l.Freeze()
	b.ReportMetric(float64(time.Since(began).Microseconds()), "freeze-µs")
	if _, err := frozen.WriteTo(&buf); err != nil {
		b.Fatal(err)
	}
	began = time.Now()
	if _, err := ReadLane(LaneOptions{Lane: 0, Lanes: 1, Key: testKey}, &buf); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(began).Nanoseconds())/claims, "read-ns/claim")
	runtime.KeepAlive(l)
}
