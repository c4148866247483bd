package report

import (
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Spent is the CPU time of a run, in seconds, and the peak of the server's memory, in bytes.
type Spent struct {
	// Watched is for how many seconds all of this was measured.
	Watched float64 `json:"watched_s"`
	// ServerCPU is that of the server's processes, ClientCPU that of scripbench with workers and client libraries,
	// OthersCPU that of everything else on the machine, the kernel's own threads included.
	ServerCPU float64 `json:"server_cpu_s"`
	// ProcessCPU is that of the server's own process, without its database, until its work in the background was done, too.
	ProcessCPU float64 `json:"process_cpu_s,omitempty"`
	ClientCPU  float64 `json:"client_cpu_s"`
	OthersCPU  float64 `json:"others_cpu_s"`
	// Memory is the peak of the server's processes, without file cache.
	Memory int64 `json:"memory_bytes"`
}

// Run is one run of one system.
type Run struct {
	Done int `json:"done"`
	// Rate is how many a second were done.
	Rate float64 `json:"rate"`
	// Seconds until all were done and First until the first was; of what is due at an instant, from there.
	Seconds float64 `json:"seconds"`
	First   float64 `json:"first_s,omitempty"`
	// Latency of an operation from when it was sent; of a reminder from the instant until it was at the worker.
	Latency Latency `json:"latency"`
	// InFlight is how many operations were in flight at most.
	InFlight int `json:"in_flight,omitempty"`
	// Refused of the done operations were refused as sold out.
	Refused int `json:"refused,omitempty"`
	Spent
	// Stream has what scrip put on its reminder streams, nil for all else.
	Stream *Stream `json:"stream,omitempty"`
}

// Advance sets that some more, or the first, are done now.
func (r *Run) Advance(due time.Time) {
	r.Seconds = time.Since(due).Seconds()
	if r.First == 0 {
		r.First = r.Seconds
	}
}

// Stream is what scrip put on its reminder streams: the last line that many seconds after the instant. Bytes are those of
// whole messages.
type Stream struct {
	Last     float64 `json:"last_s"`
	Messages int     `json:"messages"`
	Lines    int     `json:"lines"`
	Bytes    int64   `json:"bytes"`
}

// System is the result of one recipe.
type System struct {
	Name   string `json:"name"`
	Recipe string `json:"recipe"`
	Runs   []Run  `json:"runs"`
	// Median of each number over the runs.
	Median Run `json:"median"`
	// Ratio is how many times as fast scrip was, by the medians; 0 = not known.
	Ratio float64 `json:"scrip_is_times,omitempty"`
}

// Compare takes medians and ratios.
func Compare(systems []System) {
	ours := 0.0
	for i := range systems {
		s := &systems[i]
		s.Median = Median(s.Runs)
		if s.Name == Subject {
			ours = s.Median.Rate
		}
	}
	for i := range systems {
		if s := &systems[i]; s.Name != Subject && s.Median.Rate > 0 {
			s.Ratio = ours / s.Median.Rate
		}
	}
}

// Latency is a distribution, in microseconds.
type Latency struct {
	P50  int64 `json:"p50_us"`
	P99  int64 `json:"p99_us"`
	P999 int64 `json:"p999_us"`
	Max  int64 `json:"max_us"`
}

const (
	// Latencies are kept in microseconds, from one to two minutes, to three digits.
	leastLatency, mostLatency = 1, 120_000_000
	latencyDigits             = 3
)

// Latencies records from many goroutines.
type Latencies struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

// NewLatencies is empty.
func NewLatencies() *Latencies {
	return &Latencies{h: hdrhistogram.New(leastLatency, mostLatency, latencyDigits)}
}

// Record adds the same latency some times.
func (l *Latencies) Record(d time.Duration, times int) {
	us := min(max(d.Microseconds(), leastLatency), mostLatency)
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.h.RecordValues(us, int64(times)) // fails only outside of the bounds
}

// Result is called after the last Record.
func (l *Latencies) Result() Latency {
	return Latency{l.h.ValueAtQuantile(50), l.h.ValueAtQuantile(99), l.h.ValueAtQuantile(99.9), l.h.Max()}
}

// Median takes the median of every number in a struct by itself, also in structs within it. For an even number of runs it
// is the mean of the two in the middle. There must be a run.
func Median[T any](runs []T) (m T) {
	values := make([]reflect.Value, len(runs))
	for i := range runs {
		values[i] = reflect.ValueOf(&runs[i]).Elem()
	}
	medianOf(reflect.ValueOf(&m).Elem(), values)
	return m
}

func medianOf(into reflect.Value, runs []reflect.Value) {
	switch into.Kind() {
	case reflect.Struct:
		for f := range into.NumField() {
			medianOf(into.Field(f), Each(runs, func(v reflect.Value) reflect.Value { return v.Field(f) }))
		}
	case reflect.Pointer:
		if !runs[0].IsNil() {
			into.Set(reflect.New(into.Type().Elem()))
			medianOf(into.Elem(), Each(runs, reflect.Value.Elem))
		}
	case reflect.Int, reflect.Int64:
		into.SetInt(middle(Each(runs, reflect.Value.Int)))
	case reflect.Float64:
		into.SetFloat(middle(Each(runs, reflect.Value.Float)))
	}
}

func middle[N int64 | float64](all []N) N {
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// Each applies a function to each of a list.
func Each[A, B any](list []A, of func(A) B) (all []B) {
	for _, a := range list {
		all = append(all, of(a))
	}
	return all
}
