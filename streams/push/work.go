package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

const (
	// ackFor is how long an acknowledgement, or what has to be stored before it, is retried.
	ackFor = 30 * time.Second
	// ackOnce bounds one attempt.
	ackOnce  = 2 * time.Second
	ackPause = 100 * time.Millisecond
	// spread is the jitter of pauses, so that messages that failed together are not retried together.
	spread = 0.2
	// crashes is how many deliveries per try a message may have without being finished. Then its dead letter is written before
	// the next call, and removed after it: a message that crashes every process leaves its letter, and one that met many
	// restarts is delivered.
	crashes = 2
)

var (
	errNoEnd  = errors.New("no process finished it: each one that took it died, was stopped or lost its connection")
	errTooOld = errors.New("it is too old to be delivered")
	errAway   = errors.New("the gateway is away")
)

// work is one message in flight, or an entry of WaitStream. It is owned by its goroutine.
type work struct {
	msg     delivery
	id      messageID
	class   class
	tries   int    // that failed
	answers uint64 // calls that had been answered when the last one failed
	split   bool
	total   int    // items of the message
	left    []item // to be delivered
	stop    func() // ends the progress reports
	log     *slog.Logger
}

// work is one try of a message and what follows: delivered, waiting for another try, a dead letter, or returned to NATS.
func (p *Pusher) work(w *work, t *turn) {
	guarded, ok := p.prepareTry(w)
	if !ok {
		p.leave(t, &result{})
		return
	}
	all := w.left
	r := p.try(w, t)
	w.left = r.left
	if guarded {
		for of, some := range parts(w.id, all) {
			if err := p.from.remove(p.hard, of, keysOf(some)); err != nil {
				w.log.Error("a dead letter of reminders that were tried could not be removed; remove it from "+DeadStream, "err", err)
			}
		}
	}
	pause := time.Duration(0)
	if errors.Is(r.cause, errUnchecked) {
		pause = p.opts.pause(1)
		w.log.Warn("reminders are not delivered for now", "err", r.cause)
	}
	switch {
	case r.cause == nil:
		// After a crash before the acknowledgement all of them are pushed again, under the same keys.
		p.finish(w)
	case r.cutOff() && len(r.left) == len(all):
		p.giveBack(w, pause)
	case r.cutOff():
		p.later(w, w.class, entry{Tries: w.tries, Split: w.split}, pause)
	default:
		p.failedTry(w, &r)
	}
}

// leave ends a turn.
func (p *Pusher) leave(t *turn, r *result) {
	p.gate.leave(t, r.gateway, r.retryAfter)
	p.Changed.Send(struct{}{})
}

// try passes what is left to the function, each batch in a turn of its own, the first in one that is granted already: several at
// once where calls are free, and what is more urgent goes between them. At the end of Run no other batch is started.
func (p *Pusher) try(w *work, first *turn) (r result) {
	var mu sync.Mutex // guards r
	var calls sync.WaitGroup
	add := func(o result) {
		mu.Lock()
		defer mu.Unlock()
		r.merge(o)
	}
	works, gone := context.WithCancelCause(p.ctx)
	defer gone(nil)
	for i, batch := range p.call.batches(w.left, w.split) {
		t := first
		if i > 0 {
			_, _, fresh := p.call.suspects.sort(batch)
			if t = p.gate.enter(works, w.class, fresh); t == nil {
				o := result{left: batch}
				if context.Cause(works) != errAway {
					o.cause = errEnding
				}
				add(o)
				continue
			}
		}
		t.customers = len(batch)
		calls.Go(func() {
			o := p.call.one(p.hard, batch)
			delivered, dropped := uint64(len(batch)-len(o.left)-o.dropped), uint64(o.dropped)
			p.count.pushed.Add(delivered)
			p.lanes[w.id.Lane].delivered.Add(delivered)
			p.count.optedOut.Add(dropped)
			p.lanes[w.id.Lane].optedOut.Add(dropped)
			add(o)
			if o.gateway == away {
				gone(errAway)
			}
			p.leave(t, &o)
		})
	}
	calls.Wait()
	slices.SortFunc(r.left, func(a, b item) int { return a.number - b.number })
	return r
}

