package pgd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// defaultStopTimeout leaves a fast shutdown the time for its checkpoint within the seconds that a stop may take.
const defaultStopTimeout = 10 * time.Second

// Options says where a cluster lives and how it runs. Only DataDir is required.
type Options struct {
	// DataDir is scrip's data directory; it is created if missing.
	DataDir string
	// FallbackBase holds the cluster, in a directory named by a hash of DataDir, when scrip runs as root and the
	// unprivileged user cannot reach DataDir. Defaults to /var/lib/scrip.
	FallbackBase string
	// Binaries is the PostgreSQL to use. Defaults to the version that made the cluster, else to Find.
	Binaries Binaries
	// Settings are added to postgresql.conf and win over those of this package.
	Settings map[string]string
	// Nice, 0 to 19, is by how much PostgreSQL's processes yield the CPU to others, scrip itself first of all.
	Nice int
	// StopTimeout is how long Stop waits for a fast shutdown before an immediate one. Defaults to 10 s.
	StopTimeout time.Duration
	// URLChanged, if set, is called from Run when a restarted cluster had to move to another port.
	URLChanged func(url string)
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Cluster is the private PostgreSQL cluster of one data directory. Its methods may be called from several goroutines.
type Cluster struct {
	opts Options
	log  *slog.Logger
	// deathSignal is off only in tests that need an orphan.
	deathSignal bool

	// working is held by the one Start, Stop or restart at work.
	working chan struct{}

	mu sync.Mutex // guards what follows
	// home is where the cluster lives, from Start to Stop.
	home *home
	// pm is the last postmaster started; wanted says that it should be running.
	pm     *postmaster
	wanted bool
	// changed is closed and replaced when pm or wanted change.
	changed chan struct{}
	// giveUp ends the restart at work.
	giveUp context.CancelFunc
	// port was used last and is tried first, so that a URL handed out stays good over a restart.
	port int
}

// Open describes a cluster. It touches nothing; Start does.
func Open(opts Options) *Cluster {
	if opts.FallbackBase == "" {
		opts.FallbackBase = defaultFallbackBase
	}
	if opts.StopTimeout <= 0 {
		opts.StopTimeout = defaultStopTimeout
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return &Cluster{
		opts: opts, log: opts.Logger, deathSignal: true,
		working: make(chan struct{}, 1), changed: make(chan struct{}),
	}
}

// Start makes the cluster if there is none, starts it and returns, once it accepts connections, a complete URL of
// database scrip, whose owner is its user. The caller must Stop it. Recovery after a crash is waited for as long as
// ctx allows. A cluster that runs already just returns its URL; one that died is started again.
func (c *Cluster) Start(ctx context.Context) (string, error) {
	release, err := c.work(ctx)
	if err != nil {
		return "", err
	}
	defer release()

	c.mu.Lock()
	h, pm := c.home, c.pm
	c.mu.Unlock()
	started := h != nil
	if started && pm.running() {
		return databaseURL(h.password, pm.port, roleName), nil
	}
	if !started {
		if h, err = c.prepare(ctx); err != nil {
			return "", err
		}
	}
	begun := time.Now()
	pm, err = c.bringUp(ctx, h)
	if err != nil && started {
		return "", err // it died before; Run goes on trying
	}
	if err != nil {
		return "", errors.Join(err, h.leave())
	}
	c.set(h, pm, true)
	c.log.InfoContext(ctx, "PostgreSQL is up", "dir", h.place.data(), "version", h.bin.Version, "user", h.user.name,
		"port", pm.port, "pid", pm.pid, "took", time.Since(begun).Round(time.Millisecond))
	return databaseURL(h.password, pm.port, roleName), nil
}

// Stop shuts the cluster down, cutting its connections, and returns when the postmaster is gone. The shutdown is fast;
// when ctx ends or Options.StopTimeout is over it becomes immediate, and the next start recovers. Stopping a cluster
// that does not run does nothing.
func (c *Cluster) Stop(ctx context.Context) error {
	c.mu.Lock()
	c.wanted = false
	if c.giveUp != nil {
		c.giveUp()
	}
	c.notifyLocked()
	c.mu.Unlock()

	// Not bounded by ctx: a Start or restart at work must not leave a postmaster behind our back.
	release, err := c.work(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	defer release()
	c.mu.Lock()
	h, pm := c.home, c.pm
	c.mu.Unlock()
	if h == nil {
		return nil
	}
	c.set(nil, pm, false)
	if pm != nil && pm.running() && !pm.halt(ctx, c.opts.StopTimeout) {
		if pm.running() {
			return errors.Join(fmt.Errorf("PostgreSQL in %s does not end: process %d is stuck in the kernel", h.place.data(), pm.pid), h.leave())
		}
		c.log.WarnContext(ctx, "PostgreSQL was stopped the hard way; its next start recovers", "dir", h.place.data())
	}
	return h.leave()
}

// Done returns a channel that is closed when the postmaster running now has ended, for whatever reason. It is closed
// already when none runs.
func (c *Cluster) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pm == nil {
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	return c.pm.exited
}

// Err tells why the last postmaster ended, with the last lines of its log. It is nil while it runs and after Stop.
func (c *Cluster) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pm == nil || c.home == nil || c.pm.running() {
		return nil
	}
	return c.pm.obituary(c.home.place)
}

// URL is what Start returned, with the port that the cluster has now; "" when it is not started. It stays while the
// postmaster is down and about to be restarted.
func (c *Cluster) URL() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.home == nil || c.pm == nil {
		return ""
	}
	return databaseURL(c.home.password, c.pm.port, roleName)
}

// PID is the process number of the running postmaster, 0 when there is none.
func (c *Cluster) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pm == nil || !c.pm.running() {
		return 0
	}
	return c.pm.pid
}

// Dir is the directory with the data, the log and the password of the cluster; "" when it is not started.
func (c *Cluster) Dir() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.home == nil {
		return ""
	}
	return string(c.home.place)
}

// work waits for its turn to start or stop something.
func (c *Cluster) work(ctx context.Context) (release func(), err error) {
	select {
	case c.working <- struct{}{}:
		return func() { <-c.working }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *Cluster) set(h *home, pm *postmaster, wanted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.home, c.pm, c.wanted = h, pm, wanted
	if pm != nil {
		c.port = pm.port
	}
	c.notifyLocked()
}

func (c *Cluster) notifyLocked() {
	close(c.changed)
	c.changed = make(chan struct{})
}
