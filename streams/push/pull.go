package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

const (
	// pullFor is how long the server keeps a pull request; pullBeat is the interval of its idle heartbeats. After twice that
	// without one the request is sent again.
	pullFor  = 30 * time.Second
	pullBeat = 2 * time.Second
	// drainFor bounds the wait at the end for a pull request in flight; a server that is unreachable does not answer it.
	drainFor = 2 * time.Second
	// requestTimeout bounds one request to the server.
	requestTimeout = 5 * time.Second
	// goneAfter is how often in a row the consumer must be missing: a cluster during an election may report it missing once.
	goneAfter    = 3
	missingPause = 300 * time.Millisecond
)

// feed is a consumer and what is done with its messages.
type feed struct {
	what   string // for errors
	stream string
	ahead  int // messages requested at once
	open   func(ctx context.Context) (puller, error)
	take   func(msg delivery) error
}

// lane is the feed of one lane of the log.
func (p *Pusher) lane(lane int) feed {
	return feed{
		what: fmt.Sprintf("lane %d", lane), stream: p.source.stream(p.js, lane).Name(), ahead: p.source.ahead,
		open: func(ctx context.Context) (puller, error) { return p.openLane(ctx, lane) },
		take: func(msg delivery) error { return p.take(lane, msg) },
	}
}

// waitingOf is the feed of one class of WaitStream.
func (p *Pusher) waitingOf(c class) feed {
	return feed{
		what: "waiting messages", stream: WaitStream, ahead: 1,
		open: func(ctx context.Context) (puller, error) { return p.openClass(ctx, c) },
		take: p.takeEntry,
	}
}

// pull takes a feed's messages. A consumer that was lost is made again where it was. Errors end the whole Run.
func (p *Pusher) pull(f feed, from puller) error {
	for {
		cause := p.iterate(f, from)
		var fatal *fatalError
		switch {
		case p.ctx.Err() != nil:
			return nil
		case errors.As(cause, &fatal):
			return fatal.error
		case errors.Is(cause, nats.ErrConnectionClosed), errors.Is(cause, jetstream.ErrConnectionClosed):
			return fmt.Errorf("push: %s: %w", f.what, cause)
		}
		// No heartbeat from the server, or the consumer is missing.
		if from.gone(p.ctx, cause) == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(p.ctx, requestTimeout)
		made, err := f.open(ctx)
		cancel()
		switch {
		case err == nil:
			from = made
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return fmt.Errorf("push: %w: %s, name %q (%w)", ErrGone, f.what, p.opts.Name, err)
		default:
			p.opts.Logger.Warn("the push sender's consumer is gone and could not be made again yet", "name", p.opts.Name, "stream", f.stream, "err", err)
		}
	}
}

// fatalError is one that no retry resolves.
type fatalError struct{ error }

// iterate takes messages until there is an error.
func (p *Pusher) iterate(f feed, from puller) error {
	messages, err := from.messages(f.ahead)
	if err != nil {
		return fmt.Errorf("requesting messages: %w", err)
	}
	defer messages.stop()
	// At the end a message may be in flight to this process. Drain waits for it, so that it can be returned instead of
	// being missing until AckWait is over.
	patience, cancel := context.WithCancel(context.WithoutCancel(p.ctx))
	defer cancel()
	defer context.AfterFunc(p.ctx, func() {
		messages.drain()
		_ = natsx.Pause(patience, drainFor)
		cancel()
	})()
	for {
		msg, err := messages.next(patience)
		if err != nil {
			return err
		}
		if err := f.take(msg); err != nil {
			return &fatalError{err}
		}
	}
}

// take reads a message of the log. It is tried now if a call is free; if not it is put into WaitStream, so that what is
// behind it with a higher priority is found. While the gateway is away it stays here, and the lane with it.
func (p *Pusher) take(lane int, msg delivery) error {
	meta, err := msg.Metadata()
	if err != nil {
		return fmt.Errorf("push: lane %d: a message without JetStream metadata: %w", lane, err)
	}
	log := p.opts.Logger.With("name", p.opts.Name, "lane", lane, "sequence", meta.Sequence.Stream)
	w := &work{
		msg: msg, lane: lane, sequence: meta.Sequence.Stream, deliveries: int(meta.NumDelivered), log: log,
		id: messageID{Lane: lane, Sequence: meta.Sequence.Stream, Stored: meta.Timestamp.UnixNano()},
	}
	if p.ctx.Err() != nil {
		p.nak(w, 0)
		return nil
	}
	m, err := p.read(w, meta.Timestamp)
	switch {
	case p.ctx.Err() != nil && err != nil:
		p.nak(w, 0)
		return nil
	case errors.Is(err, eventlog.ErrSkipped):
		p.count.skipped.Add(1)
		log.Warn("a message in the skip list is ignored")
		p.ack(w)
		p.Changed.Send(struct{}{})
		return nil
	case err != nil:
		p.count.skipped.Add(1)
		log.Error("a foreign message was ignored; find the program that publishes to "+p.source.subject(lane), "err", err)
		p.ack(w)
		p.Changed.Send(struct{}{})
		return nil
	}
	var bad []error
	if w.left, bad = p.source.lines(p.log.UUID, lane, &m); len(bad) > 0 && w.deliveries == 1 {
		p.count.skipped.Add(uint64(len(bad)))
		log.Error("lines that do not belong there were ignored; they are in "+p.source.stream(p.js, lane).Name(), "err", errors.Join(bad...))
	}
	if len(w.left) == 0 {
		_ = msg.Ack() // one that is lost is followed by another delivery
		return nil
	}
	if !p.begin(w) {
		return nil
	}
	w.class, w.total = classOf(m.Priority), len(w.left)
	p.admit(w)
	return nil
}

