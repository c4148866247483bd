package command

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Options of a Batcher; the zero value has the written defaults.
type Options struct {
	// InFlight is how many messages of one lane are in flight at once, at least 1. Beyond it full messages may be, and those
	// without an outcome after RetryAfter; there are fewer while many lines are in flight. Defaults to 3.
	InFlight int
	// MaxPending is how many lines of one lane may wait for their outcome; a line counts once more per KiB of its length.
	// Defaults to 32,768; the least is 64.
	MaxPending int
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
}

func (o Options) withDefaults() Options {
	if o.InFlight <= 0 {
		o.InFlight = 3
	}
	if o.MaxPending <= 0 {
		o.MaxPending = 32 << 10
	}
	o.MaxPending = max(o.MaxPending, 64)
	if o.RetryAfter <= 0 {
		o.RetryAfter = 2 * time.Second
	}
	if o.Subject == nil {
		o.Subject = topology.LaneCmd
	}
	return o
}

const (
	// sweepEvery is how late a deadline or a retry may be. No timer runs while no line waits.
	sweepEvery = 20 * time.Millisecond
	// headerRoom is what a message needs besides its lines when the server's max_payload is small.
	headerRoom = 1 << 10
	// fullInFlight is how many full messages may be in flight beyond Options.InFlight. Measured on two cores, fsynced,
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

// Line is one command line to send.
type Line struct {
	// ID is the command's id, as in JSON.
	ID string
	// JSON is the encoded line without newline. It is copied.
	JSON []byte
	// By is the person who sends it, see wire.ValidBy; "" = no person. The lines of a message have one By.
	By string
	// Deadline is when To gets an UnknownError or NotSentError instead of an outcome. Zero = never.
	Deadline time.Time
	// To gets the answer.
	To Receiver
}

// Receiver gets the answer to one line: exactly once, or never after Ticket.GiveUp.
type Receiver interface {
	// Answer is called by the goroutine that reads answers or by Run: it must return at once. outcome is the outcome line
	// without newline and may be kept. err is nil, a *UnknownError or a *NotSentError.
	Answer(outcome []byte, err error)
}

// Batcher sends lines over one connection. Several goroutines may use it at once.
type Batcher struct {
	nc    conn
	mover *natsx.Mover
	opts  Options
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

// New returns a batcher for a connection. Lines may be sent at once; they are published when Run runs.
func New(nc *nats.Conn, opts Options) *Batcher { return newBatcher(natsConn{nc}, opts) }

func newBatcher(nc conn, opts Options) *Batcher {
	c := &Batcher{
		nc:    nc,
		mover: natsx.NewMover(nc),
		opts:  opts.withDefaults(),
		inbox: nc.NewInbox(), // under the connection's own prefix: the lane publishes outcomes to no other subject
		born:  time.Now(),
		wake:  make(chan struct{}, 1),
	}
	c.limit.Store(wire.MaxMessage)
	return c
}

// Send adds a line for a lane. It waits while MaxPending lines of that lane are waiting; ctx ends that wait, not the
// line, for which there are Deadline and [Ticket.GiveUp]. The error is a *NotSentError.
func (c *Batcher) Send(ctx context.Context, lane int, line Line) (Ticket, error) {
	r, err := c.route(lane)
	if err != nil {
		return Ticket{}, &NotSentError{ID: line.ID, Cause: err}
	}
	if err := r.room.Acquire(ctx, weight(line.JSON)); err != nil {
		return Ticket{}, &NotSentError{ID: line.ID, Cause: err}
	}
	return r.add(line, "")
}

// TrySend is Send for callers that must not wait: instead it returns a *NotSentError whose cause is of kind ErrFull.
func (c *Batcher) TrySend(lane int, line Line) (Ticket, error) {
	r, err := c.route(lane)
	if err != nil {
		return Ticket{}, &NotSentError{ID: line.ID, Cause: err}
	}
	if !r.room.TryAcquire(weight(line.JSON)) {
		return Ticket{}, &NotSentError{ID: line.ID, Cause: fmt.Errorf("%w: at most %d of a lane", ErrFull, c.opts.MaxPending)}
	}
	return r.add(line, "")
}

// Request adds a line that is sent to the micro service's endpoint at subject, alone. Otherwise it is like Send.
func (c *Batcher) Request(ctx context.Context, subject string, line Line) (Ticket, error) {
	r, err := c.route(directRoute)
	if err != nil {
		return Ticket{}, &NotSentError{ID: line.ID, Cause: err}
	}
	if err := r.room.Acquire(ctx, weight(line.JSON)); err != nil {
		return Ticket{}, &NotSentError{ID: line.ID, Cause: err}
	}
	return r.add(line, subject)
}

// route returns a lane's route, and makes it at first use.
func (c *Batcher) route(lane int) (*route, error) {
	if lane < 0 || lane > directRoute {
		return nil, fmt.Errorf("lane %d does not exist; lanes go from 0 to %d", lane, topology.MaxLanes-1)
	}
	if r := c.routes[lane].Load(); r != nil {
		return r, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.routes[lane].Load(); r != nil {
		return r, nil
	}
	if c.closed {
		return nil, ErrClosed
	}
	r := newRoute(c, lane)
	c.routes[lane].Store(r)
	return r, nil
}

func (c *Batcher) eachRoute(do func(*route)) {
	for i := range c.routes {
		if r := c.routes[i].Load(); r != nil {
			do(r)
		}
	}
}

// Run reads answers, expires deadlines and retries, until ctx ends or the connection is closed. Then the receivers that
// still wait get an UnknownError, and no Receiver is called after Run has returned. Run it once.
func (c *Batcher) Run(ctx context.Context) error {
	defer c.close()
	status := c.nc.StatusChanged(nats.CONNECTED, nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer c.nc.RemoveStatusListener(status)

	stop, err := c.nc.listen(c.inbox+".*", c.receive)
	if err != nil {
		return err
	}
	defer stop()
	if most := c.nc.MaxPayload() - headerRoom; most > 0 && most < wire.MaxMessage {
		c.limit.Store(most)
	}
	link := link{c: c, ctx: ctx, result: make(chan bool, 1)}
	defer link.wait()
	link.up = c.nc.IsConnected()
	link.reconnects = c.nc.reconnects()
	c.online.Store(link.up)
	c.eachRoute((*route).start)

	timer := time.NewTimer(sweepEvery)
	defer timer.Stop()
	for {
		var tick <-chan time.Time
		if c.active.Load() > 0 {
			timer.Reset(sweepEvery)
			tick = timer.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		case <-tick:
			link.update()
			c.sweep(false)
		case same := <-link.result:
			link.confirmed(same)
		case s, ok := <-status:
			if !ok || s == nats.CLOSED {
				return nats.ErrConnectionClosed
			}
			link.update()
		}
	}
}

// close ends every line that still waits.
func (c *Batcher) close() {
	c.online.Store(false)
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	var all []delivery
	c.eachRoute(func(r *route) { all = r.close(all) })
	c.deliver(all)
}

func (c *Batcher) now() time.Duration { return time.Since(c.born) }

// delivery is an answer for its receiver; receivers are called without any lock.
type delivery struct {
	to   Receiver
	line []byte
	err  error
}

func (c *Batcher) deliver(all []delivery) {
	for i := range all {
		d := &all[i]
		if d.err != nil {
			c.counters.failed.Add(1)
		} else {
			c.counters.answers.Add(1)
		}
		d.to.Answer(d.line, d.err)
	}
	clear(all)
}

// Counters of a batcher since it was made.
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
func (c *Batcher) Counters() Counters {
	n := &c.counters
	return Counters{
		Lines: n.lines.Load(), Messages: n.messages.Load(), Answers: n.answers.Load(), Failed: n.failed.Load(),
		Retries: n.retries.Load(), NotDurable: n.notDurable.Load(), Late: n.late.Load(), Mismatched: n.mismatched.Load(),
	}
}
