package service

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Name of the micro service and of its queue group.
const Name = "scrip"

const (
	// DefaultTimeout is how long a request without HeaderTimeout may take.
	DefaultTimeout = 5 * time.Second
	// MaxTimeout is the largest value of HeaderTimeout.
	MaxTimeout = time.Minute
	// HeaderTimeout is a request's header with the time, as a Go duration, that its client waits for the reply.
	HeaderTimeout = "Scrip-Timeout"

	// queriesAtOnce bounds the queries that wait for lanes and tables; more are answered with an error.
	queriesAtOnce = 256
	// pullsAtOnce bounds the requests of senders that wait for a message: a process has one for each lane, and four more.
	pullsAtOnce = 4096
	// readyWait is how long the server may take to confirm the subscriptions before the next attempt.
	readyWait = 250 * time.Millisecond
	// stopGrace is how long a stop waits for the outcomes of requests already accepted.
	stopGrace = 2 * time.Second
	// settlePoll is the pause between looks whether all outcomes have come.
	settlePoll = 5 * time.Millisecond
)

// Options of a Service; the zero value has the written defaults.
type Options struct {
	// Version is the program's, in SemVer form. Defaults to 0.0.0.
	Version string
	// Sync is the log's durability mode, shown in the metadata. Defaults to "unknown".
	Sync string
	// Timeout is how long a request without HeaderTimeout may take. Defaults to DefaultTimeout.
	Timeout time.Duration
	// History adds the read tables' history to answers about coupons and customers. Nil = reported as unavailable.
	History History
	// Keys checks the users of requests from other accounts. Nil = such requests are answered 503.
	Keys *access.Registry
	// Ops carries out actions of people. Nil = such requests are answered 503.
	Ops *ops.Ops
	// Cursors seals the ends of pages.
	Cursors ops.Cursors
	// Audit records look-ups of codes in clear. Nil = they are not recorded.
	Audit *audit.Log
	// Rate counts a request of a key. It returns 0, or how long the key must wait if it has used its rate. Nil = there is no bound.
	Rate func(access.Principal) (wait time.Duration)
	// Batch configures how commands share messages.
	Batch command.Options
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Service answers requests on one connection.
type Service struct {
	nc      *nats.Conn
	log     topology.Log
	opts    Options
	lanes   *command.Lanes
	metrics *metrics
	senders *push.Proxy // of Run

	queries chan struct{} // a slot for each query in progress
	pulls   chan struct{} // a slot for each request of a sender that waits for a message
	pushes  chan struct{} // a slot for each other request of a sender
	open    atomic.Int64  // accepted requests whose reply is not sent
	ready   chan struct{} // closed when the endpoints are registered

	mu      sync.Mutex
	work    context.Context // of the queries; nil before and after Run
	in      *instance       // nil before Run
	running sync.WaitGroup  // queries in progress; added to with mu held and work set

	signals struct {
		stopped testsignal.Signal[struct{}] // no more requests arrive
	}
}

// New returns the service of a log. codec decodes the codes of the log's key.
func New(nc *nats.Conn, log topology.Log, codec *code.Codec, opts Options) *Service {
	opts.Version = cmp.Or(opts.Version, "0.0.0")
	opts.Sync = cmp.Or(opts.Sync, "unknown")
	if opts.Timeout <= 0 {
		opts.Timeout = DefaultTimeout
	}
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	opts.Batch.Count, opts.Batch.Codec = log.Lanes, codec
	s := &Service{
		nc: nc, log: log, opts: opts,
		lanes:   command.New(nc, opts.Batch),
		queries: make(chan struct{}, queriesAtOnce),
		pulls:   make(chan struct{}, pullsAtOnce),
		pushes:  make(chan struct{}, queriesAtOnce),
		ready:   make(chan struct{}),
	}
	s.metrics = newMetrics(s.lanes)
	return s
}

// Ready is closed when Run has registered all endpoints and the server knows them.
func (s *Service) Ready() <-chan struct{} { return s.ready }

// Run serves until ctx ends or the connection is closed. When ctx ends it accepts no more requests and gives those in
// progress a moment for their outcome; then the rest is answered 503. Run it once.
func (s *Service) Run(ctx context.Context) error {
	js, err := jetstream.New(s.nc)
	if err != nil {
		return err
	}
	s.senders = push.NewProxy(js, s.opts.Logger)
	defer s.senders.Close()
	work, stop := context.WithCancel(context.Background())
	defer stop()
	s.mu.Lock()
	s.work = work
	s.mu.Unlock()
	lanesEnded := make(chan error, 1)
	go func() { lanesEnded <- s.lanes.Run(work) }()

	svc, err := s.serve()
	if err != nil {
		stop()
		<-lanesEnded
		return err
	}
	s.mu.Lock()
	s.in = svc
	s.mu.Unlock()
	s.announce(ctx)
	select {
	case <-ctx.Done():
		err = nil
	case err = <-lanesEnded:
		lanesEnded <- nil
		err = fmt.Errorf("the service's outcome inbox: %w", err)
	}
	if stopErr := svc.stop(); stopErr != nil {
		s.opts.Logger.Warn("the micro service did not stop cleanly", "err", stopErr)
	}
	s.settle()
	stop()
	<-lanesEnded
	s.mu.Lock()
	s.work = nil
	s.mu.Unlock()
	s.running.Wait()
	return err
}

// announce closes ready once the server has the subscriptions, which takes longer while it is disconnected.
func (s *Service) announce(ctx context.Context) {
	for ctx.Err() == nil && !s.nc.IsClosed() {
		if s.nc.FlushTimeout(readyWait) == nil {
			close(s.ready)
			return
		}
		_ = natsx.Pause(ctx, readyWait) // the loop checks ctx
	}
}

// settle waits for the replies of requests already accepted, for stopGrace at most.
func (s *Service) settle() {
	// A round trip after the drain of the subscriptions: what was delivered before has been handled or is about to be.
	if err := s.nc.FlushTimeout(stopGrace); err != nil {
		return // the connection is closed: no reply could be sent
	}
	s.signals.stopped.Send(struct{}{})
	for until := time.Now().Add(stopGrace); s.open.Load() > 0; time.Sleep(settlePoll) {
		if time.Now().After(until) {
			s.opts.Logger.Warn("requests without an outcome are answered 503 at the stop", "requests", s.open.Load())
			return
		}
	}
}
