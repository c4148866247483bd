package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// entry is one line of a batch and the receiver of its outcome.
type entry struct {
	to       Receiver // nil once answered or given up
	id       string
	end      int           // end of the line in the batch's buffer, its newline included
	deadline time.Duration // 0 = none
}

// batch is lines that are sent in one message. It fills while it is the route's open batch and never grows once sent. All
// fields are guarded by the route's mutex.
type batch struct {
	route   *route
	subject string // the micro service's endpoint, on the direct route only
	by      string // of all lines
	buf     []byte // all lines, each with its newline; dropped with the batch
	entries []entry
	traces  []string // of sampled lines, as topology.HeaderTrace has them
	waiting int      // entries without an answer yet
	weight  int64    // of the route's room; released when the batch is done

	sweeps   int // sweeps that found it open
	sent     bool
	done     bool
	overdue  bool          // it is in flight, and its outcome has not come within Options.RetryAfter
	busy     int           // how many goroutines are publishing its buffer
	earliest time.Duration // no entry has an earlier deadline; 0 = none has one

	attempts     []*attempt // those whose answers are still accepted: live ones, the newest maxAttempts; oldest first
	first        attempt    // the first of them, and space for it: there is seldom another
	space        [1]*attempt
	tries        int           // attempts made
	sentAt       time.Duration // time of the first
	acked        bool          // the stream acknowledged the newest
	live         int           // attempts that may have been stored, those no longer in attempts included
	retryAt      time.Duration
	retries      *backoff.ExponentialBackOff // pauses between attempts, made at the second one
	noResponders *backoff.ExponentialBackOff // pauses after no responders, made at the first such answer
}

// attempt is one message that carried lines of a batch.
type attempt struct {
	batch *batch
	token uint64
	which []int32 // the entries of its lines; nil = all
	dead  bool    // nothing of it was stored
}

// maxAttempts bounds the attempts of a batch whose answers are still accepted. The lines of an older one were sent again
// since.
const maxAttempts = 8

// buffers are the buffers of a batch, reused: allocating half a megabyte per message would load the garbage collector.
type buffers struct {
	buf     []byte
	entries []entry
}

var bufferPool = sync.Pool{New: func() any { return new(buffers) }}

// line returns an entry's line with its newline.
func (b *batch) line(i int) []byte {
	from := 0
	if i > 0 {
		from = b.entries[i-1].end
	}
	return b.buf[from:b.entries[i].end]
}

// add appends a line; the caller has checked that it fits.
func (b *batch) add(line line, deadline time.Duration, weight int64) int32 {
	b.buf = append(append(b.buf, line.json...), '\n')
	b.entries = append(b.entries, entry{to: line.To, id: line.id, end: len(b.buf), deadline: deadline})
	if line.Trace != "" && len(b.traces) < topology.MostTraces {
		b.traces = append(b.traces, strconv.Itoa(len(b.entries))+":"+line.Trace)
	}
	b.waiting++
	b.weight += weight
	if deadline != 0 && (b.earliest == 0 || deadline < b.earliest) {
		b.earliest = deadline
	}
	return int32(len(b.entries) - 1)
}

// payload returns the lines without an answer, and their entries (nil = all).
func (b *batch) payload() ([]byte, []int32) {
	if b.waiting == len(b.entries) {
		return b.buf, nil
	}
	var buf []byte
	which := make([]int32, 0, b.waiting)
	for i := range b.entries {
		if b.entries[i].to != nil {
			buf = append(buf, b.line(i)...)
			which = append(which, int32(i))
		}
	}
	return buf, which
}

// take ends an entry and returns its receiver.
func (b *batch) take(i int) Receiver {
	to := b.entries[i].to
	b.entries[i].to = nil
	b.waiting--
	return to
}

// failure is the error for a receiver that no longer waits for an entry.
func (b *batch) failure(i int, cause error) error {
	if b.live == 0 {
		return &NotSentError{ID: b.entries[i].id, Cause: cause, Reached: b.tries > 0 && !b.route.direct}
	}
	return &UnknownError{ID: b.entries[i].id, Cause: cause}
}

// late is the delivery for an entry whose deadline has passed.
func (b *batch) late(i int) delivery {
	err := b.failure(i, ErrDeadline)
	if unsent, ok := err.(*NotSentError); ok && unsent.Reached {
		o := unsent.Outcome()
		b.route.lanes.counters.notDurable.Add(1)
		return delivery{to: b.take(i), line: o.AppendJSON(nil)}
	}
	return delivery{to: b.take(i), err: err}
}

