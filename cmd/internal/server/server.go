package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/certs"
	"github.com/seed-4a2410e3/scrip/cmd/internal/console"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/cmd/internal/sample"
	"github.com/seed-4a2410e3/scrip/cmd/internal/trace"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/projections/pgd"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/callout"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/machine"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

const (
	// stopLimit is how long one part may take to stop before the next one is stopped.
	stopLimit = 5 * time.Second
	// readyPoll is the interval at which a starting server checks its readiness.
	readyPoll = 20 * time.Millisecond
	// tablesWait is how long a start waits until the read tables exist. Claims do not wait for it: they are served already.
	tablesWait = 5 * time.Second
)

// server is one run.
type server struct {
	opts    Options
	log     *slog.Logger
	id      string // of this server, in leases
	dir     *datadir.Dir
	group   *group
	health  *health
	metrics *metrics
	sampler *sample.Sampler // nil = no role api
	limits  *limits
	// violations are those of this server's connections.
	violations *violations
	// credentials guard HTTP paths and the embedded NATS: the given ones, or those of the data directory.
	credentials datadir.Credentials

	natsd   *natsd.Server  // nil = external
	issuer  callout.Issuer // of log-ins to the embedded server
	natsURL string         // for clients on this machine
	nc      *nats.Conn     // for occasional requests
	js      jetstream.JetStream
	stream  topology.Log
	key     [32]byte // the code key, if a role needs it
	keys    keys     // of users
	// registry is that of keys, for HTTP, which is served before keys are; nil = not yet.
	registry  atomic.Pointer[access.Registry]
	strangers *access.Strangers
	certs     *certs.Pair                     // for HTTP and the embedded NATS; nil = no TLS
	tables    *tables                         // nil = this server does not use PostgreSQL
	cluster   atomic.Pointer[pgd.Cluster]     // the private PostgreSQL; nil = none, or not yet
	jobs      *ops.Jobs                       // long actions of operators; nil = neither role projector nor api
	settings  *settings.Store                 // the history of the run-time settings; nil = neither role lanes nor api
	config    *settings.Live                  // those in force; nil likewise
	clock     *wall.Guard                     // the source of lane time; nil = no role lanes
	load      *load.Meter                     // measures how busy this server's lanes are; nil = no role lanes
	settled   func() bool                     // whether the projector has found or created the read tables, or has failed; nil = no projector
	trace     *trace.Tracer                   // nil = no traces
	v1        atomic.Pointer[draining]        // /v1; nil = not started
	console   atomic.Pointer[console.Console] // nil likewise

	opsAddress string // of the listener of Options.OpsListen; "" = there is none

	mu         sync.Mutex // guards the fields below
	descriptor datadir.Descriptor
	published  bool
	conns      []*nats.Conn
}

// Run serves until ctx ends, and returns nil then. Its errors name the next step. If the error is atomicfile.ErrReplaced, the server was
// not stopped and the process must end at once, as in a crash: what still runs would write into the data directory of another server.
func Run(ctx context.Context, opts Options) error {
	if err := opts.Validate(); err != nil {
		return err
	}
	opts = opts.withDefaults()
	s := &server{opts: opts, log: opts.Logger, group: newGroup(opts.Logger, stopLimit), health: &health{}, metrics: newMetrics(opts.Version), limits: &limits{}, violations: newViolations(opts.Logger)}
	s.metrics.registry.MustRegister(s.limits, s.violations.total)
	s.strangers = access.NewStrangers(s.metrics.registry)
	if opts.LinesDropped != nil {
		s.metrics.registry.MustRegister(linesDropped(opts.LinesDropped))
	}
	started := time.Now()

	dir, err := datadir.Open(opts.Data)
	if err != nil {
		return err
	}
	s.dir = dir
	if dir.Listable() {
		s.log.Warn("other users may list the data directory; chmod go-r prevents it", "data", dir.Path())
	}
	if n := len(dir.Narrowed); n > 0 {
		s.log.Warn("other users could read or change files of the data directory; their modes were put right", "files", n, "first", dir.Narrowed[0])
	}
	watching, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ended, replaced := make(chan error, 1), make(chan error, 1)
	go func() { ended <- s.run(ctx, started) }()
	go func() { replaced <- dir.Watch(watching) }()
	select {
	case err := <-ended:
		return err
	case err := <-replaced:
		if c := s.cluster.Load(); c != nil {
			c.Abandon()
		}
		return err
	}
}

// run starts all parts, waits for the end of ctx or of a part, and stops all.
func (s *server) run(ctx context.Context, started time.Time) error {
	err := s.start(ctx)
	if err == nil {
		err = s.awaitReady(ctx)
	}
	if err == nil && ctx.Err() == nil {
		err = s.publish(started)
	}
	if err == nil {
		err = s.group.wait(ctx)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // stopped while starting
	}
	if held := s.dir.Held(); held != nil {
		return held
	}
	s.log.Info("stopping")
	return errors.Join(err, s.stop())
}

