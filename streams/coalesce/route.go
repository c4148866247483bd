package coalesce

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/semaphore"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// timeoutHeader tells the micro service how long the asker waits; see streams/service.
	timeoutHeader = "Scrip-Timeout"
	// maxTimeout is the most the service accepts there.
	maxTimeout = time.Minute
)

// route is the way of one lane's lines, or, direct, of lines to the micro service.
type route struct {
	c       *Coalescer
	number  int
	direct  bool
	subject string
	acks    string      // where PubAcks of this route go, without the attempt's token
	answers string      // where outcomes go, likewise
	header  nats.Header // of all requests to the micro service; only read
	most    int         // messages under way at once
	lines   int         // lines per message
	room    *semaphore.Weighted

	mu       sync.Mutex
	closed   bool
	sending  bool // one goroutine at a time takes batches and publishes them, in order
	open     *batch
	full     []*batch // closed for more lines, waiting to leave; oldest first
	flying   map[*batch]struct{}
	under    int // lines that flying left with
	attempts map[uint64]*attempt
}

func newRoute(c *Coalescer, number int) *route {
	r := &route{
		c:        c,
		number:   number,
		acks:     c.inbox + ".a" + strconv.Itoa(number) + "-",
		answers:  c.inbox + ".o" + strconv.Itoa(number) + "-",
		most:     c.opts.InFlight,
		lines:    domain.MaxMessageLines,
		room:     semaphore.NewWeighted(int64(c.opts.MaxPending)),
		flying:   make(map[*batch]struct{}),
		attempts: make(map[uint64]*attempt),
	}
	if number == directRoute {
		r.direct, r.most, r.lines = true, directInFlight, 1
		// The service should give up, and say so, before it is asked again.
		r.header = nats.Header{timeoutHeader: []string{min(r.pause()*3/4, maxTimeout).String()}}
	} else {
		r.subject = c.opts.Subject(number)
	}
	return r
}

// Ticket stands for a line that was handed in.
type Ticket struct {
	batch *batch
	entry int32
}

// GiveUp ends the wait for an answer. ok means that the receiver will not be called; err is then what to tell the
// caller, a *UnknownError or, if the line never left, a *NotSentError. Not ok means that the answer is already on its
// way to the receiver.
func (t Ticket) GiveUp(cause error) (err error, ok bool) {
	b := t.batch
	r := b.route
	r.mu.Lock()
	if b.done || b.entries[t.entry].to == nil {
		r.mu.Unlock()
		return nil, false
	}
	b.take(int(t.entry))
	err = b.fate(int(t.entry), cause)
	if b.sent && b.waiting == 0 {
		r.finish(b)
		r.pump()
	}
	r.mu.Unlock()
	return err, true
}

// add puts a line into the open batch, whose room the caller has acquired, and sends what can be sent.
func (r *route) add(line Line, subject string) (Ticket, error) {
	var deadline time.Duration
	if !line.Deadline.IsZero() {
		deadline = max(line.Deadline.Sub(r.c.born), 1)
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		r.room.Release(weight(line.JSON))
		return Ticket{}, &NotSentError{ID: line.ID, Cause: ErrClosed}
	}
	b := r.open
	if b != nil && (len(b.entries) >= r.lines || len(b.buf)+len(line.JSON)+1 > int(r.c.limit.Load())) {
		r.full = append(r.full, b)
		b = nil
	}
	if b == nil {
		old := rests.Get().(*rest)
		b = &batch{route: r, subject: subject, buf: old.buf[:0], entries: old.entries[:0]}
		r.open = b
		if r.c.active.Add(1) == 1 {
			select {
			case r.c.wake <- struct{}{}:
			default:
			}
		}
	}
	i := b.add(line, deadline, weight(line.JSON))
	r.c.counters.lines.Add(1)
	r.pump()
	r.mu.Unlock()
	return Ticket{batch: b, entry: i}, nil
}

