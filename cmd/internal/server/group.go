package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// actor is something that runs as long as the server does.
type actor struct {
	name string
	run  func(context.Context) error
}

// group runs actors. When one of them ends, or the caller says so, all are stopped: the last one added first, one by
// one, so that whatever is stood upon outlives what stands on it.
type group struct {
	log *slog.Logger
	// limit is how long one actor may take to end before the next is told.
	limit time.Duration

	mu      sync.Mutex
	running []*running
	// ended gets every actor that ended without having been told to; only the first is looked at.
	ended chan error
}

type running struct {
	actor
	cancel context.CancelFunc
	done   chan struct{}
	err    error // readable once done is closed
}

func newGroup(log *slog.Logger, limit time.Duration) *group {
	return &group{log: log, limit: limit, ended: make(chan error, 1)}
}

// start runs an actor. Its context has nothing to do with the caller's: only stop ends it, in its turn.
func (g *group) start(name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{actor: actor{name, run}, cancel: cancel, done: make(chan struct{})}
	g.mu.Lock()
	g.running = append(g.running, r)
	g.mu.Unlock()
	go func() {
		r.err = run(ctx)
		untold := ctx.Err() == nil
		close(r.done)
		if !untold {
			return
		}
		err := fmt.Errorf("%s ended", name)
		if r.err != nil {
			err = fmt.Errorf("%s: %w", name, r.err)
		}
		select {
		case g.ended <- err:
		default:
		}
	}()
}

// wait returns when an actor has ended, with the reason, or when ctx has, with nil.
func (g *group) wait(ctx context.Context) error {
	select {
	case err := <-g.ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// stop ends all actors in the reverse order of their start.
func (g *group) stop() error {
	g.mu.Lock()
	all := g.running
	g.running = nil
	g.mu.Unlock()
	var problems []error
	for i := len(all) - 1; i >= 0; i-- {
		r := all[i]
		r.cancel()
		late := time.NewTimer(g.limit)
		select {
		case <-r.done:
			late.Stop()
			if r.err != nil && !errors.Is(r.err, context.Canceled) {
				problems = append(problems, fmt.Errorf("%s: %w", r.name, r.err))
			}
		case <-late.C:
			g.log.Warn("did not stop in time; going on without it", "what", r.name, "limit", g.limit)
		}
	}
	return errors.Join(problems...)
}
