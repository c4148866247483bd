package batcher

import (
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
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
	buf     []byte // all lines, each with its newline; dropped with the batch
	entries []entry
	waiting int   // entries without an answer yet
	weight  int64 // of the route's room; released when the batch is done

	sweeps   int // sweeps that found it open
	sent     bool
	done     bool
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
func (b *batch) add(line Line, deadline time.Duration, weight int64) int32 {
	b.buf = append(append(b.buf, line.JSON...), '\n')
	b.entries = append(b.entries, entry{to: line.To, id: line.ID, end: len(b.buf), deadline: deadline})
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
		b.route.c.counters.notDurable.Add(1)
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