// start starts all parts in order. After an error, stop stops those that were started.
func (s *server) start(ctx context.Context) error {
	var err error
	if s.id, err = s.dir.ServerID(); err != nil {
		return err
	}
	if s.credentials, err = s.chooseCredentials(); err != nil {
		return err
	}
	if err := s.startTLS(); err != nil {
		return err
	}
	if s.trace, err = trace.Open(ctx, s.opts.Version, s.log); err != nil {
		return fmt.Errorf("traces: %w; correct the variables OTEL_…, or unset them", err)
	}
	listener, err := listenHTTP(s.opts.HTTPListen)
	if err != nil {
		return err
	}
	s.descriptor = datadir.Descriptor{PID: os.Getpid(), HTTPURL: reachable("http", s.credentials, listener.Addr().String()), Sync: s.opts.Sync}
	if s.certs != nil {
		s.descriptor.HTTPURL = reachable("https", s.credentials, listener.Addr().String())
		s.descriptor.HTTPCert = s.certs.File()
	}
	if err := s.startOps(); err != nil {
		listener.Close()
		return err
	}
	conns := web.NewConns(s.opts.HTTPConns, s.opts.HTTPConnsPerAddress, s.opts.HTTPProxies)
	s.limits.add(conns.Limits)
	hs := web.NewServer(s.byName(s.opts.HTTPListen, s.trace.Handler(s.choosesTraces, s.handler())))
	hs.Handler = s.opts.HTTPProxies.Handler(web.HoldStrangers(s.strangers, s.known, s.prefixed(hs.Handler)))
	s.group.start("http", serveHTTP(hs, conns, listener, s.serverTLS()))

	for _, step := range []func(context.Context) error{s.startNATS, s.openLog, s.startAccess, s.startStatus, s.startCondition, s.startTables, s.startBounds, s.skipMessages, s.startConfig, s.startClock, s.startLanes, s.startHold, s.startProjector, s.startAnalysts, s.startJobs, s.startAPI, s.startWebhooks, s.startDisks, s.runJobs} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) chooseCredentials() (datadir.Credentials, error) {
	if s.opts.Credentials != "" {
		return datadir.ParseCredentials(s.opts.Credentials)
	}
	return s.dir.Credentials()
}

// awaitReady returns when all needed checks are good, or when a part or ctx has ended.
func (s *server) awaitReady(ctx context.Context) error {
	if s.tables != nil {
		select {
		case <-s.tables.tried: // so that scrip.json has the URL; claims do not wait for it, they are served already
		case err := <-s.group.ended:
			return err
		case <-ctx.Done():
			return nil
		}
	}
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	// A client that reads scrip.json may query rows at once, so the tables should exist by then.
	late := time.Now().Add(tablesWait)
	for !s.health.good() || s.settled != nil && !s.settled() && time.Now().Before(late) {
		select {
		case <-tick.C:
		case err := <-s.group.ended:
			return err
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// publish writes scrip.json, by which clients find this server.
func (s *server) publish(started time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.descriptor.NATSURL, s.descriptor.Lanes = s.natsURL, s.stream.Lanes
	if s.tables != nil {
		s.descriptor.PostgresURL = s.tables.url()
	}
	s.health.serve(true) // first: who finds scrip.json finds the server ready
	if err := s.dir.Publish(s.descriptor); err != nil {
		return err
	}
	s.published = true
	size := machine.Memory()
	s.log.Info("ready", "nats", natsx.WithoutUser(s.natsURL), "http", natsx.WithoutUser(s.descriptor.HTTPURL), "data", s.dir.Path(), "log", s.stream.UUID,
		"lanes", s.stream.Lanes, "roles", s.opts.Roles, "memory", size, "limit", size.Limit, "took", time.Since(started).Round(time.Millisecond))
	if s.natsd != nil && s.natsCredentials() != (datadir.Credentials{}) {
		s.log.Info("NATS requires credentials; scrip's own commands find them, for other clients and psql: eval \"$(scrip env)\"", "data", s.dir.Path())
	}
	return nil
}

// tablesMoved publishes another URL of the read tables.
func (s *server) tablesMoved(url string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.published || s.descriptor.PostgresURL == url {
		return
	}
	s.descriptor.PostgresURL = url
	if err := s.dir.Publish(s.descriptor); err != nil {
		s.log.Error("publishing the new URL of PostgreSQL failed", "err", err)
	}
}

// stop first removes scrip.json, then stops all parts in reverse order.
func (s *server) stop() error {
	s.health.serve(false)
	s.mu.Lock()
	s.published = false
	withdrawn := s.dir.Withdraw()
	s.mu.Unlock()

	stopped := s.group.stop()
	if s.tables != nil {
		s.tables.close()
	}
	s.mu.Lock()
	for _, nc := range s.conns {
		nc.Close()
	}
	s.mu.Unlock()
	if s.natsd != nil {
		s.natsd.Shutdown()
	}
	if flushed := s.trace.Close(); flushed != nil {
		s.log.Warn("the last traces are lost", "err", flushed)
	}
	err := errors.Join(withdrawn, stopped, s.dir.Close())
	if err == nil {
		s.log.Info("stopped")
	}
	return err
}
