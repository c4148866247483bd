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
	// pullFor is how long the server keeps a request for a message; pullBeat how often it says that it still has it. Twice
	// that in silence and it is asked again.
	pullFor  = 30 * time.Second
	pullBeat = 2 * time.Second
	// drainFor bounds how long a request that is under way at the end is waited for; a server that is away says nothing.
	drainFor = 2 * time.Second
	// askFor bounds one question to the server.
	askFor = 5 * time.Second
	// goneAfter is how often in a row the consumer must be missing: a cluster that elects may say so once.
	goneAfter    = 3
	missingPause = 300 * time.Millisecond
)

// consumer finds the lane's consumer or makes it. It is changed by nobody afterwards.
func (p *Pusher) consumer(ctx context.Context, lane int) (jetstream.Consumer, error) {
	stream := topology.RmdStream(lane)
	consumer, err := p.js.Consumer(ctx, stream, p.opts.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		want := jetstream.ConsumerConfig{
			Durable: p.opts.Name, Description: "a scrip push sender",
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: p.opts.AckWait, MaxAckPending: p.opts.Unacked,
			// Tries are counted here: a server that stopped delivering would lose what nobody made a dead letter of.
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
		return nil, fmt.Errorf("push: stream %s has a consumer %q that is no push sender's (ack policy %s, at most %d deliveries); take another Name, or remove it",
			stream, p.opts.Name, have.AckPolicy, have.MaxDeliver)
	}
	return consumer, nil
}

// pull takes one lane's messages up, one at a time and only when a worker is free. Errors end the whole Run.
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
		// No sign of life from the server, or it says that there is nobody.
		if err := p.gone(lane); err != nil {
			return fmt.Errorf("push: %w: lane %d, name %q (%w); start again to begin with a new one", ErrGone, lane, p.opts.Name, err)
		}
	}
}

// fatalError is one that waiting does not mend.
type fatalError struct{ error }

// iterate takes messages until there is an error.
func (p *Pusher) iterate(lane int, consumer jetstream.Consumer) error {
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1), jetstream.PullExpiry(pullFor), jetstream.PullHeartbeat(pullBeat))
	if err != nil {
		return fmt.Errorf("asking for messages: %w", err)
	}
	defer messages.Stop()
	// At the end a message may be on its way to us. Drain waits for it, so that it can be given back rather than be
	// missed until AckWait is over.
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

// gone asks whether the consumer is still there, and says how it is known that it is not. A server that does not answer
// is one that is away.
func (p *Pusher) gone(lane int) error {
	for range goneAfter {
		ctx, cancel := context.WithTimeout(p.ctx, askFor)
		_, err := p.js.Consumer(ctx, topology.RmdStream(lane), p.opts.Name)
		cancel()
		missing := errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
		if topology.Pause(p.ctx, missingPause) != nil || !missing {
			return nil
		}
	}
	return errors.New("asked several times, the server does not know it")
}

// untilFree waits until a worker is free. The turn is not taken yet: the message may be long in coming.
func (p *Pusher) untilFree() {
	select {
	case p.turns <- struct{}{}:
		<-p.turns
	case <-p.ctx.Done():
	}
}

// take looks at a message and starts work on it. It returns when that has a worker, so that a lane has at most one
// message waiting for one.
func (p *Pusher) take(lane int, msg jetstream.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return fmt.Errorf("push: lane %d: a message without the mark of JetStream: %w", lane, err)
	}
	log := p.opts.Logger.With("name", p.opts.Name, "lane", lane, "sequence", meta.Sequence.Stream)
	w := &work{
		msg: msg, lane: lane, sequence: meta.Sequence.Stream, delivered: int(meta.NumDelivered), log: log,
		place: place{lane, meta.Sequence.Stream, meta.Timestamp.UnixNano()},
	}
	if p.ctx.Err() != nil {
		p.giveBack(w, 0)
		return nil
	}
	m, err := p.read(w, meta.Timestamp)
	switch {
	case p.ctx.Err() != nil && err != nil:
		p.giveBack(w, 0)
		return nil
	case errors.Is(err, eventlog.ErrSkipped):
		p.count.skipped.Add(1)
		log.Warn("a message is passed over, as an operator had all readers do")
		p.settle(w)
		return nil
	case err != nil:
		p.count.skipped.Add(1)
		log.Error("a message that scrip did not write was passed over; find out who publishes to "+topology.Rmd(lane), "err", err)
		p.settle(w)
		return nil
	}
	var bad []error
	if w.left, bad = readLines(p.log.UUID, lane, &m); len(bad) > 0 && w.delivered == 1 {
		p.count.skipped.Add(uint64(len(bad)))
		log.Error("lines that are no reminders were passed over; they stand in "+topology.RmdStream(lane), "err", errors.Join(bad...))
	}
	switch p.desk.begin(w.place) {
	case finished:
		p.count.repeated.Add(1)
		p.settle(w)
		return nil
	case inHand:
		// Signs of life were lost. Whoever works on it goes on, and its acknowledgement counts for this delivery, too.
		p.count.repeated.Add(1)
		return nil
	}
	if len(w.left) == 0 {
		p.settle(w)
		p.desk.leave(w.place)
		return nil
	}
	started := make(chan struct{})
	p.works.Go(func() { p.work(w, started) })
	<-started
	return nil
}

// read judges a message. At one of a newer format, or one that cannot be read, the lane waits, with the message in hand,
// until an operator has it passed over or Run is to end; the other lanes go on. A crash here leaves it to others, who wait,
// too.
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
	w.log.Error("the lane waits at a message that this program cannot read: run a newer one, or start scrip serve once with --skip-message rmd:LANE=SEQ to lose what the message says", "err", err)
	skips, waited := eventlog.Reminders(p.js, w.lane).AwaitSkip(p.ctx, err)
	if waited != nil {
		return m, err
	}
	p.reads[w.lane].PassOver(skips)
	return p.reads[w.lane].Read(raw)
}
