package server

import (
	"context"
	"errors"
	"slices"

	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// startProjector starts the projector, which fills the read tables. It waits for PostgreSQL; no other part waits for it.
func (s *server) startProjector(ctx context.Context) error {
	if !s.opts.has(RoleProjector) {
		return nil
	}
	js, err := s.jetStream(ctx, "projector")
	if err != nil {
		return err
	}
	keep := func() int {
		now, _ := s.config.Current()
		return now.TablesKeep
	}
	opts := projector.Options{Load: s.load, Keep: keep, Clock: s.time(), Logger: s.log}
	if s.trace != nil {
		opts.Trace = s.trace.Project
	}
	p, err := projector.New(s.tables.work, js, s.stream, opts)
	if err != nil {
		return err
	}
	if err := errors.Join(s.metrics.registry.Register(p), s.metrics.registry.Register(newLetterMetrics(s.tables.pool))); err != nil {
		return err
	}
	s.settled = func() bool {
		return !slices.ContainsFunc(p.Progress(), func(l projector.Progress) bool { return l.State == projector.Starting })
	}
	s.group.start("projector", func(ctx context.Context) error {
		select {
		case <-s.tables.tried: // a cluster that is just starting is not reported as unavailable
		case <-ctx.Done():
			return nil
		}
		select {
		case <-s.config.Ready(): // else rows that must go would be kept until the next midnight
		case <-ctx.Done():
			return nil
		}
		return p.Run(ctx)
	})
	deliveries := readmodel.NewKeeper(s.tables.work, js, readmodel.KeeperOptions{Logger: s.log})
	s.group.start("deliveries", func(ctx context.Context) error {
		for !s.settled() { // the projector makes the tables
			if natsx.Pause(ctx, readyPoll) != nil {
				return nil
			}
		}
		return deliveries.Run(ctx)
	})
	s.health.add("projector", false, func() (bool, any) { return projection(p.Progress()) })
	return nil
}

func projection(all []projector.Progress) (ok bool, detail any) {
	ok = true
	lanes := make([]status.Projected, 0, len(all))
	for _, p := range all {
		l := status.Projected{Lane: p.Lane, State: p.State, Sequence: p.Sequence, Behind: p.Behind, LagSeconds: p.Lag.Seconds(), Current: p.CurrentIn(), LockedBy: p.Holder}
		if p.Err != nil {
			l.Error = p.Err.Error()
		}
		ok = ok && (p.State == projector.Following || p.State == projector.Standby)
		lanes = append(lanes, l)
	}
	return ok, map[string]any{"lanes": lanes}
}
