package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed-4a2410e3/scrip/projections/readmodel"
)

// metrics is the registry that all parts register with.
type metrics struct{ registry *prometheus.Registry }

func newMetrics(version string) *metrics {
	r := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "scrip_build_info", Help: "Always 1; the label is the version of scrip.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	r.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &metrics{registry: r}
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

const (
	// lettersEvery is how old a count of dead letters may be: counting many costs PostgreSQL tenths of a second.
	lettersEvery = 15 * time.Second
	// lettersWait is how long a scrape waits for it.
	lettersWait = time.Second
)

var lettersDesc = prometheus.NewDesc("scrip_dead_letters_open",
	"Dead letters that were neither retried nor discarded: command lines refused as invalid, events the read tables could not apply. "+
		"Counted up to 100,000, every 15 s at most. Absent while PostgreSQL is unavailable.", []string{"kind"}, nil)

// letterMetrics counts open dead letters when it is scraped.
type letterMetrics struct {
	store *readmodel.Letters

	mu      sync.Mutex // guards the fields below
	counted time.Time
	counts  readmodel.LetterCounts
}

func newLetterMetrics(db readmodel.Querier) *letterMetrics {
	return &letterMetrics{store: readmodel.NewLetters(db)}
}

func (l *letterMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- lettersDesc }

func (l *letterMetrics) Collect(ch chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.counted) > lettersEvery {
		ctx, cancel := context.WithTimeout(context.Background(), lettersWait)
		defer cancel()
		counts, err := l.store.Open(ctx)
		if err != nil {
			return // the projector's metrics show that PostgreSQL is unavailable
		}
		l.counts, l.counted = counts, time.Now()
	}
	ch <- prometheus.MustNewConstMetric(lettersDesc, prometheus.GaugeValue, float64(l.counts.Commands), "command")
	ch <- prometheus.MustNewConstMetric(lettersDesc, prometheus.GaugeValue, float64(l.counts.Events), "event")
}
