package server

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
)

// limits are those of this server's listeners, for `scrip status` and as metrics.
type limits struct {
	mu sync.Mutex
	of []func() []status.Limit
}

// add adds the limits of a listener.
func (l *limits) add(of func() []status.Limit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of = append(l.of, of)
}

func (l *limits) all() (all []status.Limit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.of {
		all = append(all, of()...)
	}
	return all
}

// limitDescs are the metrics of a limit: itself, what is used and what was refused.
var limitDescs = [...]*prometheus.Desc{
	prometheus.NewDesc("scrip_limit", "A limit of this server's listeners, see scrip status.", []string{"limit"}, nil),
	prometheus.NewDesc("scrip_limit_used", "How much of it is in use; of a limit for each key or address, the most that one of them uses.", []string{"limit"}, nil),
	prometheus.NewDesc("scrip_limit_refused_total", "What was refused or closed over the limit.", []string{"limit"}, nil),
}

// Describe and Collect make it a prometheus.Collector.
func (l *limits) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range limitDescs {
		ch <- d
	}
}

func (l *limits) Collect(ch chan<- prometheus.Metric) {
	for _, of := range l.all() {
		ch <- prometheus.MustNewConstMetric(limitDescs[0], prometheus.GaugeValue, float64(of.Limit), of.What)
		ch <- prometheus.MustNewConstMetric(limitDescs[1], prometheus.GaugeValue, float64(of.Used), of.What)
		ch <- prometheus.MustNewConstMetric(limitDescs[2], prometheus.CounterValue, float64(of.Refused), of.What)
	}
}