// begin reports whether the message is new to this process.
func (p *Pusher) begin(w *work) bool {
	switch p.tracker.begin(w.id) {
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
	meta, err := msg.Metadata()
	if err != nil {
		return fmt.Errorf("push: a message without JetStream metadata: %w", err)
	}
	if err := checkFormat(fmt.Sprintf("message %d of stream %s", meta.Sequence.Stream, WaitStream), msg.Headers()); err != nil {
		return fmt.Errorf("push: %w", err) // it is not acknowledged: nothing else holds what it refers to
	}
	var e entry
	_, c, id, err := parseWaitSubject(msg.Subject())
	if err == nil {
		err = json.Unmarshal(msg.Data(), &e)
	}
	w := &work{
		msg: msg, lane: id.Lane, sequence: id.Sequence, deliveries: int(meta.NumDelivered), id: id, class: c,
		tries: e.Tries, split: e.Split, answers: e.Answers, log: p.opts.Logger.With("name", p.opts.Name, "lane", id.Lane, "sequence", id.Sequence),
	}
	if err == nil && (id.Lane < 0 || id.Lane >= len(p.judges)) {
		err = fmt.Errorf("the log has lanes 0 to %d", len(p.judges)-1)
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
	if !p.begin(w) {
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
	all, _ := p.source.lines(p.log.UUID, w.lane, &m)
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

// lookup reads the message of the log that an entry refers to.
func (p *Pusher) lookup(w *work) (eventlog.Message, error) {
	raw, err := p.get(w.lane, w.sequence)
	if err != nil {
		return eventlog.Message{}, err
	}
	if raw.Time.UnixNano() != w.id.Stored {
		return eventlog.Message{}, fmt.Errorf("message %d is another one: %w", w.sequence, eventlog.ErrLostTail)
	}
	return p.judges[w.lane].read(&raw)
}

// get reads a message of the log.
func (p *Pusher) get(lane int, sequence uint64) (eventlog.Raw, error) {
	if p.proxy != nil {
		return p.proxy.read(p.ctx, lane, sequence)
	}
	return p.source.stream(p.js, lane).In(p.log).Get(p.ctx, sequence)
}

// awaitSkip waits until the message that stopped a lane is in the skip list, and returns that, or until Run is to end.
func (p *Pusher) awaitSkip(lane int, cause error) (eventlog.Skips, error) {
	if p.proxy != nil {
		return p.proxy.awaitSkip(p.ctx, p, lane, cause)
	}
	return p.source.stream(p.js, lane).AwaitSkip(p.ctx, cause)
}

// read parses a message. At one of a newer format, or one that cannot be read, the lane waits, with the message in flight,
// until it is in the skip list or Run is to end; the other lanes continue. After a crash here another process gets the
// message and waits, too.
func (p *Pusher) read(w *work, stored time.Time) (eventlog.Message, error) {
	raw := &eventlog.Raw{Subject: w.msg.Subject(), Header: w.msg.Headers(), Data: w.msg.Data(), Sequence: w.sequence, Time: stored}
	m, err := p.judges[w.lane].read(raw)
	var stop *eventlog.StopError
	if !errors.As(err, &stop) {
		return m, err
	}
	defer p.keepAlive(w)()
	p.count.stopped.Add(1)
	defer p.count.stopped.Add(-1)
	p.Changed.Send(struct{}{})
	w.log.Error(fmt.Sprintf("the lane waits at a message that this program cannot read: run a newer one, or start scrip serve once with --skip-message %s%d=%d to lose the message", p.source.skip, w.lane, w.sequence), "err", err)
	skips, waited := p.awaitSkip(w.lane, err)
	if waited != nil {
		return m, err
	}
	p.judges[w.lane].passOver(skips)
	return p.judges[w.lane].read(raw)
}
