package server

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// clockEvery is how often the machine's clock is read if no lane reads it.
const clockEvery = time.Second

// startClock detects when the machine's clock is set ahead. Lanes and schedulers use this clock.
func (s *server) startClock(context.Context) error {
	if !s.opts.has(RoleLanes) {
		return nil
	}
	return s.guardClock(func() *settings.Settings {
		current, _ := s.config.Current()
		return current
	})
}

// guardClock is startClock with a tolerance and an accepted time from the settings, which may change.
func (s *server) guardClock(current func() *settings.Settings) error {
	clocks := s.opts.Clock
	clocks.Tolerance = func() time.Duration { return current().ClockTolerance }
	clocks.Accepted = func() time.Time { return current().ClockAccepted }
	s.clock = wall.New(clocks)
	if err := s.metrics.registry.Register(clockMetric(s.clock)); err != nil {
		return err
	}
	s.health.add("clock", true, func() (bool, any) {
		ahead := s.clock.Step()
		if ahead == 0 {
			return true, nil
		}
		return false, clockAhead(ahead)
	})
	s.group.start("clock", func(ctx context.Context) error {
		tick := time.NewTicker(clockEvery)
		defer tick.Stop()
		for held := time.Duration(0); ; {
			switch ahead := s.clock.Step(); {
			case ahead != 0 && held == 0:
				s.log.Error(clockAhead(ahead))
				held = ahead
			case ahead == 0 && held != 0:
				s.log.Info("the machine's clock is used again", "was_ahead", held)
				held = 0
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return nil
			}
		}
	})
	return nil
}

// time is the clock of the parts that do not decide: that of the lanes where this server has them. One that is set ahead is held there.
func (s *server) time() wall.Clock {
	if s.clock == nil {
		return wall.Machine
	}
	return s.clock
}

func clockMetric(c *wall.Guard) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "scrip_clock_step_seconds", Help: "By how much the machine's clock was set ahead, while scrip does not use it; 0 = it is used.",
	}, func() float64 { return c.Step().Seconds() })
}

func clockAhead(by time.Duration) string {
	by = by.Round(time.Millisecond)
	return fmt.Sprintf("the machine's clock was set %s ahead; lanes wait, so that nothing expires too early. Correct the clock, or if it is correct, accept it: scrip config set clock.accepted now",
		by)
}
