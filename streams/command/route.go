package command

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/semaphore"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// timeoutHeader carries how long the requester waits; see streams/service.
	timeoutHeader = "Scrip-Timeout"
	// maxTimeout is the largest value that the service accepts there.
	maxTimeout = time.Minute
)

// route sends one lane's lines, or, if direct, lines to the micro service.
type route struct {
	lanes   *Lanes
	number  int
	direct  bool
	slow    bool // direct: a request has had no answer for slowAfter, and each line is sent alone; guarded by mu
	subject string
	acks    string      // subject of this route's PubAcks, without the attempt's token
	answers string      // subject of its outcomes, likewise
	header  nats.Header // of all requests to the micro service; only read
	most    int         // messages in flight at once
	lines   int         // lines per message
	room    *semaphore.Weighted

	mu            sync.Mutex
	closed        bool
	sending       bool // one goroutine at a time takes batches and publishes them, in order
	open          *batch
	full          []*batch // closed for more lines, waiting to leave; oldest first
	inFlight      map[*batch]struct{}
	overdue       int // how many of inFlight are; they leave their turns to others
	linesInFlight int // lines that the others were sent with
	attempts      map[uint64]*attempt
}

func newRoute(l *Lanes, number int) *route {
	r := &route{
		lanes:    l,
		number:   number,
		acks:     l.inbox + ".a" + strconv.Itoa(number) + "-",
		answers:  l.inbox + ".o" + strconv.Itoa(number) + "-",
		most:     l.opts.inFlight,
		lines:    wire.MaxMessageLines,
		room:     semaphore.NewWeighted(int64(l.opts.maxPending)),
		inFlight: make(map[*batch]struct{}),
		attempts: make(map[uint64]*attempt),
	}
	if number >= firstDirect {
		r.direct, r.lines = true, directLines
		// The service should give up and answer before the line is sent again.
		r.header = nats.Header{timeoutHeader: []string{min(r.pause()*3/4, maxTimeout).String()}}
	} else {
		r.subject = l.opts.Subject(number)
	}
	return r
}

// Ticket identifies a line that was added.
type Ticket struct {
	batch *batch
	entry int32
}

// GiveUp ends the wait for an answer. ok means that the receiver will not be called; err is then the error for the caller,
// a *UnknownError or, if the line was never sent, a *NotSentError. Not ok means that the answer is being delivered to the
// receiver.
func (t Ticket) GiveUp(cause error) (err error, ok bool) {
	b := t.batch
	if b == nil { // refused without a lane
		return nil, false
	}
	r := b.route
	r.mu.Lock()
	if b.done || b.entries[t.entry].to == nil {
		r.mu.Unlock()
		return nil, false
	}
	b.take(int(t.entry))
	err = b.failure(int(t.entry), cause)
	if b.sent && b.waiting == 0 {
		r.finish(b)
		r.pump()
	}
	r.mu.Unlock()
	return err, true
}

// add appends a line to the open batch, whose room the caller has acquired, and sends what can be sent.
func (r *route) add(line line, subject string) (Ticket, error) {
	var deadline time.Duration
	if !line.Deadline.IsZero() {
		deadline = max(line.Deadline.Sub(r.lanes.born), 1)
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		r.room.Release(weight(line.json))
		return Ticket{}, &NotSentError{ID: line.id, Cause: ErrClosed}
	}
	b := r.open
	if b != nil && (r.slow || len(b.entries) >= r.lines || b.subject != subject || len(b.buf)+len(line.json)+1 > int(r.lanes.limit.Load()) || b.by != line.By) {
		r.full = append(r.full, b)
		b = nil
	}
	if b == nil {
		old := bufferPool.Get().(*buffers)
		b = &batch{route: r, subject: subject, by: line.By, buf: old.buf[:0], entries: old.entries[:0]}
		r.open = b
		if r.lanes.active.Add(1) == 1 {
			select {
			case r.lanes.wake <- struct{}{}:
			default:
			}
		}
	}
	i := b.add(line, deadline, weight(line.json))
	r.lanes.counters.lines.Add(1)
	r.pump()
	r.mu.Unlock()
	return Ticket{batch: b, entry: i}, nil
}

// free reports whether one more message may be sent. The open batch waits, so that it grows while the disk writes. Beside
// other messages it is sent when it holds growthFactor times the lines in flight: 256 callers then make two messages, one in
// flight while the other fills, and not a dozen, each with an fsync for the command and a share in more steps. The wait is
// bounded: with few lines in flight there is none, the last outcome to arrive releases the open batch, and so does the
// second sweep that finds it open, as after an outcome was lost.
//
// A message that is overdue takes no turn: its outcome may be lost, while those of other lines would come. A lane without
// owner is sent as many messages again for each RetryAfter, within the route's room.
//
// A full batch cannot grow and keeps the lane busy: with three messages in flight at all times a hot lane waits for the
// disk a third of the time.
func (r *route) free() bool {
	inFlight := len(r.inFlight) - r.overdue
	if r.slow {
		return (len(r.full) > 0 || r.open != nil) && inFlight < directInFlight
	}
	if len(r.full) > 0 {
		return inFlight < r.most+fullInFlight
	}
	b := r.open
	if b == nil || inFlight >= r.most {
		return false
	}
	return r.linesInFlight < minInFlightLines || len(b.entries) >= growthFactor*r.linesInFlight || b.sweeps > 1
}

