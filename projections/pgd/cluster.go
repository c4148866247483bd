package pgd

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/testsignal"
)

// defaultStopTimeout leaves a fast shutdown time for its checkpoint within the seconds that a stop may take.
const defaultStopTimeout = 10 * time.Second

// Options are where a cluster is and how it runs. Only DataDir is required.
type Options struct {
	// DataDir is scrip's data directory; it is created if missing.
	DataDir string
	// Dir, if set, holds the cluster instead of <DataDir>/postgres, which becomes a link to it. It is empty, or was given before.
	Dir string
	// FallbackBase holds the cluster, in a directory named by a hash of DataDir, when scrip runs as root and the
	// unprivileged user cannot reach DataDir. Defaults to /var/lib/scrip.
	FallbackBase string
	// Binaries is the PostgreSQL to use. Defaults to the version that made the cluster, else to Find.
	Binaries Binaries
	// Settings are added to postgresql.conf and override those of this package.
	Settings map[string]string
	// Nice, 0 to 19, is the nice value of PostgreSQL's processes; others, scrip itself first of all, get the CPU before them.
	Nice int
	// Host is where clients reach it beside loopback, with TLS; "" = nowhere.
	Host string
	// Port is that of all addresses; 0 = the one that is kept in the place, or a free one while another program has it.
	Port int
	// Certificate returns certificate and key in PEM, for TLS; nil = none. Run notices another one.
	Certificate func() (cert, key []byte)
	// StopTimeout is how long Stop waits for a fast shutdown before an immediate one. Defaults to 10 s.
	StopTimeout time.Duration
	// Tied clusters are stopped, immediately, when this process ends without Stop, also by kill -9. For tests and benchmarks;
	// others go on running and are adopted by the next Start.
	Tied bool
	// URLChanged, if set, is called from Run when a restarted cluster had to move to another port.
	URLChanged func(url string)
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Cluster is the private PostgreSQL cluster of one data directory. Its methods may be called from several goroutines.
type Cluster struct {
	opts Options
	log  *slog.Logger

	// working is held by the one Start, Stop or restart in progress.
	working chan struct{}

	mu sync.Mutex // guards the fields below
	// home is the cluster's place, from Start to Stop.
	home *home
	// pm is the last postmaster that was ready; wanted is true while it should be running.
	pm     *postmaster
	wanted bool
	// giveUp ends the start or restart in progress.
	giveUp context.CancelFunc
	// port is the last port used. It is tried first, so that a URL stays valid over a restart.
	port int

	signals signals
}

// signals are what tests wait for.
type signals struct {
	gone      testsignal.Signal[int]      // Run saw that the postmaster, this process, has ended
	launching testsignal.Signal[struct{}] // pg_ctl has started
	failed    testsignal.Signal[error]    // one attempt to bring a postmaster up has failed
	up        testsignal.Signal[int]      // Run has brought another postmaster up, this process
}

// Open returns a cluster. It changes nothing on disk; Start does.
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
	return &Cluster{opts: opts, log: opts.Logger, working: make(chan struct{}, 1), port: opts.Port}
}

// Start makes the cluster if there is none, starts it and returns, once it accepts connections, a complete URL of
// database scrip, whose owner is its user. The caller must Stop it. A postmaster that an earlier process left running is
// adopted. Recovery after a crash is waited for as long as ctx allows. For a cluster that runs already it returns the URL;
// one that died is started again.
func (c *Cluster) Start(ctx context.Context) (string, error) {
	started := time.Now()
	pm, fresh, err := c.up(ctx, nil)
	if err != nil {
		return "", err
	}
	h, _ := c.now()
	if h == nil {
		return "", errors.New("the PostgreSQL cluster was stopped while it started")
	}
	if fresh {
		c.log.InfoContext(ctx, "PostgreSQL is up", "dir", h.place.data(), "version", h.bin.Version, "user", h.user.name,
			"port", pm.port, "pid", pm.pid, "took", time.Since(started).Round(time.Millisecond))
	}
	return databaseURL(h.password, pm.port, roleName), nil
}