// prepareTry decides what is not tried at all: what is in a dead letter already, and what is too old. ok is false if nothing
// is left to try. guarded means that a dead letter was written for the case that this try ends the process.
func (p *Pusher) prepareTry(w *work) (guarded, ok bool) {
	retry := func(what string, err error) (bool, bool) {
		w.log.Warn(what+"; the message is retried later", "err", err)
		p.giveBack(w, p.opts.pause(1))
		return false, false
	}
	if w.msg.deliveries > 1 || w.id.Hop > 0 {
		// A process may have died between the dead letter and the acknowledgement.
		there := map[string]bool{}
		for of := range parts(w.id, w.left) {
			err := p.persist(ackFor, func(ctx context.Context) error {
				letter, _, err := p.from.letter(ctx, of)
				for _, r := range letter.Reminders {
					there[r.Key] = true
				}
				return err
			})
			if err != nil {
				return retry("the dead-letter lookup failed", err)
			}
		}
		w.left = slices.DeleteFunc(w.left, func(it item) bool { return there[it.Key] })
		if len(w.left) == 0 {
			p.count.repeated.Add(1)
			p.finish(w)
			return false, false
		}
	}
	if p.opts.MaxAge > 0 {
		since := max(w.id.Stored, p.lanes[w.id.Lane].used.UnixNano())
		if age := p.opts.Clock.Now().Sub(time.Unix(0, since)); age > p.opts.MaxAge {
			p.storeDeadLetter(w, w.tries, fmt.Errorf("%w: %s, and MaxAge is %s", errTooOld, age.Round(time.Second), p.opts.MaxAge))
			return false, false
		}
	}
	if w.msg.deliveries > crashes*p.opts.Tries {
		for _, letter := range p.newLetters(w.id, w.left, w.msg.deliveries-1, errNoEnd) {
			if err := p.from.add(p.hard, &letter); err != nil {
				return retry("a dead letter could not be written", err)
			}
		}
		return true, true
	}
	return false, true
}

// failedTry decides about what a try left.
func (p *Pusher) failedTry(w *work, r *result) {
	p.count.failed.Add(1)
	p.lanes[w.id.Lane].failed.Add(1)
	p.Changed.Send(struct{}{})
	if p.call.hung.Load() >= int64(hungPerWorker*p.opts.Workers) {
		p.fail(fmt.Errorf("push: %w: %d calls have not returned although their context ended; fix the function, or restart the process", ErrHangs, p.call.hung.Load()))
	}
	answers := p.gate.answered()
	tries, class, pause := w.tries, again, p.opts.pause(max(w.tries, 1))
	switch {
	case r.gateway == away:
		class, pause = w.class, 0 // the gate decides when
	case r.refused, w.tries == 0, answers > w.answers:
		tries++
		pause = p.opts.pause(tries)
	}
	if tries >= p.opts.Tries || r.final {
		p.storeDeadLetter(w, tries, r.cause)
		return
	}
	w.log.Warn("a push failed; it is retried", "failed", tries, "of", p.opts.Tries, "left", len(w.left), "err", r.cause)
	p.later(w, class, entry{Tries: tries, Split: w.split || r.mixed, Process: p.process, Answers: answers}, spreadOut(pause))
}

// storeDeadLetter stores what is left as dead letters, after so many failed tries, and ends the work.
func (p *Pusher) storeDeadLetter(w *work, tries int, cause error) {
	for _, letter := range p.newLetters(w.id, w.left, tries, cause) {
		customers := uint64(len(letter.Reminders))
		if err := p.from.add(p.hard, &letter); err != nil {
			// The next process that gets the message finds those that are stored.
			w.log.Error("a dead letter could not be written; its reminders are retried later", "err", err)
			p.giveBack(w, pauseMost)
			return
		}
		p.count.dead.Add(customers)
		p.lanes[w.id.Lane].dead.Add(customers)
		w.log.Error("reminders given up and stored as a dead letter", "customers", customers, "letter", letter.ID, "tries", tries, "err", cause)
		if p.opts.OnDead != nil {
			p.opts.OnDead(letter)
		}
	}
	// After a crash before the acknowledgement the next process finds the letter and acknowledges.
	p.finish(w)
}

