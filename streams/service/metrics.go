package service

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// metrics are the service's figures for Prometheus.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	lanes    *command.Lanes

	refusedRequests, refusedDiscovery prometheus.Counter // reply subjects that are no inbox

	endpoints []figures // one each of endpoints
}

func newMetrics(lanes *command.Lanes) *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "scrip_requests_total", Help: "Requests answered, by endpoint and result (done, refused, failed).",
		}, []string{"endpoint", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "scrip_request_seconds", Help: "Time from a request's arrival to its reply.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14), // 0.5 ms to 4 s
		}, []string{"endpoint"}),
		lanes: lanes,

		refusedRequests:  repliesRefused("request"),
		refusedDiscovery: repliesRefused("discovery"),

		endpoints: make([]figures, len(endpoints)),
	}
}

// result of a request, as a metrics label.
type result uint8

const (
	done result = iota
	refused
	failed
	results
)

var resultNames = [results]string{"done", "refused", "failed"}

// figures are one endpoint's metrics, looked up by label at its first reply: a look-up per reply would cost more than the reply.
type figures struct {
	once    sync.Once
	count   [results]prometheus.Counter
	seconds prometheus.Observer
}

// observe counts a reply sent on endpoint number e of endpoints.
func (m *metrics) observe(e int, r result, took time.Duration) {
	f := &m.endpoints[e]
	f.once.Do(func() {
		name := endpoints[e].name
		for r := range results {
			f.count[r] = m.requests.WithLabelValues(name, resultNames[r])
		}
		f.seconds = m.seconds.WithLabelValues(name)
	})
	f.count[r].Inc()
	f.seconds.Observe(took.Seconds())
}

// laneCounters are the counters of command.Lanes as Prometheus metrics.
var laneCounters = []struct {
	desc *prometheus.Desc
	of   func(command.Counters) uint64
}{
	{counter("lines", "Command lines added."), func(c command.Counters) uint64 { return c.Lines }},
	{counter("messages", "Command messages sent, retries included."), func(c command.Counters) uint64 { return c.Messages }},
	{counter("retries", "Lines sent again under the same id."), func(c command.Counters) uint64 { return c.Retries }},
	{counter("not_durable", "Lines refused because the log could not store them."), func(c command.Counters) uint64 { return c.NotDurable }},
	{counter("failed", "Lines without an outcome in time."), func(c command.Counters) uint64 { return c.Failed }},
	{counter("late", "Outcome messages that arrived after their lines were answered or given up."), func(c command.Counters) uint64 { return c.Late }},
	{counter("mismatched", "Outcome messages that do not fit their command message; dropped."), func(c command.Counters) uint64 { return c.Mismatched }},
}

func counter(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("scrip_command_"+name+"_total", help, nil, nil)
}

var droppedRequests = prometheus.NewDesc("scrip_requests_dropped_total",
	"Requests dropped because more waited than the endpoint's share of memory holds; their clients get no reply and retry.", []string{"endpoint"}, nil)

// Describe makes a Service a prometheus.Collector.
func (s *Service) Describe(to chan<- *prometheus.Desc) {
	s.metrics.requests.Describe(to)
	s.metrics.seconds.Describe(to)
	s.metrics.refusedRequests.Describe(to)
	to <- droppedRequests
	s.metrics.refusedDiscovery.Describe(to)
	for _, c := range laneCounters {
		to <- c.desc
	}
}

// Collect makes a Service a prometheus.Collector.
func (s *Service) Collect(to chan<- prometheus.Metric) {
	s.metrics.requests.Collect(to)
	s.metrics.seconds.Collect(to)
	s.metrics.refusedRequests.Collect(to)
	s.mu.Lock()
	in := s.in
	s.mu.Unlock()
	if in != nil {
		for i := range endpoints {
			to <- prometheus.MustNewConstMetric(droppedRequests, prometheus.CounterValue, float64(in.dropped(i)), endpoints[i].name)
		}
	}
	s.metrics.refusedDiscovery.Collect(to)
	now := s.metrics.lanes.Counters()
	for _, c := range laneCounters {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, float64(c.of(now)))
	}
}

// repliesRefused is the counter of one place of this package.
func repliesRefused(place string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: topology.RepliesRefused, Help: topology.RepliesRefusedHelp, ConstLabels: prometheus.Labels{"place": place}})
}
