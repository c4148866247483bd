package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// actor is a part that runs as long as the server.
type actor struct {
	name string
	run  func(context.Context) error
}

// group runs actors. When one of them ends, or the caller stops the group, all are stopped one by one, the last one added
// first, so that each actor ends before those that it depends on.
type group struct {
	log *slog.Logger
	// limit is how long one actor may take to end before the next one is stopped.
	limit time.Duration

	mu      sync.Mutex
	running []*running
	// ended receives the error of the first actor that ended before it was stopped.
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

// start runs an actor. Its context does not derive from the caller's: only stop cancels it.
func (g *group) start(name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{actor: actor{name, run}, cancel: cancel, done: make(chan struct{})}
	g.mu.Lock()
	g.running = append(g.running, r)
	g.mu.Unlock()
	go func() {
		r.err = run(ctx)
		early := ctx.Err() == nil
		close(r.done)
		if !early {
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

// wait returns the reason when an actor has ended, nil when ctx has ended.
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
			g.log.Warn("part did not stop in time; stopping the others", "part", r.name, "limit", g.limit)
		}
	}
	return errors.Join(problems...)
}
