package main

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// Latencies are kept in microseconds, from one to two minutes, to three digits.
	leastLatency, mostLatency = 1, 120_000_000
	latencyDigits             = 3
	// latencyShards have a lock each, so that callers rarely wait for one another.
	latencyShards = 16
)

// latencies records from many goroutines.
type latencies struct{ shards [latencyShards]latencyShard }

type latencyShard struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

func newLatencies() *latencies {
	l := &latencies{}
	for i := range l.shards {
		l.shards[i].h = hdrhistogram.New(leastLatency, mostLatency, latencyDigits)
	}
	return l
}

// record adds one latency. who spreads callers over the shards.
func (l *latencies) record(who int, d time.Duration) { l.recordMany(who, d, 1) }

func (l *latencies) recordMany(who int, d time.Duration, times int) {
	us := min(max(d.Microseconds(), leastLatency), mostLatency)
	s := &l.shards[who%latencyShards]
	s.mu.Lock()
	_ = s.h.RecordValues(us, int64(times)) // fails only outside of the bounds
	s.mu.Unlock()
}

// Latency is a distribution, in microseconds.
type Latency struct {
	P50  int64 `json:"p50_us"`
	P99  int64 `json:"p99_us"`
	P999 int64 `json:"p999_us"`
	Max  int64 `json:"max_us"`
}

// result merges the shards. It is called after the last record.
func (l *latencies) result() Latency {
	all := hdrhistogram.New(leastLatency, mostLatency, latencyDigits)
	for i := range l.shards {
		all.Merge(l.shards[i].h)
	}
	return Latency{all.ValueAtQuantile(50), all.ValueAtQuantile(99), all.ValueAtQuantile(99.9), all.Max()}
}
