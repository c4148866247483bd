package pgd

import (
	"context"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

const (
	// watchEvery is how often Run checks that the postmaster is alive.
	watchEvery = 250 * time.Millisecond
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
	for natsx.Pause(ctx, watchEvery) == nil {
		h, dead := c.down()
		if dead == nil {
			c.renew(ctx)
			continue
		}
		c.log.ErrorContext(ctx, "PostgreSQL stopped unexpectedly; restarting it", "err", h.exitError(dead.logged, nil))
		c.signals.gone.Send(dead.pid)
		since, logged := time.Now(), false
		if since.Sub(dead.since) > steady {
			pauses.Reset()
		}
		for attempt := 1; c.missing(dead) && natsx.Pause(ctx, pauses.NextBackOff()) == nil; attempt++ {
			pm, _, err := c.up(ctx, dead)
			switch {
			case pm != nil:
				c.log.InfoContext(ctx, "PostgreSQL is up again", "port", pm.port, "pid", pm.pid, "attempts", attempt,
					"down", time.Since(since).Round(time.Millisecond))
				if pm.port != dead.port && c.opts.URLChanged != nil {
					c.opts.URLChanged(databaseURL(h.password, pm.port, roleName))
				}
				c.signals.up.Send(pm.pid)
			case err != nil && !logged && c.missing(dead) && ctx.Err() == nil:
				logged = true
				c.log.ErrorContext(ctx, "PostgreSQL does not start; retrying until it does", "err", err)
			}
		}
	}
	return nil
}

// renew has PostgreSQL read another certificate.
func (c *Cluster) renew(ctx context.Context) {
	if c.opts.Certificate == nil {
		return
	}
	release, err := c.work(ctx)
	if err != nil {
		return
	}
	defer release()
	if c.home == nil { // it is stopped; only the holder of working changes it
		return
	}
	changed, err := c.home.renew()
	if changed && err == nil {
		err = syscall.Kill(c.pm.pid, syscall.SIGHUP)
	}
	if err != nil {
		c.log.ErrorContext(ctx, "PostgreSQL keeps its former certificate", "err", err)
	}
}

// down returns the postmaster that should be running and is not, nil if all is well. While one runs, its log is bounded.
func (c *Cluster) down() (*home, *postmaster) {
	h, pm := c.now()
	if h == nil {
		return nil, nil
	}
	if serves(pm.pid, h.place) {
		rotate(h.place.log(), logLimit)
		return nil, nil
	}
	if !c.missing(pm) {
		return nil, nil // Stop was first
	}
	return h, pm
}

// missing reports whether dead is still the postmaster that should be running.
func (c *Cluster) missing(dead *postmaster) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wanted && c.pm == dead
}
