package server

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/push/hold"
)

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
	s.metrics.registry.MustRegister(held{stage})
	s.group.start("hold", func(ctx context.Context) error {
		select {
		case <-s.config.Ready(): // before that, what is held would be let out
		case <-ctx.Done():
			return nil
		}
		if err := manager.Run(ctx, func(ctx context.Context, _ int) error { return stage.Run(ctx) }); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	return nil
}

// held are the metrics of a stage. Only the server whose stage works has them.
type held struct{ stage *hold.Stage }

const withheldHelp = "Reminders that were withheld since the log was made, by reason: they were of no use any more when the customer's quiet hours ended, or a day had room for a message."

var (
	heldDesc     = prometheus.NewDesc("scrip_push_held", "Reminders that are held back for a person now: merged, quiet hours, cap.", nil, nil)
	mergedDesc   = prometheus.NewDesc("scrip_push_merged_total", "Reminders that went as part of another one's message since the log was made.", nil, nil)
	withheldDesc = prometheus.NewDesc("scrip_push_withheld_total", withheldHelp, []string{"reason"}, nil)
)

// Describe and Collect make it a prometheus.Collector.
func (h held) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{heldDesc, mergedDesc, withheldDesc} {
		ch <- d
	}
}

func (h held) Collect(ch chan<- prometheus.Metric) {
	s := h.stage.State()
	if s == nil {
		return
	}
	ch <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(s.Held))
	ch <- prometheus.MustNewConstMetric(mergedDesc, prometheus.CounterValue, float64(s.Merged))
	ch <- prometheus.MustNewConstMetric(withheldDesc, prometheus.CounterValue, float64(s.Quiet), wire.WithheldQuiet)
	ch <- prometheus.MustNewConstMetric(withheldDesc, prometheus.CounterValue, float64(s.Cap), wire.WithheldCap)
}
