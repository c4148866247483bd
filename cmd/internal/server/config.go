package server

import (
	"context"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/config"
)

// configWait is how long a start waits for the run-time settings. Claims do not depend on them; what they hold back waits
// for them longer.
const configWait = 5 * time.Second

// startConfig follows the run-time settings, for the lanes and schedulers of this server.
func (s *server) startConfig(ctx context.Context) error {
	if !s.opts.has(RoleLanes) {
		return nil
	}
	defaults := config.Default()
	defaults.ReminderGrace = s.opts.ReminderGrace
	store, err := config.Open(ctx, s.js, config.Options{Replicas: s.opts.Replicas, Defaults: defaults, Logger: s.log})
	if err != nil {
		return err
	}
	s.config = store.Watch()
	if err := s.metrics.registry.Register(s.config); err != nil {
		return err
	}
	s.group.start("config", s.config.Run)
	s.health.add("config", false, func() (bool, any) {
		status := s.config.Status()
		return status.Following, ConfigReadiness{status, s.opts.ReminderGrace.String()}
	})
	limit := time.NewTimer(configWait)
	defer limit.Stop()
	select {
	case <-s.config.Ready():
	case <-limit.C:
		s.log.Warn("the run-time settings can not be read; claims are served, expiries and reminders wait for them", "err", s.config.Status().Error)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// ConfigReadiness is what /readyz says about the run-time settings.
type ConfigReadiness struct {
	config.Status
	// GraceDefault is the grace of reminders where none is set.
	GraceDefault string `json:"reminder_grace_default"`
}
