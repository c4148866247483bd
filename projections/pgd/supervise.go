package pgd

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	firstPause = 100 * time.Millisecond
	// longestPause bounds the wait between two attempts to start a cluster that does not start, for example on a full disk.
	longestPause = 10 * time.Second
	// steady is how long a postmaster must have run for its end to count as a new failure and not the same one again.
	steady = time.Minute
)

// Run keeps a started cluster running until ctx ends: a postmaster that dies is started again, with growing pauses while
// that fails. Each failure is logged once. It returns nil when ctx ends, and leaves the cluster running then, so that its
// clients may finish their work; Stop ends it. While the cluster is stopped by Stop, Run waits for the next Start.
func (c *Cluster) Run(ctx context.Context) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = firstPause, longestPause
	for {
		pm, ended, changed := c.watched()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			continue
		case <-ended:
		}
		if time.Since(pm.begun) > steady {
			pauses.Reset()
		}
		c.revive(ctx, pm, pauses)
	}
}

// watched returns the postmaster that should be running, a channel closed at its end, and one closed when another one
// should be watched. Without a postmaster that should be running, ended is nil, which never fires.
func (c *Cluster) watched() (pm *postmaster, ended, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pm == nil || !c.wanted {
		return nil, nil, c.changed
	}
	return c.pm, c.pm.exited, c.changed
}

// missing reports whether dead is still the postmaster that should be running.
func (c *Cluster) missing(dead *postmaster) (*home, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.home, c.wanted && c.pm == dead
}

// revive restarts the cluster and returns when it is up, stopped on purpose, or ctx ended.
func (c *Cluster) revive(ctx context.Context, dead *postmaster, pauses *backoff.ExponentialBackOff) {
	h, missing := c.missing(dead)
	if !missing {
		return // Stop was first
	}
	since := time.Now()
	c.log.ErrorContext(ctx, "PostgreSQL stopped unexpectedly; restarting it", "err", dead.exitError(h.place))
	logged := false
	for attempt := 1; ; attempt++ {
		_, _, changed := c.watched()
		pause := time.NewTimer(pauses.NextBackOff())
		select {
		case <-pause.C:
		case <-changed:
		case <-ctx.Done():
		}
		pause.Stop()
		if _, missing := c.missing(dead); !missing || ctx.Err() != nil {
			return
		}
		pm, err := c.restart(ctx, dead)
		switch {
		case err == nil && pm == nil:
			return // another Start or Stop came first
		case err == nil:
			c.log.InfoContext(ctx, "PostgreSQL is up again", "port", pm.port, "pid", pm.pid, "attempts", attempt,
				"down", time.Since(since).Round(time.Millisecond))
			if pm.port != dead.port && c.opts.URLChanged != nil {
				c.opts.URLChanged(databaseURL(h.password, pm.port, roleName))
			}
			return
		}
		if _, missing := c.missing(dead); missing && !logged && ctx.Err() == nil {
			logged = true
			c.log.ErrorContext(ctx, "PostgreSQL does not start; retrying until it does", "err", err)
		}
	}
}

// restart is one attempt to replace a dead postmaster; nil when that is not wanted any more.
func (c *Cluster) restart(ctx context.Context, dead *postmaster) (*postmaster, error) {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	release, err := c.work(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	c.mu.Lock()
	h, stillDead := c.home, c.wanted && c.pm == dead
	if stillDead {
		c.giveUp = giveUp // lets Stop interrupt a recovery of minutes
	}
	c.mu.Unlock()
	if !stillDead {
		return nil, nil
	}
	pm, err := c.bringUp(ctx, h)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.giveUp = nil
	if err != nil {
		return nil, err
	}
	// Stop may have been called meanwhile; it waits for this restart to end and then stops the postmaster.
	c.pm, c.port = pm, pm.port
	c.notifyLocked()
	return pm, nil
}
