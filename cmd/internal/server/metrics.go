package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
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

// linesDropped is the metric of the log's lines that were lost.
func linesDropped(n func() uint64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "scrip_log_lines_dropped_total",
		Help: "Lines of this server's log that were lost: nobody read them in time, or they could not be written."}, func() float64 { return float64(n()) })
}

const (
	// scrapeEvery is how old a number may be that costs PostgreSQL or NATS some work.
	scrapeEvery = 15 * time.Second
	// scrapeWait is how long a scrape waits for it.
	scrapeWait = 2 * time.Second
)

// scraped is what a collector read at a scrape, and keeps for a while. Nothing is collected while it cannot be read.
type scraped[T any] struct {
	read func(context.Context) (T, error)

	mu  sync.Mutex // guards the fields below
	at  time.Time
	was T
}

func (s *scraped[T]) now() (T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) > scrapeEvery {
		ctx, cancel := context.WithTimeout(context.Background(), scrapeWait)
		defer cancel()
		now, err := s.read(ctx)
		if err != nil {
			return now, err
		}
		s.was, s.at = now, time.Now()
	}
	return s.was, nil
}

var lettersDesc = prometheus.NewDesc("scrip_dead_letters_open",
	"Dead letters that were neither retried nor discarded: command lines refused as invalid, events the read tables could not apply. "+
		"Counted up to 100,000, every 15 s at most. Absent while PostgreSQL is unavailable.", []string{"kind"}, nil)

// letterMetrics counts open dead letters when it is scraped.
type letterMetrics struct {
	scraped[readmodel.LetterCounts]
}

func newLetterMetrics(db readmodel.Querier) *letterMetrics {
	return &letterMetrics{scraped[readmodel.LetterCounts]{read: readmodel.NewLetters(db).Open}}
}

func (l *letterMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- lettersDesc }

func (l *letterMetrics) Collect(ch chan<- prometheus.Metric) {
	counts, err := l.now()
	if err != nil {
		return // scrip_postgres_up shows that PostgreSQL is unavailable
	}
	ch <- prometheus.MustNewConstMetric(lettersDesc, prometheus.GaugeValue, float64(counts.Commands), "command")
	ch <- prometheus.MustNewConstMetric(lettersDesc, prometheus.GaugeValue, float64(counts.Events), "event")
}

var postgresDesc = prometheus.NewDesc("scrip_postgres_up",
	"1 while this server's PostgreSQL answers it, else 0; measured every 15 s at most. Absent at a server that uses none.", nil, nil)

// postgresMetric pings PostgreSQL when it is scraped.
type postgresMetric struct{ scraped[struct{}] }

func newPostgresMetric(pool *pgxpool.Pool) *postgresMetric {
	return &postgresMetric{scraped[struct{}]{read: func(ctx context.Context) (struct{}, error) { return struct{}{}, pool.Ping(ctx) }}}
}

func (p *postgresMetric) Describe(ch chan<- *prometheus.Desc) { ch <- postgresDesc }

func (p *postgresMetric) Collect(ch chan<- prometheus.Metric) {
	up := 1.
	if _, err := p.now(); err != nil {
		up = 0
	}
	ch <- prometheus.MustNewConstMetric(postgresDesc, prometheus.GaugeValue, up)
}

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
