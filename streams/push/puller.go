package push

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// delivery is a message as a consumer delivered it; a jetstream.Msg is one.
type delivery interface {
	Metadata() (*jetstream.MsgMetadata, error)
	Subject() string
	Headers() nats.Header
	Data() []byte
	Ack() error
	DoubleAck(ctx context.Context) error
	Nak() error
	NakWithDelay(delay time.Duration) error
	InProgress() error
}

// puller requests the messages of one consumer.
type puller interface {
	// messages begins to request them, so many at once.
	messages(ahead int) (messages, error)
	ackWait() time.Duration
	// gone returns the evidence, if there is any, that the consumer does not exist. cause is why requesting ended.
	gone(ctx context.Context, cause error) error
}

// messages are what a puller requested.
type messages interface {
	next(ctx context.Context) (delivery, error)
	// drain ends the requests. What is in flight is still returned by next.
	drain()
	stop()
}

// consumer is a puller with the credentials of servers: a consumer of JetStream.
type consumer struct {
	js     jetstream.JetStream
	stream string
	jetstream.Consumer
}

func (c consumer) ackWait() time.Duration { return c.CachedInfo().Config.AckWait }

func (c consumer) messages(ahead int) (messages, error) {
	it, err := c.Messages(jetstream.PullMaxMessages(ahead), jetstream.PullExpiry(pullFor), jetstream.PullHeartbeat(pullBeat))
	return iterator{it}, err
}

// gone looks several times. A server that does not answer counts as unreachable, which is no evidence.
func (c consumer) gone(ctx context.Context, _ error) error {
	for range goneAfter {
		short, cancel := context.WithTimeout(ctx, requestTimeout)
		_, err := c.js.Consumer(short, c.stream, c.CachedInfo().Name)
		cancel()
		missing := errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
		if natsx.Pause(ctx, missingPause) != nil || !missing {
			return nil
		}
	}
	return errors.New("the server reported several times that it does not exist")
}

type iterator struct{ jetstream.MessagesContext }

func (i iterator) next(ctx context.Context) (delivery, error) {
	return i.Next(jetstream.NextContext(ctx))
}
func (i iterator) drain() { i.Drain() }
func (i iterator) stop()  { i.Stop() }

// openLane finds or makes the consumer of a lane, openClass that of a class of WaitStream.
func (p *Pusher) openLane(ctx context.Context, lane int) (puller, error) {
	if p.proxy != nil {
		return p.proxy.reopen(ctx, p, p.proxy.lanePuller(lane))
	}
	c, err := p.consumer(ctx, lane)
	return consumer{p.js, p.source.stream(p.js, lane).Name(), c}, err
}

func (p *Pusher) openClass(ctx context.Context, c class) (puller, error) {
	if p.proxy != nil {
		return p.proxy.reopen(ctx, p, p.proxy.classPuller(c))
	}
	made, err := p.waiting.consumer(ctx, c, &p.opts)
	return consumer{p.js, WaitStream, made}, err
}