// free reports whether one more message may leave. The open batch waits for its turn, so that it grows while the disk
// works. Beside others its turn is when it carries crowd times the lines that are under way: 256 callers then make two
// messages, one on its way while the other fills, and not a dozen, each with an fsync for the command and a share in more
// steps. Nobody waits for long on that account: few lines under way hold nobody up, the last outcome that comes back
// takes the open batch along, and so does the sweep that finds it for the second time, as after an outcome was lost.
//
// A full batch cannot grow and keeps the lane busy: with three messages under way at all times a hot lane waits for the
// disk a third of the time.
func (r *route) free() bool {
	if len(r.full) > 0 {
		return len(r.flying) < r.most+fullInFlight
	}
	b := r.open
	if b == nil || len(r.flying) >= r.most {
		return false
	}
	return r.direct || r.under < few || len(b.entries) >= crowd*r.under || b.looks > 1
}

// pump sends batches while messages may leave. Called with the mutex held, which publish lets go: whoever finds another
// goroutine at it goes on, for that one looks again before it stops.
func (r *route) pump() {
	if r.sending {
		return
	}
	r.sending = true
	for r.c.online.Load() && r.free() {
		b := r.next()
		if b == nil {
			break
		}
		r.flying[b] = struct{}{}
		b.sent = true
		r.under += len(b.entries)
		r.publish(b)
	}
	r.sending = false
}

// start sends what was handed in before the connection was there.
func (r *route) start() {
	r.mu.Lock()
	r.pump()
	r.mu.Unlock()
}

// next takes the oldest batch with a line somebody waits for.
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

// publish makes one attempt for a batch. Called with the mutex held, which it lets go while publishing.
func (r *route) publish(b *batch) {
	c := r.c
	data, which := b.payload()
	a := &b.first
	if b.asked == 0 {
		b.attempts = b.room[:0]
	} else {
		a = new(attempt)
	}
	b.asked++
	if len(b.attempts) == maxAttempts {
		r.forget(b.attempts[0])
	}
	*a = attempt{batch: b, token: c.seq.Add(1), which: which}
	b.attempts = append(b.attempts, a)
	b.live++
	r.attempts[a.token] = a
	b.askLater(c.now(), r.pause())
	token := strconv.FormatUint(a.token, 36)
	msg := &nats.Msg{Data: data}
	if r.direct {
		msg.Subject, msg.Reply, msg.Header = b.subject, r.answers+token, r.header
	} else {
		msg.Subject, msg.Reply = r.subject, r.acks+token
		msg.Header = nats.Header{topology.HeaderReply: []string{r.answers + token}}
	}
	b.busy++
	r.mu.Unlock()
	c.counters.messages.Add(1)
	err := c.publish(msg)
	r.mu.Lock()
	b.busy--
	if err != nil && !b.done {
		// The client library refused or its socket broke. In the latter case some of it may have left, so the attempt
		// stays live; the reconnect, or the next question, clears it up.
		if !mayHaveLeft(err) {
			r.dead(a)
		}
		b.knockAgain(c.now(), c.opts.AskAgain)
	}
}

// pause is the time until an unanswered question is asked again. The service asks its lane again itself meanwhile.
func (r *route) pause() time.Duration {
	if r.direct {
		return 2 * r.c.opts.AskAgain
	}
	return r.c.opts.AskAgain
}

// dead notes that nothing of an attempt was stored.
func (r *route) dead(a *attempt) {
	if !a.dead {
		a.dead = true
		a.batch.live--
		r.forget(a)
	}
}

// forget takes no more answers to an attempt.
func (r *route) forget(a *attempt) {
	delete(r.attempts, a.token)
	if i := slices.Index(a.batch.attempts, a); i >= 0 {
		a.batch.attempts = slices.Delete(a.batch.attempts, i, i+1)
	}
}

// finish forgets a sent batch of which nothing is waited for.
func (r *route) finish(b *batch) {
	for _, a := range b.attempts {
		delete(r.attempts, a.token)
	}
	delete(r.flying, b)
	r.under -= len(b.entries)
	r.drop(b)
}

// drop gives back what a batch held. Tickets may still point at it; done tells them.
func (r *route) drop(b *batch) {
	b.done = true
	clear(b.entries)
	if b.busy == 0 { // else the last caller gave up while its line was being published: the buffer is still read
		rests.Put(&rest{buf: b.buf, entries: b.entries})
	}
	b.buf, b.entries, b.attempts = nil, nil, nil
	r.c.active.Add(-1)
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
				out = append(out, delivery{to: b.take(i), err: b.fate(i, ErrClosed)})
			}
		}
	}
	for b := range r.flying {
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
