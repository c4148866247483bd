package server

import (
	"context"
	"fmt"
	"os/user"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

// configWait is how long a start waits for the run-time settings. Claims do not depend on them; schedulers wait for them
// without a limit.
const configWait = 5 * time.Second

// startConfig follows the run-time settings, for the lanes, the schedulers, the projector and HTTP of this server.
func (s *server) startConfig(ctx context.Context) error {
	defaults := settings.Default()
	defaults.ReminderGrace = s.opts.ReminderGrace
	store, err := settings.Open(ctx, s.js, settings.Options{Defaults: defaults, Logger: s.log, Audit: audit.Open(s.js, nil)})
	if err != nil {
		return err
	}
	s.settings, s.config = store, store.Watch()
	if err := s.metrics.registry.Register(s.config); err != nil {
		return err
	}
	s.metrics.registry.MustRegister(newBackupMetrics(s.js, s.stream, s.config))
	s.group.start("config", s.config.Run)
	s.health.add("config", false, func() (bool, any) {
		inForce := s.config.Status()
		return inForce.Following, status.ConfigReadiness{Status: inForce, GraceDefault: s.opts.ReminderGrace.String()}
	})
	return within(ctx, configWait, s.config.Ready(), func() {
		s.log.Warn("cannot read the run-time settings; claims are served, expiries and reminders wait", "err", s.config.Status().Error)
	})
}

// within waits until a part is ready. After a while it goes on without, and calls late.
func within(ctx context.Context, wait time.Duration, ready <-chan struct{}, late func()) error {
	limit := time.NewTimer(wait)
	defer limit.Stop()
	select {
	case <-ready:
	case <-limit.C:
		late()
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// skipWait bounds the update of the skip list.
const skipWait = 30 * time.Second

// Skip names a message that every reader of the log skips.
type Skip struct {
	Lane     int
	Sequence uint64
	// Reminders is true for the lane's stream of fired reminders, false for its events.
	Reminders bool
}

// skipMessages adds the messages that an operator named to the skip list, which the readers of all servers and of later
// versions use. It runs before any lane is acquired. At later starts the same flag has no effect.
func (s *server) skipMessages(ctx context.Context) error {
	if len(s.opts.Skip) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, skipWait)
	defer cancel()
	store, err := settings.Open(ctx, s.js, settings.Options{Logger: s.log})
	if err != nil {
		return err
	}
	for _, skip := range s.opts.Skip {
		if skip.Lane >= s.stream.Lanes {
			return fmt.Errorf("--skip-message %d=%d: the log has lanes 0 to %d", skip.Lane, skip.Sequence, s.stream.Lanes-1)
		}
		stream := eventlog.Events(s.js, skip.Lane)
		if skip.Reminders {
			stream = eventlog.Reminders(s.js, skip.Lane)
		}
		hash, listed, err := stream.In(s.stream).CheckSkip(ctx, skip.Sequence)
		if err != nil {
			return fmt.Errorf("--skip-message: %w", err)
		}
		if listed {
			s.log.Warn("the message is on the skip list already; remove --skip-message", "stream", stream.Name(), "sequence", skip.Sequence)
			continue
		}
		if err := store.Skip(ctx, stream.Name(), skip.Sequence, hash, operator()); err != nil {
			return fmt.Errorf("--skip-message: %w", err)
		}
		s.log.Warn("all readers skip this message from now on", "stream", stream.Name(), "sequence", skip.Sequence, "sha256", hash)
	}
	return nil
}

// operator is the name of the user that runs this program.
func operator() string {
	if u, err := user.Current(); err == nil && wire.ValidBy(u.Username) {
		return u.Username
	}
	return "scrip serve"
}