// expire ends the entries whose deadline has passed.
func (b *batch) expire(now time.Duration, out []delivery) []delivery {
	if b.earliest == 0 || now < b.earliest {
		return out
	}
	b.earliest = 0
	for i := range b.entries {
		e := &b.entries[i]
		switch {
		case e.to == nil || e.deadline == 0:
		case e.deadline <= now:
			out = append(out, b.late(i))
		case b.earliest == 0 || e.deadline < b.earliest:
			b.earliest = e.deadline
		}
	}
	return out
}

// unanswered is how long a message may have no answer before the node it was sent through is suspected.
const unanswered = time.Second

// scheduleRetry sets the time of the next attempt after one without an answer.
func (b *batch) scheduleRetry(now, every time.Duration) {
	if b.tries == 1 {
		b.sentAt, b.retryAt = now, now+every
		return
	}
	if b.retries == nil {
		b.retries = &backoff.ExponentialBackOff{
			InitialInterval: every, RandomizationFactor: 0.2, Multiplier: 2, MaxInterval: 8 * every,
		}
	}
	b.retryAt = now + b.retries.NextBackOff()
}

// retryAfterNoResponders sets the time of the next attempt after no responders: sooner, because a server may just be starting.
func (b *batch) retryAfterNoResponders(now, every time.Duration) {
	if b.noResponders == nil {
		b.noResponders = &backoff.ExponentialBackOff{
			InitialInterval: every / 20, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: every,
		}
	}
	b.retryAt = now + b.noResponders.NextBackOff()
}

// weight is how much of its route's room a line takes.
func weight(line []byte) int64 { return 1 + int64(len(line))>>10 }

// receive handles every message of the inbox: PubAcks (a<route>-<token>) and outcomes (o<route>-<token>).
func (l *Lanes) receive(msg *nats.Msg) {
	token := msg.Subject[len(l.inbox)+1:]
	r, seq, ok := l.address(token)
	if !ok {
		l.counters.mismatched.Add(1)
		return
	}
	out := l.scratch[:0]
	r.mu.Lock()
	switch a := r.attempts[seq]; {
	case a == nil && token[0] == 'a':
		// The PubAck of lines that were answered already: usual when the owner is quick.
		l.mover.Answered()
	case a == nil:
		// Answered before, or all receivers gave up.
		l.counters.late.Add(1)
	case msg.Header.Get("Status") == "503" && len(msg.Data) == 0:
		// No responders: no stream and no service took it, so nothing was stored. A server may be starting.
		r.dead(a)
		a.batch.retryAfterNoResponders(l.now(), l.opts.RetryAfter)
		l.mover.Unanswered()
	case token[0] == 'a':
		out = r.acked(a, msg.Data, out)
	case msg.Header.Get(micro.ErrorCodeHeader) == "403" && r.direct:
		out = r.denied(a, msg.Header.Get(micro.ErrorHeader), out)
	case msg.Header.Get(micro.ErrorCodeHeader) != "":
		// The service does not know the result either.
		a.batch.retryAfterNoResponders(l.now(), l.opts.RetryAfter)
	default:
		l.mover.Answered()
		out = r.answered(a, msg.Data, out)
	}
	// Send the next message first, then wake the callers that got their answer.
	r.pump()
	r.mu.Unlock()
	l.deliver(out)
	l.scratch = out
}

// address finds the route and attempt of an inbox token.
func (l *Lanes) address(token string) (*route, uint64, bool) {
	if len(token) < 2 || token[0] != 'a' && token[0] != 'o' {
		return nil, 0, false
	}
	number, seq, ok := strings.Cut(token[1:], "-")
	if !ok {
		return nil, 0, false
	}
	lane, err := strconv.Atoi(number)
	if err != nil || lane < 0 || lane >= len(l.routes) {
		return nil, 0, false
	}
	n, err := strconv.ParseUint(seq, 36, 64)
	r := l.routes[lane].Load()
	return r, n, err == nil && r != nil
}

