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

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/once"
	"github.com/seed-4a2410e3/scrip/streams/push"
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
	if err := s.metrics.registry.Register(webhookMetrics{runner}); err != nil {
		return err
	}
	s.group.start("webhooks", runner.Run)
	return nil
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

var webhooksDesc = prometheus.NewDesc("scrip_webhooks", "Webhooks by state: active, paused (by a person), disabled (by a server: the endpoint failed for five days, or answered 410). "+
	"The same at every server of role api; absent until it has read them.", []string{"state"}, nil)

// webhookMetrics counts the webhooks in force.
type webhookMetrics struct{ of *webhook.Runner }

func (w webhookMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- webhooksDesc }

func (w webhookMetrics) Collect(ch chan<- prometheus.Metric) {
	for state, n := range w.of.States() {
		ch <- prometheus.MustNewConstMetric(webhooksDesc, prometheus.GaugeValue, float64(n), string(state))
	}
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
