package push

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
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

// consumer finds the lane's consumer or makes it. It is never changed afterwards.
func (p *Pusher) consumer(ctx context.Context, lane int) (jetstream.Consumer, error) {
	stream := topology.RmdStream(lane)
	consumer, err := p.js.Consumer(ctx, stream, p.opts.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		want := jetstream.ConsumerConfig{
			Durable: p.opts.Name, Description: "a scrip push sender",
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: p.opts.AckWait, MaxAckPending: p.opts.Unacked,
			// Tries are counted here: a server that stopped delivering would lose messages that are no dead letter yet.
			MaxDeliver: -1, DeliverPolicy: jetstream.DeliverNewPolicy,
		}
		switch since := p.opts.Since; {
		case since.all:
			want.DeliverPolicy = jetstream.DeliverAllPolicy
		case !since.at.IsZero():
			want.DeliverPolicy, want.OptStartTime = jetstream.DeliverByStartTimePolicy, &since.at
		}
		consumer, err = p.js.CreateConsumer(ctx, stream, want)
		if errors.Is(err, jetstream.ErrConsumerExists) { // another process was first, with other settings
			consumer, err = p.js.Consumer(ctx, stream, p.opts.Name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("push: consumer %q of stream %s: %w", p.opts.Name, stream, err)
	}
	if have := consumer.CachedInfo().Config; have.AckPolicy != jetstream.AckExplicitPolicy || have.MaxDeliver > 0 {
		return nil, fmt.Errorf("push: stream %s has a consumer %q that is no push sender's (ack policy %s, at most %d deliveries); use another Name, or remove it",
			stream, p.opts.Name, have.AckPolicy, have.MaxDeliver)
	}
	return consumer, nil
}

// pull takes one lane's messages, one at a time and only when a worker is free. Errors end the whole Run.
func (p *Pusher) pull(lane int, consumer jetstream.Consumer) error {
	for {
		cause := p.iterate(lane, consumer)
		var fatal *fatalError
		switch {
		case p.ctx.Err() != nil:
			return nil
		case errors.As(cause, &fatal):
			return fatal.error
		case errors.Is(cause, nats.ErrConnectionClosed), errors.Is(cause, jetstream.ErrConnectionClosed):
			return fmt.Errorf("push: lane %d: %w", lane, cause)
		}
		// No heartbeat from the server, or the consumer is missing.
		if err := p.gone(lane); err != nil {
			return fmt.Errorf("push: %w: lane %d, name %q (%w); restart to make a new one", ErrGone, lane, p.opts.Name, err)
		}
	}
}

// fatalError is one that no retry resolves.
type fatalError struct{ error }

// iterate takes messages until there is an error.
func (p *Pusher) iterate(lane int, consumer jetstream.Consumer) error {
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1), jetstream.PullExpiry(pullFor), jetstream.PullHeartbeat(pullBeat))
	if err != nil {
		return fmt.Errorf("requesting messages: %w", err)
	}
	defer messages.Stop()
	// At the end a message may be in flight to this process. Drain waits for it, so that it can be returned instead of
	// being missing until AckWait is over.
	patience, cancel := context.WithCancel(context.WithoutCancel(p.ctx))
	defer cancel()
	defer context.AfterFunc(p.ctx, func() {
		messages.Drain()
		_ = topology.Pause(patience, drainFor)
		cancel()
	})()
	for {
		p.untilFree()
		msg, err := messages.Next(jetstream.NextContext(patience))
		if err != nil {
			return err
		}
		if err := p.take(lane, msg); err != nil {
			return &fatalError{err}
		}
	}
}

// gone checks whether the consumer exists, and returns the evidence if it does not. A server that does not answer counts
// as unreachable, which is no evidence.
func (p *Pusher) gone(lane int) error {
	for range goneAfter {
		ctx, cancel := context.WithTimeout(p.ctx, requestTimeout)
		_, err := p.js.Consumer(ctx, topology.RmdStream(lane), p.opts.Name)
		cancel()
		missing := errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
		if topology.Pause(p.ctx, missingPause) != nil || !missing {
			return nil
		}
	}
	return errors.New("the server reported several times that it does not exist")
}

// untilFree waits until a worker is free. It does not reserve it: the next message may come much later.
func (p *Pusher) untilFree() {
	select {
	case p.slots <- struct{}{}:
		<-p.slots
	case <-p.ctx.Done():
	}
}

// take reads a message and starts work on it. It returns when the message has a worker, so that a lane has at most one
// message waiting for one.
func (p *Pusher) take(lane int, msg jetstream.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return fmt.Errorf("push: lane %d: a message without JetStream metadata: %w", lane, err)
	}
	log := p.opts.Logger.With("name", p.opts.Name, "lane", lane, "sequence", meta.Sequence.Stream)
	w := &work{
		msg: msg, lane: lane, sequence: meta.Sequence.Stream, deliveries: int(meta.NumDelivered), log: log,
		id: messageID{lane, meta.Sequence.Stream, meta.Timestamp.UnixNano()},
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
		return nil
	case err != nil:
		p.count.skipped.Add(1)
		log.Error("a foreign message was ignored; find the program that publishes to "+topology.Rmd(lane), "err", err)
		p.ack(w)
		return nil
	}
	var bad []error
	if w.left, bad = readLines(p.log.UUID, lane, &m); len(bad) > 0 && w.deliveries == 1 {
		p.count.skipped.Add(uint64(len(bad)))
		log.Error("lines that are no reminders were ignored; they are in "+topology.RmdStream(lane), "err", errors.Join(bad...))
	}
	switch p.tracker.begin(w.id) {
	case finished:
		p.count.repeated.Add(1)
		p.ack(w)
		return nil
	case inHand:
		// Progress reports were lost. The goroutine at work continues, and its acknowledgement counts for this delivery, too.
		p.count.repeated.Add(1)
		return nil
	}
	if len(w.left) == 0 {
		p.ack(w)
		p.tracker.leave(w.id)
		return nil
	}
	started := make(chan struct{})
	p.works.Go(func() { p.work(w, started) })
	<-started
	return nil
}

// read parses a message. At one of a newer format, or one that cannot be read, the lane waits, with the message in flight,
// until it is in the skip list or Run is to end; the other lanes continue. After a crash here another process gets the
// message and waits, too.
func (p *Pusher) read(w *work, stored time.Time) (eventlog.Message, error) {
	raw := &eventlog.Raw{Subject: w.msg.Subject(), Header: w.msg.Headers(), Data: w.msg.Data(), Sequence: w.sequence, Time: stored}
	m, err := p.reads[w.lane].Read(raw)
	var stop *eventlog.StopError
	if !errors.As(err, &stop) {
		return m, err
	}
	defer p.keepAlive(w)()
	p.count.stopped.Add(1)
	defer p.count.stopped.Add(-1)
	w.log.Error(fmt.Sprintf("the lane waits at a message that this program cannot read: run a newer one, or start scrip serve once with --skip-message rmd:%d=%d to lose the message", w.lane, w.sequence), "err", err)
	skips, waited := eventlog.Reminders(p.js, w.lane).AwaitSkip(p.ctx, err)
	if waited != nil {
		return m, err
	}
	p.reads[w.lane].PassOver(skips)
	return p.reads[w.lane].Read(raw)
}