// later puts what is left into WaitStream, for a try after a pause, and ends the work.
func (p *Pusher) later(w *work, c class, e entry, pause time.Duration) {
	if pause > 0 {
		e.At = p.opts.Clock.Now().Add(pause)
	}
	if !p.put(w, c, w.left, e) {
		p.giveBack(w, pause)
		return
	}
	p.finish(w)
}

// put stores an entry for items of the message. After a crash before the acknowledgement the items are delivered by the
// message and by the entry, under the same keys.
func (p *Pusher) put(w *work, c class, items []item, e entry) bool {
	if len(items) < w.total {
		for _, it := range items {
			e.Lines = append(e.Lines, it.number)
		}
	}
	id := w.id
	id.Hop++
	id.Line = items[0].number
	err := p.persist(ackFor, func(ctx context.Context) error { return p.from.put(ctx, c, id, e) })
	if err != nil {
		w.log.Warn("a message could not be set aside; NATS delivers it again", "err", err)
	}
	return err == nil
}

// persist repeats a request to the server until it succeeds, for so long at most: one that restarts is back by then, and may
// ignore a message that is returned to it under the number of a delivery that it has forgotten.
func (p *Pusher) persist(most time.Duration, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), most)
	defer cancel()
	for {
		err := request(ctx)
		if err == nil || errors.Is(err, nats.ErrConnectionClosed) || natsx.Pause(ctx, ackPause) != nil {
			return err
		}
	}
}

// finish ends the work on a message that needs no other delivery.
func (p *Pusher) finish(w *work) {
	p.tracker.finish(w.id)
	p.ack(w)
	w.stop()
	p.tracker.leave(w.id)
	p.Changed.Send(struct{}{})
}

// giveBack ends the work and returns the message to NATS.
func (p *Pusher) giveBack(w *work, delay time.Duration) {
	w.stop()
	p.tracker.leave(w.id)
	p.nak(w, delay)
	p.Changed.Send(struct{}{})
}

// ack acknowledges until the server confirms it.
func (p *Pusher) ack(w *work) {
	err := p.persist(p.ackFor, func(ctx context.Context) error {
		once, done := context.WithTimeout(ctx, ackOnce)
		defer done()
		return p.from.confirm(once, w.msg.token)
	})
	if err != nil {
		// This process recognises the message when it is delivered again; another one does not.
		w.log.Warn("the acknowledgement failed after the delivery; NATS delivers the message again after AckWait", "err", err)
	}
}

// nak returns the message to NATS, for any process after a delay. If that is lost, AckWait has the same effect.
func (p *Pusher) nak(w *work, delay time.Duration) { p.nakExactly(w, spreadOut(delay)) }

func (p *Pusher) nakExactly(w *work, delay time.Duration) {
	if err := p.from.answer(w.msg.token, asNak, delay); err != nil {
		w.log.Warn("a message could not be returned; NATS delivers it again after AckWait", "err", err)
	}
}

// keepAlive reports progress on the message to the server until the returned function is called. That is bounded: calls by
// Timeout, waiting for one by the gateway's absence, in which each process has few messages.
func (p *Pusher) keepAlive(w *work) (stop func()) {
	done := make(chan struct{})
	p.progress.Go(func() {
		tick := time.NewTicker(p.progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				_ = p.from.answer(w.msg.token, asProgress, 0) // a lost one is followed by another
			}
		}
	})
	return func() { close(done) }
}

func spreadOut(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - spread + 2*spread*rand.Float64()))
}
