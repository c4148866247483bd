package push

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/priority"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// fatalError is one that no retry resolves.
type fatalError struct{ error }

// pull passes the messages of a place to take. A consumer that was lost is made again where it was. Errors end the whole Run.
func (p *Pusher) pull(at place, take func(delivery) error) error {
	what := fmt.Sprintf("lane %d", at.lane)
	switch {
	case at.lane == OutLane:
		what = topology.PushOutStream
	case at.waits:
		what = "waiting messages"
	}
	for {
		cause := p.from.pull(p.ctx, at, take)
		var fatal *fatalError
		switch {
		case p.ctx.Err() != nil:
			return nil
		case errors.As(cause, &fatal):
			return fmt.Errorf("%s: %w", what, fatal.error)
		case errors.Is(cause, nats.ErrConnectionClosed), errors.Is(cause, jetstream.ErrConnectionClosed):
			return fmt.Errorf("%s: %w", what, cause)
		}
		err := p.from.mend(p.ctx, at, cause)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("%w: %s, name %q (%w)", ErrGone, what, p.opts.Name, err)
		}
		if err != nil {
			p.opts.Logger.Warn("the push sender's consumer is gone and could not be made again yet", "name", p.opts.Name, "of", what, "err", err)
		}
	}
}

// take reads a message of the log. It is tried now if a call is free; if not it is put into WaitStream, so that what comes
// after it with a higher priority is found. While the gateway is away it stays here, and the lane with it.
func (p *Pusher) take(lane int, msg delivery) error {
	w := p.newWork(msg, messageID{Lane: lane, Sequence: msg.Sequence, Stored: msg.Time.UnixNano()})
	if p.ctx.Err() != nil {
		p.nak(w, 0)
		return nil
	}
	m, err := p.read(w)
	switch {
	case p.ctx.Err() != nil && err != nil:
		p.nak(w, 0)
		return nil
	case errors.Is(err, eventlog.ErrSkipped):
		p.count.skipped.Add(1)
		w.log.Warn("a message in the skip list is ignored")
		p.ack(w)
		p.Changed.Send(struct{}{})
		return nil
	case err != nil:
		p.count.skipped.Add(1)
		w.log.Error("a foreign message was ignored; find the program that writes to "+p.source.stream(nil, lane).Name(), "err", err)
		p.ack(w)
		p.Changed.Send(struct{}{})
		return nil
	}
	var bad []error
	if w.left, bad = p.source.lines(p.log, lane, &m); len(bad) > 0 && msg.deliveries == 1 {
		p.count.skipped.Add(uint64(len(bad)))
		w.log.Error("lines that do not belong there were ignored; they are in "+p.source.stream(nil, lane).Name(), "err", errors.Join(bad...))
	}
	if len(w.left) == 0 {
		_ = p.from.answer(msg.token, asAck, 0) // one that is lost is followed by another delivery
		return nil
	}
	if !p.start(w) {
		return nil
	}
	w.class, w.total = priority.Of(m.Priority), len(w.left)
	p.admit(w)
	return nil
}

// newWork is a message, or an entry of WaitStream about one.
func (p *Pusher) newWork(msg delivery, id messageID) *work {
	return &work{msg: msg, id: id, log: p.opts.Logger.With("name", p.opts.Name, "lane", id.Lane, "sequence", id.Sequence)}
}

// start reports whether the message is new to this process.
func (p *Pusher) start(w *work) bool {
	switch p.tracker.start(w.id) {
	case finished:
		p.count.repeated.Add(1)
		p.ack(w)
		p.Changed.Send(struct{}{})
		return false
	case inFlight:
		// Progress reports were lost. The goroutine at work continues, and its acknowledgement counts for this delivery, too.
		p.count.repeated.Add(1)
		return false
	}
	w.stop = p.keepAlive(w)
	return true
}

// admit decides whether a message of the log is tried now or waits. After a crash here it is delivered again.
func (p *Pusher) admit(w *work) {
	now, later, fresh := p.call.suspects.sort(w.left)
	if len(later) > 0 && !p.put(w, again, later, entry{}) {
		p.giveBack(w, p.opts.pause(1))
		return
	}
	if w.left = now; len(now) == 0 {
		p.finish(w)
		return
	}
	switch t, ok := p.gate.try(p.ctx, w.class, fresh); {
	case !ok && p.put(w, w.class, now, entry{}):
		p.finish(w)
	case !ok:
		p.giveBack(w, p.opts.pause(1))
	case t == nil:
		p.giveBack(w, 0)
	default:
		p.works.Go(func() { p.work(w, t) })
	}
}

