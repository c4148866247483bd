package command

import (
	"errors"

	"github.com/nats-io/nats.go"
)

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
		// A batch that is acknowledged and has no outcome waits for its lane, which the node does reach.
		if !b.done && !b.acked && b.tries > 0 && now-b.sentAt > unanswered && r.lanes.online.Load() {
			r.lanes.mover.Unanswered() // an answer to any other message on the connection outweighs it
		}
	}
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
