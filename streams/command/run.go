package command

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
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
	// firstDirect is the number of the first route of requests to the micro service, and directRoutes how many there are: those of one
	// subject share a route and messages.
	firstDirect  = topology.MaxLanes
	directRoutes = 16
	// directLines is how many lines a request has at most: their outcomes must fit into one message.
	directLines = 500
	// slowAfter is how long a request may have no answer before others do without company: their lines are of all lanes, and one
	// without owner would delay the others. directInFlight bounds the requests that pile up then.
	slowAfter      = 500 * time.Millisecond
	directInFlight = 4096
)

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

// sweep ends lines whose deadline has passed and sends again the batches whose outcome is overdue, or all of them if
// everything.
func (l *Lanes) sweep(everything bool) {
	var out []delivery
	l.eachRoute(func(r *route) { out = r.sweep(everything, out) })
	l.deliver(out)
}

func (r *route) sweep(everything bool, out []delivery) []delivery {
	now := r.lanes.now()
	var overdue []*batch
	slow := false
	r.mu.Lock()
	for b := range r.inFlight {
		out = b.expire(now, out)
		switch {
		case b.waiting == 0:
			r.finish(b)
		case everything || now >= b.retryAt:
			overdue = append(overdue, b)
		}
		if !b.done && !b.overdue && b.tries > 0 && now-b.sentAt >= r.pause() && !r.direct {
			b.overdue = true
			r.overdue++
			r.linesInFlight -= len(b.entries)
		}
		slow = slow || r.direct && !b.done && b.tries > 0 && now-b.sentAt >= slowAfter
		// A batch that is acknowledged and has no outcome waits for its lane, which the node does reach.
		if !b.done && !b.acked && b.tries > 0 && now-b.sentAt > unanswered && r.lanes.online.Load() {
			r.lanes.mover.Unanswered() // an answer to any other message on the connection outweighs it
		}
	}
	r.slow = slow
	waiting := r.full[:0]
	for _, b := range r.full {
		if out = b.expire(now, out); b.waiting > 0 {
			waiting = append(waiting, b)
		} else {
			r.drop(b)
		}
	}
	clear(r.full[len(waiting):])
	r.full = waiting
	if b := r.open; b != nil {
		if out = b.expire(now, out); b.waiting == 0 {
			r.open = nil
			r.drop(b)
		}
		b.sweeps++
	}
	for _, b := range overdue {
		// publish releases the mutex, so the answer to one batch may arrive while another is sent.
		if r.lanes.online.Load() && !b.done {
			r.lanes.counters.retries.Add(uint64(b.waiting))
			r.publish(b)
		}
	}
	r.pump()
	r.mu.Unlock()
	return out
}

// mayHaveLeft reports whether some of a message may have reached the server although publishing it failed.
func mayHaveLeft(err error) bool {
	for _, known := range []error{
		nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrMaxPayload, nats.ErrReconnectBufExceeded,
		nats.ErrHeadersNotSupported, nats.ErrBadSubject,
	} {
		if errors.Is(err, known) {
			return false
		}
	}
	return true
}
