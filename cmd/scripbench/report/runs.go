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

// Run is what every run of a system has. Rate is how many a second were done.
type Run struct {
	Done int     `json:"done"`
	Rate float64 `json:"rate"`
	Spent
}

func (r Run) basic() Run { return r }

type run interface{ basic() Run }

// System is the result of one recipe.
type System[R run] struct {
	Name   string `json:"name"`
	Recipe string `json:"recipe"`
	// InFlight is how many operations were in flight at most; of a Table.
	InFlight int `json:"in_flight,omitempty"`
	Runs     []R `json:"runs"`
	// Median of each number over the runs.
	Median R `json:"median"`
	// Ratio is how many times as fast scrip was, by the medians; 0 = not known.
	Ratio float64 `json:"scrip_is_times,omitempty"`
}

// Systems are the results of one job.
type Systems[R run] []System[R]

// Compare takes medians and, if rates can be compared, ratios.
func Compare[R run](systems []System[R], rates bool) {
	ours := 0.0
	for i := range systems {
		s := &systems[i]
		s.Median = Median(s.Runs)
		if s.Name == Subject && rates {
			ours = s.Median.basic().Rate
		}
	}
	for i := range systems {
		s := &systems[i]
		if rate := s.Median.basic().Rate; s.Name != Subject && rate > 0 {
			s.Ratio = ours / rate
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
