package server

import (
	"context"
	"fmt"
	"os/user"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/config"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// skipWait bounds the writing of what is to be passed over.
const skipWait = 30 * time.Second

// Skip names a message that every reader of the log is to pass over.
type Skip struct {
	Lane     int
	Sequence uint64
	// Reminders says that it is of the lane's stream of fired reminders, not of its events.
	Reminders bool
}

// skipMessages tells all readers, those of other servers and later versions included, to pass over the messages that an
// operator named. It is done before any lane is taken. A flag that is left behind in a service's start does nothing more.
func (s *server) skipMessages(ctx context.Context) error {
	if len(s.opts.Skip) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, skipWait)
	defer cancel()
	store, err := config.Open(ctx, s.js, config.Options{Replicas: s.opts.Replicas, Logger: s.log})
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
			s.log.Warn("the message is passed over already; leave --skip-message out from now on", "stream", stream.Name(), "sequence", skip.Sequence)
			continue
		}
		if err := store.Skip(ctx, stream.Name(), skip.Sequence, hash, operator()); err != nil {
			return fmt.Errorf("--skip-message: %w", err)
		}
		s.log.Warn("all readers pass over this message from now on", "stream", stream.Name(), "sequence", skip.Sequence, "sha256", hash)
	}
	return nil
}

// operator is who runs this program.
func operator() string {
	if u, err := user.Current(); err == nil && config.CheckBy(u.Username) == nil {
		return u.Username
	}
	return "scrip serve"
}
