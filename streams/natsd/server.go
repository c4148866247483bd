package natsd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// startWait bounds a start. After a hard kill every stream is read completely: 0.4 s per 1.35 GB.
	startWait = 10 * time.Minute
	// listenWait bounds the wait for the sockets: Start returns a moment before the cluster port listens.
	listenWait = 10 * time.Second
	// reviveEvery is how often Run checks whether JetStream is down, and tries to restart it, and whether a client is over a limit.
	reviveEvery = 250 * time.Millisecond
	// enforceShare bounds the time for the latter to a twentieth, however many clients there are, while it is done every
	// enforceEvery: closing many connections takes long, and more may be opened meanwhile.
	enforceShare = 20
	enforceEvery = time.Second
)

// ErrSync is the kind of Run's error after a failed fsync of the store.
var ErrSync = errors.New("an fsync of JetStream's store failed")

// Server is a running NATS server.
type Server struct {
	opts   Options
	ns     atomic.Pointer[server.Server] // Run replaces it after a full disk
	log    *logger
	limits *limits
	free   func(dir string) uint64 // bytes left on a disk

	stop  sync.Once
	mu    sync.Mutex // guards store.marker
	store *store
}

// Start starts a server and returns when clients can connect and JetStream's files are read. It fails, with the flag to
// change, when the address is taken, and when the store belongs to another server or to another kind of server.
func Start(opts Options) (*Server, error) {
	opts = opts.withDefaults()
	so, err := opts.server()
	if err != nil {
		return nil, err
	}
	// nats-server would report a taken port only after it has opened the store.
	if err := portFree(opts.Listen, so.Port); err != nil {
		return nil, err
	}
	st, err := openStore(so.StoreDir, opts.Cluster)
	if err != nil {
		return nil, err
	}
	s := &Server{opts: opts, log: &logger{to: opts.Logger, kinds: map[string]*kind{}}, limits: newLimits(opts), free: freeBytes, store: st}
	if err := s.boot(); err != nil {
		s.Shutdown()
		return nil, err
	}
	_, port, _ := net.SplitHostPort(s.Nats().Addr().String())
	s.opts.Listen = net.JoinHostPort(so.Host, port) // also after Run has replaced it
	return s, nil
}

// boot starts a nats-server on the store.
func (s *Server) boot() error {
	so, err := s.opts.server()
	if err != nil {
		return err
	}
	if err := completeMeta(so.StoreDir, s.opts.Logger); err != nil {
		return err
	}
	ns, err := server.NewServer(so)
	if err != nil {
		return fmt.Errorf("configuring the embedded NATS server: %w", err)
	}
	ns.SetLoggerV2(s.log, false, false, false)
	s.ns.Store(ns)
	s.mu.Lock()
	lanes := cmp.Or(s.store.marker.Lanes, s.opts.Lanes)
	s.mu.Unlock()
	if lanes > 0 {
		if err := s.mapSubjects(lanes); err != nil {
			return err
		}
	}
	started := make(chan struct{})
	go func() { defer close(started); ns.Start() }() // reads the store; returns when everything is up
	return s.awaitReady(started)
}

func (s *Server) awaitReady(started <-chan struct{}) error {
	deadline := time.NewTimer(startWait)
	defer deadline.Stop()
	select {
	case <-started:
	case <-deadline.C:
		return fmt.Errorf("the embedded NATS server was not ready within %s; see its warnings in the log", startWait)
	}
	if err := s.log.failed(); err != nil {
		return fmt.Errorf("the embedded NATS server did not start: %w", err)
	}
	if !s.Nats().ReadyForConnections(listenWait) {
		return fmt.Errorf("the embedded NATS server does not listen on %s (--nats-listen)", s.opts.Listen)
	}
	return nil
}

// portFree returns an error that names the flag to change, instead of a failed bind.
func portFree(addr string, port int) error {
	if port == server.RANDOM_PORT {
		return nil
	}
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s is in use, perhaps by another scrip or NATS server; stop that one or choose another address with --nats-listen: %w", addr, err)
	}
	if err != nil {
		return fmt.Errorf("the embedded NATS server can not listen on %s; choose another address with --nats-listen: %w", addr, err)
	}
	return l.Close()
}

// SetMapping maps scrip.cmd.<campaign> and scrip.admin.<campaign> to the campaign's lane, and records the number of lanes for
// the next start. A second call replaces the first.
func (s *Server) SetMapping(lanes int) error {
	if err := s.mapSubjects(lanes); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.store.marker.Lanes == lanes {
		return nil
	}
	s.store.marker.Lanes = lanes
	return s.store.write()
}

