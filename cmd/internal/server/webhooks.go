package server

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/once"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/push/hold"
	"github.com/seed-4a2410e3/scrip/streams/webhook"
)

// startWebhooks delivers to webhooks, and measures how far they and push senders are. Servers of role api share the webhooks.
func (s *server) startWebhooks(ctx context.Context) error {
	if !s.opts.has(RoleAPI) {
		return nil
	}
	js, err := s.jetStream(ctx, "webhooks")
	if err != nil {
		return err
	}
	if err := s.metrics.registry.Register(newDeliveryMetrics(js)); err != nil {
		return err
	}
	runner := webhook.New(webhook.Options{JetStream: js, Log: s.stream, CodeKey: s.key, Server: s.id, Guard: s.webhookGuard(),
		Attempts: once.Open(js, s.key, s.stream.UUID), Logger: s.log})
	s.group.start("webhooks", runner.Run)
	return nil
}

// startHold competes for the lease of the stage that holds reminders back for a person.
func (s *server) startHold(ctx context.Context) error {
	if !s.opts.has(RoleScheduler) {
		return nil
	}
	js, err := s.jetStream(ctx, "hold")
	if err != nil {
		return err
	}
	manager, err := lease.New(js, "hold", 1, s.id, lease.Options{Logger: s.log})
	if err != nil {
		return err
	}
	stage := hold.New(hold.Options{JetStream: js, Log: s.stream, Settings: s.config, Clock: s.clock, Logger: s.log})
	s.metrics.registry.MustRegister(held(stage)...)
	s.group.start("hold", func(ctx context.Context) error {
		select {
		case <-s.config.Ready(): // before that, what is held would be let out
		case <-ctx.Done():
			return nil
		}
		err := manager.Run(ctx, func(ctx context.Context, _ int) error { return stage.Run(ctx) })
		if ctx.Err() != nil {
			err = nil
		}
		return err
	})
	return nil
}

// held are the metrics of a stage; without it they are 0.
func held(stage *hold.Stage) (all []prometheus.Collector) {
	of := func(value func(*hold.State) uint64) func() float64 {
		return func() float64 {
			if s := stage.State(); s != nil {
				return float64(value(s))
			}
			return 0
		}
	}
	const withheld, help = "scrip_push_withheld_total", "Reminders that were withheld since the log was made, by reason: they were of no use any more when the customer's quiet hours ended, or a day had room for a message."
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "scrip_push_held", Help: "Reminders that are held back for a person now: merged, quiet hours, cap. At the server that does so; 0 at others."}, of(func(s *hold.State) uint64 { return s.Held })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "scrip_push_merged_total", Help: "Reminders that went as part of another one's message since the log was made."}, of(func(s *hold.State) uint64 { return s.Merged })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: withheld, Help: help, ConstLabels: prometheus.Labels{"reason": wire.WithheldQuiet}}, of(func(s *hold.State) uint64 { return s.Quiet })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: withheld, Help: help, ConstLabels: prometheus.Labels{"reason": wire.WithheldCap}}, of(func(s *hold.State) uint64 { return s.Cap })),
	}
}

func (s *server) webhookGuard() *webhook.Guard {
	return &webhook.Guard{Allow: s.opts.WebhookAllow, HTTP: s.opts.WebhookHTTP, Own: s.ownPorts}
}

// ownPorts returns the ports of this server, of NATS and of PostgreSQL, whose private cluster may move to another.
func (s *server) ownPorts() (all []int) {
	urls := []string{s.descriptor.HTTPURL, "tcp://" + s.opsAddress}
	if nodes, err := natsx.URLs(s.natsURL); err == nil {
		for _, u := range nodes {
			if u.Port() == "" {
				all = append(all, nats.DefaultPort)
			}
			urls = append(urls, u.String())
		}
	}
	if s.tables != nil {
		if config, err := pgx.ParseConfig(s.tables.url()); err == nil {
			all = append(all, int(config.Port))
		}
	}
	for _, own := range urls {
		if u, err := url.Parse(own); err == nil {
			if port, err := strconv.Atoi(u.Port()); err == nil {
				all = append(all, port)
			}
		}
	}
	return all
}

// positionsMost bounds the names of metrics, and so their labels.
const positionsMost = 64

var (
	oldestDesc    = prometheus.NewDesc("scrip_push_oldest_seconds", "Age of the oldest reminder or event that is not delivered yet, by the name of the push sender or webhook; 0 if there is none. The same at every server of role api; every 15 s at most, of 64 names at most.", []string{"name", "lane"}, nil)
	waitingDesc   = prometheus.NewDesc("scrip_push_waiting", "Messages of the log that are not delivered yet, or in part.", []string{"name", "lane"}, nil)
	deliveredDesc = prometheus.NewDesc("scrip_push_delivered_total", "Reminders or events delivered since the name was used first.", []string{"name", "lane"}, nil)
	deadDesc      = prometheus.NewDesc("scrip_push_dead_total", "Reminders or events that became dead letters since the name was used first.", []string{"name", "lane"}, nil)
	triesDesc     = prometheus.NewDesc("scrip_push_failed_tries_total", "Calls of the gateway that failed since the name was used first.", []string{"name", "lane"}, nil)
)

// deliveryMetrics reads positions when it is scraped.
type deliveryMetrics struct{ scraped[[]push.Position] }

func newDeliveryMetrics(js jetstream.JetStream) *deliveryMetrics {
	return &deliveryMetrics{scraped[[]push.Position]{read: func(ctx context.Context) ([]push.Position, error) { return push.Positions(ctx, js) }}}
}

func (d *deliveryMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{oldestDesc, waitingDesc, deliveredDesc, deadDesc, triesDesc} {
		ch <- desc
	}
}

func (d *deliveryMetrics) Collect(ch chan<- prometheus.Metric) {
	positions, err := d.now()
	if err != nil {
		return // absent while NATS does not answer
	}
	names := map[string]bool{}
	for _, p := range positions {
		if names[p.Name] = true; len(names) > positionsMost {
			return
		}
		lane, age := strconv.Itoa(p.Lane), 0.
		if !p.Oldest.IsZero() {
			age = max(0, time.Since(p.Oldest).Seconds())
		}
		ch <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, age, p.Name, lane)
		ch <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(p.Waiting), p.Name, lane)
		ch <- prometheus.MustNewConstMetric(deliveredDesc, prometheus.CounterValue, float64(p.Delivered), p.Name, lane)
		ch <- prometheus.MustNewConstMetric(deadDesc, prometheus.CounterValue, float64(p.Dead), p.Name, lane)
		ch <- prometheus.MustNewConstMetric(triesDesc, prometheus.CounterValue, float64(p.Failed), p.Name, lane)
	}
}
