package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

// Options of a cluster. Folder, Compose, Scrip and NATSServer are required.
type Options struct {
	// Folder holds all data; it is made if missing.
	Folder string
	// Compose is the path of docker/compose.cluster.yaml.
	Compose string
	// Scrip and NATSServer are the paths of the programs.
	Scrip, NATSServer string
	// Port is the first port, 0 = free ones.
	Port int
	// Cuttable puts a link between each two services, for Cut.
	Cuttable bool
	// Set are variables of the compose file, such as SCRIP_LANES.
	Set map[string]string
	// Self is the command line that gives commands to this cluster, for reports.
	Self string
	// Out gets reports; nil = none.
	Out io.Writer
}

// Cluster is a running cluster. Its methods may be called from several goroutines.
type Cluster struct {
	opts    Options
	lock    *os.File
	layout  *layout
	members []*member
}

// Open prepares a cluster: lock, secrets, ports. It starts nothing. The caller closes it.
func Open(o Options) (_ *Cluster, err error) {
	if o.Out == nil {
		o.Out = io.Discard
	}
	for _, path := range []*string{&o.Folder, &o.Compose, &o.Scrip, &o.NATSServer} {
		if *path, err = filepath.Abs(*path); err != nil {
			return nil, err
		}
	}
	for _, program := range []string{o.Scrip, o.NATSServer} {
		if _, err := os.Stat(program); err != nil {
			return nil, fmt.Errorf("%w; build it with make", err)
		}
	}
	if err := atomicfile.MkdirAll(o.Folder, 0o711); err != nil {
		return nil, err
	}
	c := &Cluster{opts: o}
	if c.lock, err = lockFolder(o.Folder); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.lock.Close())
		}
	}()
	values, err := secrets(o.Folder, o.Compose)
	if err != nil {
		return nil, err
	}
	services, err := Read(o.Compose, o.Folder, func(name string) (string, bool) {
		if value, set := o.Set[name]; set {
			return value, true
		}
		value, set := values[name]
		return value, set
	})
	if err != nil {
		return nil, err
	}
	if err := accounts(o.Folder, services); err != nil {
		return nil, err
	}
	if c.layout, err = newLayout(services, o.Port, o.Cuttable); err != nil {
		return nil, err
	}
	for _, s := range services {
		c.members = append(c.members, newMember(s, c.layout, o))
	}
	return c, nil
}

// lockFolder lets one runner at a time use a folder. The kernel releases the lock when the runner ends.
func lockFolder(folder string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("a cluster runs on %s already; stop that one, or give another folder with -data", folder), f.Close())
	}
	return f, nil
}

// Start starts all services, each when those that it depends on are healthy, and waits until all are healthy.
func (c *Cluster) Start(ctx context.Context) error {
	for _, m := range c.members {
		for _, other := range m.After {
			if err := c.member(other).awaitHealthy(ctx); err != nil {
				return err
			}
		}
		if err := c.start(ctx, m); err != nil {
			return err
		}
	}
	for _, m := range c.members {
		if err := m.awaitHealthy(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) start(ctx context.Context, m *member) error {
	return m.start(ctx, func(how string) {
		fmt.Fprintf(c.opts.Out, "%s ended: %s. Its output is in %s. Start it again with: %s start %s\n", m.Name, how, m.log(), c.opts.Self, m.Name)
	})
}

func (c *Cluster) member(name string) *member {
	if i := slices.IndexFunc(c.members, func(m *member) bool { return m.Name == name }); i >= 0 {
		return c.members[i]
	}
	return nil
}

// verbs are what can be done to a service: start, which waits until it is healthy, stop, kill (-9), pause (SIGSTOP), resume,
// cut (off from all others), heal.
var verbs = map[string]func(ctx context.Context, c *Cluster, m *member) error{
	"start": func(ctx context.Context, c *Cluster, m *member) error {
		if err := c.start(ctx, m); err != nil {
			return err
		}
		return m.awaitHealthy(ctx)
	},
	"stop":   func(_ context.Context, _ *Cluster, m *member) error { return m.stop() },
	"kill":   func(ctx context.Context, _ *Cluster, m *member) error { return m.kill(ctx) },
	"pause":  func(_ context.Context, _ *Cluster, m *member) error { return m.signal(syscall.SIGSTOP) },
	"resume": func(_ context.Context, _ *Cluster, m *member) error { return m.signal(syscall.SIGCONT) },
	"cut":    func(_ context.Context, c *Cluster, m *member) error { return c.cut(m, true) },
	"heal":   func(_ context.Context, c *Cluster, m *member) error { return c.cut(m, false) },
}

func (c *Cluster) cut(m *member, cut bool) error {
	if err := c.layout.cut(m.Name, cut); err != nil {
		return err
	}
	m.mu.Lock()
	m.cut = cut
	m.mu.Unlock()
	return nil
}

// Data is the data directory of a scrip server, in which commands find it.
func (c *Cluster) Data() string {
	return c.members[slices.IndexFunc(c.members, func(m *member) bool { return m.Kind == Scrip })].data()
}

// Close stops all services in reverse order.
func (c *Cluster) Close() (problem error) {
	for _, m := range slices.Backward(c.members) {
		if c.opts.Cuttable {
			problem = errors.Join(problem, c.layout.cut(m.Name, false))
		}
		problem = errors.Join(problem, m.stop())
	}
	c.layout.close()
	return errors.Join(problem, c.lock.Close())
}
