package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// ackFor is how long an acknowledgement is retried; a server that restarts is back by then.
	ackFor = 30 * time.Second
	// ackOnce bounds one attempt.
	ackOnce  = 2 * time.Second
	ackPause = 100 * time.Millisecond
	// spread is the jitter of pauses, so that messages that failed together are not retried together.
	spread = 0.2
	// crashes is how many deliveries per try a message may have without being finished. A message that crashes every
	// process is then given up; one that met a few restarts is not. It also bounds the tries of a message that goes from
	// process to process, each of which counts its own failures only.
	crashes = 2
)

var errNoEnd = errors.New("no process finished it: each one that took it died, was stopped or lost its connection")

// work is one message in flight. It is owned by its goroutine.
type work struct {
	msg        jetstream.Msg
	id         messageID
	lane       int
	sequence   uint64
	deliveries int        // deliveries, this one included
	failed     int        // tries that failed in this process, those of earlier deliveries included
	delivered  int        // customers
	left       []Reminder // to be delivered
	log        *slog.Logger
}

// work finishes one message: delivered, a dead letter, or returned to NATS. started is closed when it has a worker, or
// needs none.
func (p *Pusher) work(w *work, started chan struct{}) {
	start := sync.OnceFunc(func() { close(started) })
	defer start()
	defer p.tracker.leave(w.id)
	defer p.keepAlive(w)()

	if w.deliveries > 1 {
		// A process may have died between the dead letter and the acknowledgement.
		there, err := p.dead.has(p.hard, p.opts.Name, w.id)
		if err != nil {
			w.log.Warn("the dead-letter lookup failed; the message is retried later", "err", err)
			p.nak(w, p.opts.pause(1))
			return
		}
		if there {
			p.count.repeated.Add(1)
			p.ack(w)
			return
		}
	}
	for {
		if !p.acquireSlot(w) {
			p.nak(w, 0)
			return
		}
		start()
		again := p.tryOnce(w)
		if !again {
			<-p.slots
			return
		}
		// Some were delivered, and only this process knows which. So it keeps the message.
		select {
		case p.paused <- struct{}{}:
			<-p.slots
			p.pause(w)
			<-p.paused
		default:
			p.pause(w)
			<-p.slots
		}
	}
}

// acquireSlot waits for a worker. When Run is ending it starts no new message; but one that was delivered to some customers is
// tried once more, because another process would deliver to all of them again.
func (p *Pusher) acquireSlot(w *work) bool {
	ctx := p.ctx
	if w.delivered > 0 {
		ctx = p.hard
	}
	if ctx.Err() != nil {
		return false
	}
	select {
	case p.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// tryOnce is one try and its consequences. It reports whether the message is kept for another try.
func (p *Pusher) tryOnce(w *work) (again bool) {
	if w.deliveries > crashes*p.opts.Tries {
		p.writeDeadLetter(w, w.deliveries-1, errNoEnd)
		return false
	}
	ending := p.ctx.Err() != nil
	left, cause := p.call.try(p.hard, w.left)
	delivered := len(w.left) - len(left)
	p.count.pushed.Add(uint64(delivered))
	w.delivered, w.left = w.delivered+delivered, left
	if cause == nil {
		// After a crash before the acknowledgement all of them are pushed again, under the same keys.
		p.tracker.finish(w.id)
		p.ack(w)
		return false
	}
	if p.hard.Err() != nil && errors.Is(cause, errEnding) {
		p.nak(w, 0) // not the function's fault
		return false
	}
	w.failed = p.tracker.fail(w.id)
	p.count.failed.Add(1)
	if p.call.hung.Load() >= int64(hungPerWorker*p.opts.Workers) {
		p.fail(fmt.Errorf("push: %w: %d calls have not returned although their context ended; fix the function, or restart the process", ErrHangs, p.call.hung.Load()))
	}
	// A delivery alone is no failure: a process that is stopped returns messages that it has not tried.
	switch {
	case w.failed >= p.opts.Tries:
		p.writeDeadLetter(w, w.failed, cause)
		return false
	case w.deliveries >= crashes*p.opts.Tries:
		p.writeDeadLetter(w, w.deliveries, cause)
		return false
	}
	w.log.Warn("a push failed; it is retried", "failed", w.failed, "of", p.opts.Tries, "left", len(w.left), "delivered", w.delivered, "err", cause)
	if w.delivered == 0 || ending {
		p.nak(w, p.opts.pause(w.failed))
		return false
	}
	return true
}

// writeDeadLetter stores what is left as a dead letter, after so many tries, and acknowledges.
func (p *Pusher) writeDeadLetter(w *work, tries int, cause error) {
	letter := newLetter(p.opts.Name, w, tries, cause)
	err := p.dead.keep(p.hard, &letter, 0)
	switch {
	case errors.Is(err, errChanged): // it is stored: an earlier attempt succeeded
	case err != nil:
		w.log.Error("a dead letter could not be written; its reminders are retried later", "err", err)
		p.nak(w, pauseMost)
		return
	default:
		p.count.dead.Add(uint64(len(letter.Reminders)))
		w.log.Error("reminders given up and stored as a dead letter", "customers", len(letter.Reminders), "letter", letter.ID, "tries", letter.Tries, "err", cause)
		if p.opts.OnDead != nil {
			p.opts.OnDead(letter)
		}
	}
	// After a crash before the acknowledgement the next process finds the letter and acknowledges.
	p.tracker.finish(w.id)
	p.ack(w)
}

// ack acknowledges until the server confirms it, for at most ackFor.
func (p *Pusher) ack(w *work) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), ackFor)
	defer cancel()
	for {
		once, done := context.WithTimeout(ctx, ackOnce)
		err := w.msg.DoubleAck(once)
		done()
		if err == nil {
			return
		}
		if topology.Pause(ctx, ackPause) != nil || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
			// This process recognises the message when it is delivered again; another one does not.
			w.log.Warn("the acknowledgement failed after the delivery; NATS delivers the message again after AckWait", "err", err)
			return
		}
	}
}

// nak returns the message to NATS, for any process after a delay. If that is lost, AckWait has the same effect.
func (p *Pusher) nak(w *work, delay time.Duration) {
	var err error
	if delay > 0 {
		err = w.msg.NakWithDelay(spreadOut(delay))
	} else {
		err = w.msg.Nak()
	}
	if err != nil {
		w.log.Warn("a message could not be returned; NATS delivers it again after AckWait", "err", err)
	}
}

// pause waits for the next try in this process. It ends early when Run is to end.
func (p *Pusher) pause(w *work) {
	_ = topology.Pause(p.ctx, spreadOut(p.opts.pause(w.failed)))
}

// keepAlive reports progress on the message to the server until the returned function is called. That is bounded: calls by
// Timeout, tries by Tries.
func (p *Pusher) keepAlive(w *work) (stop func()) {
	done := make(chan struct{})
	p.works.Go(func() {
		tick := time.NewTicker(p.beats)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				_ = w.msg.InProgress() // a lost one is followed by another
			}
		}
	})
	return func() { close(done) }
}

func spreadOut(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - spread + 2*spread*rand.Float64()))
}