func (s *Server) mapSubjects(lanes int) error {
	if lanes < 1 || lanes > topology.MaxLanes {
		return fmt.Errorf("lanes is %d, expected 1 to %d (--lanes)", lanes, topology.MaxLanes)
	}
	account := s.Nats().GlobalAccount()
	if err := account.AddMapping(topology.CmdPattern, topology.MappedCmd(lanes)); err != nil {
		return fmt.Errorf("mapping %s to the lanes: %w", topology.CmdPattern, err)
	}
	if err := account.AddMapping(topology.AdminPattern, topology.MappedAdmin(lanes)); err != nil {
		return fmt.Errorf("mapping %s to the lanes: %w", topology.AdminPattern, err)
	}
	return nil
}

// ClientURL returns the URL for clients.
func (s *Server) ClientURL() string { return s.Nats().ClientURL() }

// Connect connects to this server over its loopback address, with its own credentials.
func (s *Server) Connect(opts ...nats.Option) (*nats.Conn, error) {
	if s.opts.Username != "" {
		opts = append([]nats.Option{nats.UserInfo(s.opts.Username, s.opts.Password)}, opts...)
	}
	if s.opts.Own != nil {
		opts = append([]nats.Option{nats.Secure(s.opts.Own)}, opts...)
	}
	return nats.Connect(s.ClientURL(), opts...)
}

// Nats returns the nats-server itself, for tests and for functions that this package does not offer.
func (s *Server) Nats() *server.Server { return s.ns.Load() }

// JetStreamUp reports whether JetStream runs. It does not while the disk is full, until Run has restarted it.
func (s *Server) JetStreamUp() bool { return s.Nats().JetStreamEnabled() }

// Run watches JetStream until ctx ends. When a store could not write, when nats-server has shut JetStream down, or when
// the disk is nearly full, JetStream is down: publishers get no responders at once, and do not wait for an answer that a
// broken store never sends. When there is space again it is restarted, and streams are read from disk as after a crash;
// everything acknowledged is there.
//
// After a failed fsync it ends with ErrSync, and the process must end, too. Linux marks the pages it could not write as clean,
// so a store that is opened again would read from memory what is not on the disk, and treat it as durable.
func (s *Server) Run(ctx context.Context) error {
	down, look := false, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.opts.Clock.After(reviveEvery):
		}
		if lost := s.log.unsynced.Load(); lost != nil {
			return fmt.Errorf("%w: %w; the disk may have lost what was not acknowledged yet: read the kernel's log, check the disk, and start again, best after a reboot", ErrSync, lost)
		}
		if start := time.Now(); start.After(look) {
			s.enforce()
			look = time.Now().Add(min(enforceShare*time.Since(start), enforceEvery))
		}
		room := s.free(s.store.dir)
		if s.JetStreamUp() {
			if !s.log.broken.Load() && room >= lowRoom {
				continue
			}
			if err := s.Nats().ShutdownJetStream(); err != nil {
				s.opts.Logger.Debug("JetStream not shut down", "err", err)
				continue
			}
		}
		if !down {
			down = true
			s.opts.Logger.Error("JetStream is down, most likely because the disk is full; it is restarted when there is space", "store", s.store.dir, "free_bytes", room, "needed_bytes", minRoom)
		}
		if room < minRoom {
			continue
		}
		// The whole server: JetStream alone, enabled again, serves each request of its API once more than before.
		s.end()
		s.log.broken.Store(false)
		if err := s.boot(); err != nil {
			s.opts.Logger.Debug("JetStream not started yet", "err", err)
			continue
		}
		down = false
		s.opts.Logger.Info("JetStream is up again", "store", s.store.dir)
	}
}

// end stops nats-server.
func (s *Server) end() {
	if ns := s.Nats(); ns != nil {
		ns.Shutdown()
		ns.WaitForShutdown()
	}
}

// Shutdown stops the server and returns when its store is free. It may be called more than once.
func (s *Server) Shutdown() {
	s.stop.Do(func() {
		s.end()
		s.store.close()
	})
}

const (
	// minRoom is how much a disk must have free, in bytes, before JetStream is restarted on it: some blocks of the log.
	minRoom = 64 << 20
	// lowRoom is the free space below which JetStream is stopped, while everything acknowledged is stored and there is space
	// left for the shutdown.
	lowRoom = 16 << 20
)

// freeBytes returns what an unprivileged process may still write to the disk of dir; 0 if unknown.
func freeBytes(dir string) uint64 {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0
	}
	return fs.Bavail * uint64(fs.Bsize)
}