// takeEntry reads an entry of WaitStream and the message that it refers to, and waits for a call.
func (p *Pusher) takeEntry(msg delivery) error {
	if err := checkFormat(fmt.Sprintf("message %d of stream %s", msg.Sequence, WaitStream), msg.Header); err != nil {
		return err // it is not acknowledged: nothing else holds what it refers to
	}
	var e entry
	_, c, id, err := parseWaitSubject(msg.Subject)
	if err == nil {
		err = json.Unmarshal(msg.Data, &e)
	}
	w := p.newWork(msg, id)
	w.class, w.tries, w.split, w.answers = c, e.Tries, e.Split, e.Answers
	if err == nil && p.lanes[id.Lane] == nil {
		err = fmt.Errorf("the log has no lane %d", id.Lane)
	}
	if err != nil {
		p.count.skipped.Add(1)
		w.log.Error("a foreign message was ignored; find the program that publishes to "+waitSubjects+">", "err", err)
		p.ack(w)
		return nil
	}
	due := e.At.Sub(p.opts.Clock.Now())
	if p.ctx.Err() != nil || due > 0 {
		p.nakExactly(w, min(max(due, 0), p.opts.recheck()))
		return nil
	}
	if e.Process != p.process {
		w.answers = p.gate.answered()
	}
	if !p.start(w) {
		return nil
	}
	m, err := p.lookup(w)
	switch {
	case err == nil:
	case errors.Is(err, eventlog.ErrForeign), errors.Is(err, eventlog.ErrLostTail), errors.Is(err, eventlog.ErrTrimmed), errors.Is(err, eventlog.ErrHole):
		w.log.Warn("a waiting message is not in the log any more; the log was restored, or the message is in the skip list", "err", err)
		p.count.skipped.Add(1)
		p.finish(w)
		return nil
	default:
		w.log.Warn("a waiting message could not be read; it is tried later", "err", err)
		p.giveBack(w, p.opts.pause(1))
		return nil
	}
	all, _ := p.source.lines(p.log, id.Lane, &m)
	w.left, w.total = only(all, e.Lines), len(all)
	if len(w.left) == 0 {
		p.finish(w)
		return nil
	}
	_, _, fresh := p.call.suspects.sort(w.left)
	t := p.gate.enter(p.ctx, c, fresh)
	if t == nil {
		p.giveBack(w, 0)
		return nil
	}
	p.works.Go(func() { p.work(w, t) })
	return nil
}

func (p *Pusher) lookup(w *work) (eventlog.Message, error) {
	raw, err := p.from.read(p.ctx, w.id.Lane, w.id.Sequence)
	if err != nil {
		return eventlog.Message{}, err
	}
	if raw.Time.UnixNano() != w.id.Stored {
		return eventlog.Message{}, fmt.Errorf("message %d is another one: %w", w.id.Sequence, eventlog.ErrLostTail)
	}
	return p.lanes[w.id.Lane].read(&raw)
}

// read parses a message. At one of a newer format, or one that cannot be read, the lane waits, with the message in flight,
// until it is in the skip list or Run is to end; the other lanes continue. After a crash here another process gets the
// message and waits, too.
func (p *Pusher) read(w *work) (eventlog.Message, error) {
	lane := p.lanes[w.id.Lane]
	m, err := lane.read(&w.msg.Raw)
	var stop *eventlog.StopError
	if !errors.As(err, &stop) {
		return m, err
	}
	defer p.keepAlive(w)()
	p.count.stopped.Add(1)
	defer p.count.stopped.Add(-1)
	p.Changed.Send(struct{}{})
	w.log.Error(fmt.Sprintf("the lane waits at a message that this program cannot read: run a newer one, or start scrip serve once with --skip-message %s%d=%d to lose the message", p.source.skip, w.id.Lane, w.id.Sequence), "err", err)
	skips, waited := p.from.awaitSkip(p.ctx, w.id.Lane, err)
	if waited != nil {
		return m, err
	}
	lane.passOver(skips)
	return lane.read(&w.msg.Raw)
}
