package command

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Call is how a command is sent, and who gets its outcome.
type Call struct {
	// By is the person who sends it, see wire.ValidBy; "" = no person. The lines of a message have one By.
	By string
	// Deadline is when To gets an UnknownError or NotSentError instead of an outcome. Zero = never.
	Deadline time.Time
	// NoWait: while MaxPending lines of the lane wait, the error is a *NotSentError of kind ErrFull.
	NoWait bool
	// Trace is the traceparent of the command's span, "" = it is not sampled.
	Trace string
	// To gets the outcome.
	To Receiver
}

// Receiver gets the outcome of one command: exactly once, or never after Ticket.GiveUp or an error of Send.
type Receiver interface {
	// Answer is called by the goroutine that reads answers, by Run, or by the caller of Send for a command that is refused
	// without a lane: it must return at once. outcome is the outcome line without newline and may be kept. err is nil, a
	// *UnknownError or a *NotSentError.
	Answer(outcome []byte, err error)
}

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
	routes [firstDirect + directRoutes]atomic.Pointer[route]

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
	if lane < 0 || lane >= len(l.routes) {
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

// EnsureID gives a command that has no id a new one.
func EnsureID(cmd *wire.Command) {
	if cmd.ID == "" {
		cmd.ID = uuid.Must(uuid.NewV7()).String() // fails only without a source of randomness
	}
}

// Of returns the lane of a command or query: by the campaign's name, else by the campaign number in a generated code. That number may
// belong to no campaign; the lane checks it.
func (l *Lanes) Of(campaign, code string) (lane int, ok bool) {
	if campaign != "" {
		return topology.LaneOf(campaign, l.opts.Count), true
	}
	number, _, ok := l.codec.Decode(code)
	return int(number) % l.opts.Count, ok
}

// NoLane is the refusal of a query without a campaign, whose code no lane has.
func NoLane(id string) wire.Outcome {
	return wire.Outcome{ID: id, Status: wire.StatusRefused, Refusal: wire.CodeNotFound,
		Message: wire.NoForm}
}

// Send sends a command that has an id to its lane; Options has Count and Codec. It waits while MaxPending lines of the lane are
// waiting; ctx or the deadline ends that wait. The error is a *NotSentError, after which call.To gets nothing. The command is
// not kept, but for its id.
func (l *Lanes) Send(ctx context.Context, cmd *wire.Command, call Call) (Ticket, error) {
	lane, ok := l.Of(cmd.Campaign, cmd.Code)
	switch {
	case !ok && cmd.Code == "":
		return refuse(call, NoLane(cmd.ID))
	case !ok: // a code that no lane can have: any lane refuses it, and counts it with all other wrong codes
		lane = topology.LaneOf(cmd.Code, l.opts.Count)
	}
	return l.SendTo(ctx, lane, cmd, call)
}

// SendTo is Send to a lane that the caller has found.
func (l *Lanes) SendTo(ctx context.Context, lane int, cmd *wire.Command, call Call) (Ticket, error) {
	return l.encode(ctx, lane, "", cmd, call)
}

// Request sends a command to the micro service's endpoint at subject. Otherwise it is like Send.
func (l *Lanes) Request(ctx context.Context, subject string, cmd *wire.Command, call Call) (Ticket, error) {
	return l.encode(ctx, direct(subject), subject, cmd, call)
}

// RequestLine is Request of an encoded line without newline, which has that id.
func (l *Lanes) RequestLine(ctx context.Context, subject, id string, json []byte, call Call) (Ticket, error) {
	return l.add(ctx, direct(subject), subject, line{id: id, json: json, Call: call})
}

// direct is the number of the route of requests to a subject.
func direct(subject string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(subject)) // never fails
	return firstDirect + int(h.Sum32()%directRoutes)
}

// lineBuffers are for encoded lines, which add copies.
var lineBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}

func (l *Lanes) encode(ctx context.Context, lane int, subject string, cmd *wire.Command, call Call) (Ticket, error) {
	buf := lineBuffers.Get().(*[]byte)
	defer lineBuffers.Put(buf)
	json := cmd.AppendJSON((*buf)[:0])
	*buf = json[:0]
	if len(json) > wire.MaxLine {
		// Type, id and campaign may have been added to a request that was just short enough.
		return refuse(call, wire.Outcome{ID: cmd.ID, Status: wire.StatusRefused, Refusal: wire.Invalid, Campaign: cmd.Campaign,
			Message: fmt.Sprintf("the command has %d bytes as a line of the log, at most %d are allowed; split it", len(json), wire.MaxLine)})
	}
	return l.add(ctx, lane, subject, line{id: cmd.ID, json: json, Call: call})
}

// refuse answers a command that goes no further: it has no effect and needs no record in the log.
func refuse(call Call, out wire.Outcome) (Ticket, error) {
	call.To.Answer(out.AppendJSON(nil), nil)
	return Ticket{}, nil
}

