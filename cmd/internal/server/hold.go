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
	s.metrics.registry.MustRegister(held(stage)...)
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