// up has a postmaster run: it prepares the place if that is not done, and brings one up unless one runs. With dead, it does so
// only while dead is the one that should run; pm is nil if another Start or Stop came first. fresh is false for one that ran.
func (c *Cluster) up(ctx context.Context, dead *postmaster) (pm *postmaster, fresh bool, err error) {
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	release, err := c.work(ctx)
	if err != nil {
		return nil, false, err
	}
	defer release()
	c.mu.Lock()
	h, pm := c.home, c.pm
	if dead != nil && !(c.wanted && pm == dead) {
		c.mu.Unlock()
		return nil, false, nil
	}
	c.giveUp = giveUp // lets Stop interrupt a recovery of minutes
	c.mu.Unlock()
	there := h != nil
	if there && serves(pm.pid, h.place) {
		return pm, false, nil
	}
	if !there {
		if h, err = c.prepare(ctx); err != nil {
			return nil, false, err
		}
	}
	if pm, err = c.bringUp(ctx, h); err != nil {
		if !there { // else it died before, and Run retries
			err = errors.Join(err, h.leave())
		}
		return nil, false, err
	}
	// Stop may have been called in between; it waits for this to end and then stops the postmaster.
	c.mu.Lock()
	defer c.mu.Unlock()
	c.home, c.pm, c.port = h, pm, pm.port
	c.wanted = c.wanted || dead == nil
	return pm, true, nil
}

// Stop shuts the cluster down, which cuts its connections, and returns when the postmaster has ended. The shutdown is fast;
// when ctx ends or Options.StopTimeout is over it becomes immediate, and the next start recovers. Stopping a cluster that
// does not run does nothing.
func (c *Cluster) Stop(ctx context.Context) error {
	c.mu.Lock()
	c.wanted = false
	if c.giveUp != nil {
		c.giveUp()
	}
	c.mu.Unlock()

	// Not bounded by ctx: a Start or restart in progress must not leave a postmaster running after Stop.
	release, err := c.work(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	defer release()
	c.mu.Lock()
	h, pm := c.home, c.pm
	c.home, c.pm, c.wanted = nil, nil, false
	c.mu.Unlock()
	if h == nil {
		return nil
	}
	if err := h.held(); err != nil {
		h.abandon(pm)
		return errors.Join(err, h.leave())
	}
	clean, err := h.halt(ctx, c.opts.StopTimeout)
	if !clean && err == nil {
		c.log.WarnContext(ctx, "PostgreSQL was stopped without a clean shutdown; its next start recovers", "dir", h.place.data())
	}
	return errors.Join(err, h.leave())
}

// Abandon begins a shutdown of the postmaster and waits for nothing: the data directory was moved, and this process ends at once. What
// the cluster has at its path by then is another one.
func (c *Cluster) Abandon() {
	if h, pm := c.now(); h != nil {
		h.abandon(pm)
	}
}

// URL returns the URL of Start with the present port; "" when the cluster is not started. It stays valid while the
// postmaster is down and about to be restarted.
func (c *Cluster) URL() string {
	h, pm := c.now()
	if h == nil {
		return ""
	}
	return databaseURL(h.password, pm.port, roleName)
}

// PID returns the process id of the running postmaster, 0 when there is none.
func (c *Cluster) PID() int {
	h, pm := c.now()
	if h == nil || !serves(pm.pid, h.place) {
		return 0
	}
	return pm.pid
}

// Dir returns the directory with the data, the log and the password of the cluster; "" when it is not started.
func (c *Cluster) Dir() string {
	h, _ := c.now()
	if h == nil {
		return ""
	}
	return string(h.place)
}

// now returns the place and its postmaster, both nil when the cluster is not started.
func (c *Cluster) now() (*home, *postmaster) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.home, c.pm
}

// work waits until no other start or stop is in progress.
func (c *Cluster) work(ctx context.Context) (release func(), err error) {
	select {
	case c.working <- struct{}{}:
		return func() { <-c.working }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
