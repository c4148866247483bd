package pgd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	// defaultStopTimeout leaves a fast shutdown the time for its checkpoint within the seconds that a stop may take.
	defaultStopTimeout = 10 * time.Second
	// portTries is how many ports are tried when others are quicker to take them.
	portTries = 10
	// stillUsedLimit is how long backends of a killed postmaster may take to notice and end.
	stillUsedLimit = 30 * time.Second
	stillUsedPoll  = 200 * time.Millisecond
)

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

// home is a place that is prepared, locked and free of orphans.
type home struct {
	place    place
	user     account
	bin      Binaries
	password string
	lock     ownership
	log      *logFile
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

// prepare finds the place, takes its lock, stops an orphan there, and makes the cluster if there is none.
func (c *Cluster) prepare(ctx context.Context) (_ *home, err error) {
	dataDir, all, err := c.materials()
	if err != nil {
		return nil, err
	}
	got, err := c.choose(ctx, dataDir, all[0])
	if err != nil {
		return nil, err
	}
	h := &home{place: got.place, user: got.user, bin: all[0], log: &logFile{path: got.place.log(), limit: logLimit}}
	if h.lock, err = lockPlace(h.place); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.leave())
		}
	}()
	if err := c.clearOrphan(ctx, h.place.data(), h.user); err != nil {
		return nil, err
	}
	if got.inherited {
		// Its tables are a fold of another log, which does not exist under this data directory any more.
		c.log.WarnContext(ctx, "setting aside the PostgreSQL cluster of an earlier data directory of this name",
			"dir", h.place.data(), "to", h.place.former())
		if err := errors.Join(os.RemoveAll(h.place.former()), os.Rename(h.place.data(), h.place.former())); err != nil {
			return nil, fmt.Errorf("setting aside %s: %w", h.place.data(), err)
		}
	}
	if err := remember(dataDir, h.place); err != nil {
		return nil, fmt.Errorf("noting where the PostgreSQL cluster is: %w", err)
	}
	c.discardHalfMade(ctx, h.place)
	if !h.place.made() {
		if err := c.create(ctx, h.place, h.user, h.bin); err != nil {
			return nil, err
		}
	}
	if h.bin, err = binariesFor(h.place, all); err != nil {
		return nil, err
	}
	if h.password, err = c.password(ctx, h.place, h.user, h.bin); err != nil {
		return nil, err
	}
	return h, nil
}

// materials returns the data directory under its one true name, and the installations to choose from.
func (c *Cluster) materials() (string, []Binaries, error) {
	if strings.TrimSpace(c.opts.DataDir) == "" {
		return "", nil, errors.New("no data directory given for the PostgreSQL cluster: give --data DIR")
	}
	dir, err := filepath.Abs(c.opts.DataDir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", nil, fmt.Errorf("making the data directory: %w", err)
	}
	if c.opts.Binaries != (Binaries{}) {
		return dir, []Binaries{c.opts.Binaries}, nil
	}
	all, err := findAll()
	return dir, all, err
}

// leave lets go of the place.
func (h *home) leave() error {
	h.log.Close()
	return h.lock.release()
}

// bringUp starts a postmaster in a prepared place and waits until it is ready. On an error nothing is left running.
func (c *Cluster) bringUp(ctx context.Context, h *home) (*postmaster, error) {
	c.mu.Lock()
	port := c.port
	c.mu.Unlock()
	begun := time.Now()
	for taken := 0; ; {
		pm, err := c.tryUp(ctx, h, port)
		switch {
		case err == nil:
			return pm, nil
		case errors.Is(err, errPortTaken) && taken < portTries:
			taken++
			port = 0
		case errors.Is(err, errStillUsed) && time.Since(begun) < stillUsedLimit:
			pause := time.NewTimer(stillUsedPoll)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
				return nil, errors.Join(context.Cause(ctx), err)
			}
		default:
			return nil, err
		}
	}
}

// tryUp is one attempt on one port, 0 = any free one.
func (c *Cluster) tryUp(ctx context.Context, h *home, port int) (*postmaster, error) {
	if err := c.clearOrphan(ctx, h.place.data(), h.user); err != nil {
		return nil, err
	}
	if err := h.furnish(c.opts.Settings); err != nil {
		return nil, fmt.Errorf("preparing the start of PostgreSQL in %s: %w", string(h.place), err)
	}
	if port == 0 {
		var err error
		if port, err = freePort(); err != nil {
			return nil, err
		}
	}
	pm, err := launch(h.place, h.user, h.bin, port, h.log, c.deathSignal)
	if err != nil {
		return nil, err
	}
	if err := pm.awaitReady(ctx, h.place, h.password); err != nil {
		if pm.running() {
			pm.halt(ctx, c.opts.StopTimeout)
		}
		return nil, err
	}
	return pm, nil
}

// furnish writes the configuration and makes an empty directory for the socket: a lock file left beside an old socket
// would, like a stale postmaster.pid, refuse the start for a stranger's sake.
func (h *home) furnish(settings map[string]string) error {
	return errors.Join(
		writeFile(h.place.hba(), hbaText, 0o644),
		writeFile(h.place.conf(), configText(h.place, settings), 0o644),
		os.RemoveAll(h.place.run()),
		os.Mkdir(h.place.run(), 0o700),
		h.user.give(h.place.run()),
	)
}