// line is one encoded command.
type line struct {
	id   string
	json []byte // without newline; copied
	Call
}

// add adds a line to a lane's route, or one for subject to that of requests.
func (l *Lanes) add(ctx context.Context, lane int, subject string, line line) (Ticket, error) {
	r, err := l.route(lane)
	if err == nil {
		err = r.acquire(ctx, &line)
	}
	if err != nil {
		return Ticket{}, &NotSentError{ID: line.id, Cause: err}
	}
	return r.add(line, subject)
}

// acquire takes a line's room.
func (r *route) acquire(ctx context.Context, line *line) error {
	n := weight(line.json)
	switch err := ctx.Err(); {
	case err != nil:
		return err
	case r.room.TryAcquire(n):
		return nil
	case line.NoWait:
		return fmt.Errorf("%w: at most %d of a lane", ErrFull, r.lanes.opts.maxPending)
	}
	if !line.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, line.Deadline)
		defer cancel()
	}
	return r.room.Acquire(ctx, n)
}

// reply is the answer to one command.
type reply struct {
	line []byte
	err  error
}

// outcome parses a reply.
func (r reply) outcome(id string) (wire.Outcome, error) {
	if r.err != nil {
		return wire.Outcome{}, r.err
	}
	out, err := wire.ParseOutcome(r.line)
	if err != nil {
		return wire.Outcome{}, &UnknownError{ID: id, Cause: err}
	}
	return out, nil
}

// Waiter is the Receiver of a caller that waits. It is reused: each use ends with its one answer received, or with a GiveUp after
// which none is sent.
type Waiter struct{ answers chan reply }

var waiters = sync.Pool{New: func() any { return &Waiter{make(chan reply, 1)} }}

// NewWaiter returns a Waiter for one command, whose Wait is to be called.
func NewWaiter() *Waiter { return waiters.Get().(*Waiter) }

// Answer implements Receiver.
func (w *Waiter) Answer(line []byte, err error) { w.answers <- reply{line, err} }

// Wait waits for the outcome of a command that was sent with the result of Send. The outcome is parsed here, to keep the goroutine free
// that reads answers. When ctx ends first the error is an *UnknownError, or a *NotSentError if the command was never sent; if its
// deadline passes and the log was reachable but could not store anything all the time, the outcome is the refusal not_durable.
func (w *Waiter) Wait(ctx context.Context, id string, ticket Ticket, err error) (wire.Outcome, error) {
	defer waiters.Put(w)
	if err != nil {
		return wire.Outcome{}, err
	}
	select {
	case r := <-w.answers:
		return r.outcome(id)
	case <-ctx.Done():
	}
	err, ok := ticket.GiveUp(ctx.Err())
	if !ok { // being delivered already
		r := <-w.answers
		return r.outcome(id)
	}
	var unsent *NotSentError
	if errors.As(err, &unsent) && unsent.Reached && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return unsent.Outcome(), nil
	}
	return wire.Outcome{}, err
}

// Func is a Receiver that calls Do with the outcome of the command with the id.
type Func struct {
	ID string
	Do func(wire.Outcome, error)
}

// Answer implements Receiver.
func (f *Func) Answer(line []byte, err error) { f.Do(reply{line, err}.outcome(f.ID)) }

// UnknownError is the error of a command that was sent and whose result is not known: it may have had its effect or not.
// It is never a refusal. Retry with the same ID to learn the result.
type UnknownError struct {
	ID    string
	Cause error // why the wait ended
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("the result is not known (%v); retry with id %s", e.Cause, e.ID)
}

func (e *UnknownError) Unwrap() error { return e.Cause }

// NotSentError is the error of a command that was never sent, or that no server could have stored: it had no effect.
type NotSentError struct {
	ID    string
	Cause error
	// Reached is true if the log was reachable and could not store the command: a full disk, for example.
	Reached bool
}

// Outcome returns the refusal not_durable, which has the same meaning for a caller of a log that could not store the command.
func (e *NotSentError) Outcome() wire.Outcome {
	return wire.Outcome{ID: e.ID, Status: wire.StatusRefused, Refusal: wire.NotDurable, Message: "the log could not store the command; try again later"}
}

func (e *NotSentError) Error() string {
	return fmt.Sprintf("the command was not delivered (%v) and had no effect; retry with id %s", e.Cause, e.ID)
}

func (e *NotSentError) Unwrap() error { return e.Cause }

// DeniedError is the cause of a NotSentError, or an error by itself, of a request that this client may not make.
type DeniedError struct{ Why string }

func (e *DeniedError) Error() string { return "not allowed: " + e.Why }

// Causes of the errors above, and errors of Send.
var (
	// ErrClosed: Run has returned.
	ErrClosed = errors.New("closed")
	// ErrDeadline: the line's deadline passed.
	ErrDeadline = errors.New("no answer in time")
	// ErrFull: MaxPending lines are waiting; only with Call.NoWait.
	ErrFull = errors.New("too many commands are waiting for an answer")
)