// acked handles the PubAck. A positive one means that the lines are stored and ordered, which answers no caller: the
// outcome does. Some errors mean that nothing of this message was stored; after any other it may have been.
func (r *route) acked(a *attempt, data []byte, out []delivery) []delivery {
	var ack struct {
		Error *struct {
			Code        int    `json:"code"`
			ErrCode     int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(data, &ack); err != nil || ack.Error == nil {
		a.batch.acked = true
		r.lanes.mover.Answered()
		return out
	}
	b := a.batch
	if !notStored(ack.Error.ErrCode, ack.Error.Description) {
		b.retryAfterNoResponders(r.lanes.now(), r.lanes.opts.RetryAfter)
		return out
	}
	r.dead(a)
	if b.live > 0 {
		// An earlier attempt may have been stored: only an outcome may answer these lines.
		return out
	}
	why := fmt.Sprintf("the log could not store the command: %s (%d); try again later", ack.Error.Description, ack.Error.ErrCode)
	for i := range b.entries {
		if b.entries[i].to == nil {
			continue
		}
		o := wire.Outcome{ID: b.entries[i].id, Status: wire.StatusRefused, Refusal: wire.NotDurable, Message: why}
		out = append(out, delivery{to: b.take(i), line: o.AppendJSON(nil)})
		r.lanes.counters.notDurable.Add(1)
	}
	r.finish(b)
	return out
}

// denied ends the lines of an attempt that this client may not make: the service did nothing. A line of which an earlier
// attempt may have been stored, before the client's key was revoked, has no known outcome.
func (r *route) denied(a *attempt, why string, out []delivery) []delivery {
	r.lanes.mover.Answered()
	r.dead(a)
	b := a.batch
	for i := range b.entries {
		if b.entries[i].to != nil {
			err := b.failure(i, &DeniedError{Why: why})
			out = append(out, delivery{to: b.take(i), err: err})
		}
	}
	r.finish(b)
	return out
}

// notStored reports whether JetStream's error to a publish is one after which nothing was stored: no room in the stream,
// the account or the server, or too large. After others it may have been: a write or an fsync may have failed half way,
// and a replicated stream may refuse one copy of a message and apply another.
func notStored(code int, description string) bool {
	switch code {
	case 10023, 10047, 10054, 10167:
		return true
	case 10077: // "store failed": also how a full stream answers
		return strings.Contains(description, "maximum")
	}
	return false
}

// answered delivers the lines of an outcome message. A message that does not fit its command message is dropped: a guess
// could give one customer another one's code.
func (r *route) answered(a *attempt, data []byte, out []delivery) []delivery {
	b := a.batch
	lines := len(a.which)
	if a.which == nil {
		lines = len(b.entries)
	}
	data = bytes.TrimSuffix(data, []byte{'\n'})
	if len(data) == 0 || bytes.Count(data, []byte{'\n'})+1 != lines {
		r.lanes.counters.mismatched.Add(1)
		return out
	}
	mismatched, again := false, false
	for j := range lines {
		line := data
		if end := bytes.IndexByte(data, '\n'); end >= 0 {
			line, data = data[:end:end], data[end+1:]
		}
		i := j
		if a.which != nil {
			i = int(a.which[j])
		}
		switch {
		case b.entries[i].to == nil:
		case !isFor(line, b.entries[i].id):
			mismatched = true
		default:
			err, decided := error(nil), true
			if r.direct {
				err, decided = r.decided(a, i, line)
			}
			if again = again || !decided; decided {
				out = append(out, delivery{to: b.take(i), line: line, err: err})
			}
		}
	}
	if again {
		b.retryAfterNoResponders(r.lanes.now(), r.lanes.opts.RetryAfter)
	}
	if mismatched {
		r.lanes.counters.mismatched.Add(1)
	}
	if b.waiting == 0 {
		r.finish(b)
	}
	return out
}

// decided reports whether a line of the service's answer is the outcome of entry i of an attempt, or the error. Without a status the
// service does not know it either. A refusal by the service itself is about this attempt only: an earlier one, sent to another
// service or before a reconnect, may have been stored, and then only an outcome that a lane decided may answer.
func (r *route) decided(a *attempt, i int, line []byte) (err error, decided bool) {
	b := a.batch
	if n := len(idStart) + len(b.entries[i].id) + 1; len(line) > n && bytes.HasPrefix(line[n:], statusStart) && !bytes.HasPrefix(line[n:], statusRefused) {
		return nil, true
	}
	out, err := wire.ParseOutcome(line)
	if err != nil || out.Status == "" || out.Refusal == rateLimited {
		return nil, false
	}
	others := b.live - 1
	switch out.Refusal {
	case wire.NotDurable:
		if len(b.entries) == 1 {
			r.dead(a)
		}
		return nil, others <= 0
	case forbidden:
		if denied := (&DeniedError{Why: out.Message}); others > 0 {
			return &UnknownError{ID: out.ID, Cause: denied}, true
		} else {
			return &NotSentError{ID: out.ID, Cause: denied}, true
		}
	}
	return nil, true
}

// Refusals by the service itself.
const (
	rateLimited wire.Refusal = "rate_limited"
	forbidden   wire.Refusal = "forbidden"
)

var statusStart, statusRefused = []byte(`,"status":"`), []byte(`,"status":"refused"`)

const idStart = `{"id":"`

// isFor reports whether an outcome line answers the command with that id.
func isFor(line []byte, id string) bool {
	if n := len(idStart) + len(id); len(line) > n && line[n] == '"' &&
		string(line[:len(idStart)]) == idStart && string(line[len(idStart):n]) == id {
		return true
	}
	o, err := wire.ParseOutcome(line)
	return err == nil && o.ID == id
}
