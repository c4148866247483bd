package command

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Options of Lanes; the zero value has the written defaults.
type Options struct {
	// Count is the number of the log's lanes, and Codec decodes the codes of its key. Required for Send and Of alone.
	Count int
	Codec *code.Codec
	// RetryAfter is how long an outcome may take before the line is sent again under the same id; later pauses double,
	// up to 8 times it. Defaults to 2 s.
	RetryAfter time.Duration
	// Subject returns the subject that a lane's lines are published to; it is called once per lane. Defaults to
	// topology.LaneCmd, which accepts any command and is for servers.
	Subject func(lane int) string
	// Same is called after a reconnect, before anything is sent again. It reports whether the connection leads to the same
	// log; after false nothing is sent any more. It should return soon, true if it is not known, and at once when ctx
	// ends. Nil = always the same.
	Same func(ctx context.Context) bool

	inFlight, maxPending int // of tests; 0 = inFlight and MaxPending
}

func (o Options) withDefaults() Options {
	o.inFlight, o.maxPending = cmp.Or(o.inFlight, inFlight), cmp.Or(o.maxPending, MaxPending)
	if o.RetryAfter <= 0 {
		o.RetryAfter = 2 * time.Second
	}
	if o.Subject == nil {
		o.Subject = topology.LaneCmd
	}
	return o
}

// MaxPending is how many lines of one lane may wait for their outcome; a line counts once more per KiB of its length.
const MaxPending = 32 << 10

const (
	// inFlight is how many messages of one lane are in flight at once. Beyond it full messages may be, and those without an outcome
	// after RetryAfter; there are fewer while many lines are in flight.
	inFlight = 3
	// sweepEvery is how late a deadline or a retry may be. No timer runs while no line waits.
	sweepEvery = 20 * time.Millisecond
	// headerRoom is what a message needs besides its lines when the server's max_payload is small.
	headerRoom = 1 << 10
	// fullInFlight is how many full messages may be in flight beyond inFlight. Measured on two cores, fsynced,
	// one lane: 197k claims/s with 0, 305k/s with 3 or more.
	fullInFlight = 9
	// minInFlightLines is how many lines must be in flight before the open batch waits for more lines.
	minInFlightLines = 8
	// growthFactor is how many times the lines in flight the open batch must hold before it is sent beside them. Measured
	// with 256 callers, fsynced, in CPU time of a claim: 20 µs if a message is sent with whatever it holds (47 lines each),
	// 18 µs with 1 (70 lines), 16 µs with 2 (120 lines) or more.
	growthFactor = 2
	// directInFlight is how many requests to the micro service are in flight at once. Each is one line, so this bounds the
	// requests that pile up while the service is unreachable, not the size of messages.
	directInFlight = 4096
	directRoute    = topology.MaxLanes
)

// Lanes sends commands to the lanes of a log over one connection. Several goroutines may use it at once.
type Lanes struct {
	nc    conn
	mover *natsx.Mover
	opts  Options
	codec *code.Codec // with a lock of its own
	inbox string
	born  time.Time // times inside are durations since then: one word, and monotonic

	online atomic.Bool // Run runs and the connection is up
	limit  atomic.Int64
	active atomic.Int64 // batches that exist; no timer runs at 0
	wake   chan struct{}
	seq    atomic.Uint64

	mu     sync.Mutex // guards the creation of routes, and closed
	closed bool
	routes [directRoute + 1]atomic.Pointer[route]

	scratch  []delivery // owned by the inbox's goroutine
	counters counters
}

// New returns the lanes that a connection leads to. Commands may be sent at once; they are published when Run runs.
func New(nc *nats.Conn, opts Options) *Lanes { return newLanes(natsConn{nc}, opts) }

func newLanes(nc conn, opts Options) *Lanes {
	l := &Lanes{
		nc:    nc,
		mover: natsx.NewMover(nc),
		opts:  opts.withDefaults(),
		inbox: nc.NewInbox(), // under the connection's own prefix: the lane publishes outcomes to no other subject
		born:  time.Now(),
		wake:  make(chan struct{}, 1),
	}
	if opts.Codec != nil {
		l.codec = opts.Codec.Clone()
	}
	l.limit.Store(wire.MaxMessage)
	return l
}