// pump sends batches while messages may be sent. Called with the mutex held, which publish releases: a caller that finds
// another goroutine in it returns, because that one checks again before it stops.
func (r *route) pump() {
	if r.sending {
		return
	}
	r.sending = true
	for r.lanes.online.Load() && r.free() {
		b := r.next()
		if b == nil {
			break
		}
		r.inFlight[b] = struct{}{}
		b.sent = true
		r.linesInFlight += len(b.entries)
		r.publish(b)
	}
	r.sending = false
}

// start sends what was added before the connection was up.
func (r *route) start() {
	r.mu.Lock()
	r.pump()
	r.mu.Unlock()
}

// next takes the oldest batch with a line that is still waited for.
func (r *route) next() *batch {
	for {
		b := r.open
		if len(r.full) > 0 {
			b = r.full[0]
			r.full[0] = nil
			r.full = r.full[1:]
		} else {
			r.open = nil
		}
		if b == nil || b.waiting > 0 {
			return b
		}
		r.drop(b)
	}
}

// publish makes one attempt for a batch. Called with the mutex held, which it releases while publishing.
func (r *route) publish(b *batch) {
	l := r.lanes
	data, which := b.payload()
	a := &b.first
	if b.tries == 0 {
		b.attempts = b.space[:0]
	} else {
		a = new(attempt)
	}
	b.tries++
	b.acked = false
	if len(b.attempts) == maxAttempts {
		r.forget(b.attempts[0])
	}
	*a = attempt{batch: b, token: l.seq.Add(1), which: which}
	b.attempts = append(b.attempts, a)
	b.live++
	r.attempts[a.token] = a
	b.scheduleRetry(l.now(), r.pause())
	token := strconv.FormatUint(a.token, 36)
	msg := &nats.Msg{Data: data}
	if r.direct {
		msg.Subject, msg.Reply, msg.Header = b.subject, r.answers+token, r.header
		if b.by != "" {
			msg.Header = maps.Clone(r.header)
			msg.Header[topology.HeaderBy] = []string{b.by}
		}
	} else {
		msg.Subject, msg.Reply = r.subject, r.acks+token
		msg.Header = nats.Header{topology.HeaderReply: []string{r.answers + token}}
		if b.by != "" {
			msg.Header[topology.HeaderBy] = []string{b.by}
		}
		if b.traces != nil {
			msg.Header[topology.HeaderTrace] = []string{strings.Join(b.traces, ",")}
		}
	}
	b.busy++
	r.mu.Unlock()
	l.counters.messages.Add(1)
	err := l.nc.PublishMsg(msg)
	r.mu.Lock()
	b.busy--
	if err != nil && !b.done {
		// The client library refused or its socket broke. In the latter case some of it may have been sent, so the attempt
		// stays live; the reconnect, or the next attempt, resolves it.
		if !mayHaveLeft(err) {
			r.dead(a)
		}
		b.retryAfterNoResponders(l.now(), l.opts.RetryAfter)
	}
}

// pause is the time until a line without an answer is sent again. The service retries to its lane itself.
func (r *route) pause() time.Duration {
	if r.direct {
		return 2 * r.lanes.opts.RetryAfter
	}
	return r.lanes.opts.RetryAfter
}

// dead records that nothing of an attempt was stored.
func (r *route) dead(a *attempt) {
	if !a.dead {
		a.dead = true
		a.batch.live--
		r.forget(a)
	}
}

// forget accepts no more answers to an attempt.
func (r *route) forget(a *attempt) {
	delete(r.attempts, a.token)
	if i := slices.Index(a.batch.attempts, a); i >= 0 {
		a.batch.attempts = slices.Delete(a.batch.attempts, i, i+1)
	}
}

// finish forgets a sent batch of which every entry has ended.
func (r *route) finish(b *batch) {
	for _, a := range b.attempts {
		delete(r.attempts, a.token)
	}
	delete(r.inFlight, b)
	if b.overdue {
		r.overdue--
	} else {
		r.linesInFlight -= len(b.entries)
	}
	r.drop(b)
}

// drop releases a batch's room and buffers. Tickets may still refer to it; they check done.
func (r *route) drop(b *batch) {
	b.done = true
	clear(b.entries)
	if b.busy == 0 { // else the last caller gave up during a publish, which still reads the buffer
		bufferPool.Put(&buffers{buf: b.buf, entries: b.entries})
	}
	b.buf, b.entries, b.attempts = nil, nil, nil
	r.lanes.active.Add(-1)
	r.room.Release(b.weight)
}

// close ends all lines of the route.
func (r *route) close(out []delivery) []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	end := func(b *batch) {
		for i := range b.entries {
			if b.entries[i].to != nil {
				out = append(out, delivery{to: b.take(i), err: b.failure(i, ErrClosed)})
			}
		}
	}
	for b := range r.inFlight {
		end(b)
		r.finish(b)
	}
	for _, b := range r.full {
		end(b)
		r.drop(b)
	}
	r.full = nil
	if r.open != nil {
		end(r.open)
		r.drop(r.open)
		r.open = nil
	}
	return out
}