// route returns a lane's route, and makes it at first use.
func (l *Lanes) route(lane int) (*route, error) {
	if lane < 0 || lane > directRoute {
		return nil, fmt.Errorf("lane %d does not exist; lanes go from 0 to %d", lane, topology.MaxLanes-1)
	}
	if r := l.routes[lane].Load(); r != nil {
		return r, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.routes[lane].Load(); r != nil {
		return r, nil
	}
	if l.closed {
		return nil, ErrClosed
	}
	r := newRoute(l, lane)
	l.routes[lane].Store(r)
	return r, nil
}

func (l *Lanes) eachRoute(do func(*route)) {
	for i := range l.routes {
		if r := l.routes[i].Load(); r != nil {
			do(r)
		}
	}
}

// Run reads answers, expires deadlines and retries, until ctx ends or the connection is closed. Then the receivers that
// still wait get an UnknownError, and no Receiver is called after Run has returned. Run it once.
func (l *Lanes) Run(ctx context.Context) error {
	defer l.close()
	status := l.nc.StatusChanged(nats.CONNECTED, nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer l.nc.RemoveStatusListener(status)

	stop, err := l.nc.listen(l.inbox+".*", l.receive)
	if err != nil {
		return err
	}
	defer stop()
	if most := l.nc.MaxPayload() - headerRoom; most > 0 && most < wire.MaxMessage {
		l.limit.Store(most)
	}
	conn := link{lanes: l, ctx: ctx, result: make(chan bool, 1)}
	defer conn.wait()
	conn.up = l.nc.IsConnected()
	conn.reconnects = l.nc.reconnects()
	l.online.Store(conn.up)
	l.eachRoute((*route).start)

	timer := time.NewTimer(sweepEvery)
	defer timer.Stop()
	for {
		var tick <-chan time.Time
		if l.active.Load() > 0 {
			timer.Reset(sweepEvery)
			tick = timer.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		case <-tick:
			conn.update()
			l.sweep(false)
		case same := <-conn.result:
			conn.confirmed(same)
		case s, ok := <-status:
			if !ok || s == nats.CLOSED {
				return nats.ErrConnectionClosed
			}
			conn.update()
		}
	}
}

// close ends every line that still waits.
func (l *Lanes) close() {
	l.online.Store(false)
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	var all []delivery
	l.eachRoute(func(r *route) { all = r.close(all) })
	l.deliver(all)
}

func (l *Lanes) now() time.Duration { return time.Since(l.born) }

// delivery is an answer for its receiver; receivers are called without any lock.
type delivery struct {
	to   Receiver
	line []byte
	err  error
}

func (l *Lanes) deliver(all []delivery) {
	for i := range all {
		d := &all[i]
		if d.err != nil {
			l.counters.failed.Add(1)
		} else {
			l.counters.answers.Add(1)
		}
		d.to.Answer(d.line, d.err)
	}
	clear(all)
}

// Counters of Lanes since they were made.
type Counters struct {
	Lines      uint64 // lines added
	Messages   uint64 // messages sent, retries included
	Answers    uint64 // lines answered by an outcome, not_durable included
	Failed     uint64 // lines that ended in an UnknownError or NotSentError
	Retries    uint64 // lines sent again under the same id
	NotDurable uint64 // lines refused because JetStream stored nothing
	Late       uint64 // outcome messages whose lines had an answer already or were given up
	Mismatched uint64 // outcome messages that do not fit their command message; dropped
}

type counters struct {
	lines, messages, answers, failed, retries, notDurable, late, mismatched atomic.Uint64
}

// Counters returns the counters as they are now.
func (l *Lanes) Counters() Counters {
	n := &l.counters
	return Counters{
		Lines: n.lines.Load(), Messages: n.messages.Load(), Answers: n.answers.Load(), Failed: n.failed.Load(),
		Retries: n.retries.Load(), NotDurable: n.notDurable.Load(), Late: n.late.Load(), Mismatched: n.mismatched.Load(),
	}
}
