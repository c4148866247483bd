package eventlog

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// spanInactive is the time after which the server drops the consumer of a span that was cut off.
const spanInactive = 10 * time.Second

// Span reads the messages first to last once, in order, and passes each to a function. last must not be after the end of the
// stream; messages that are missing are passed over. They are not verified, and may come from a replica: a reader that decides
// by them uses a Feed. The error, also that of the context, means that some were not passed.
func (s Stream) Span(ctx context.Context, first, last uint64, each func(*Raw)) error {
	if err := s.span(ctx, first, last, each); err != nil {
		return fmt.Errorf("reading messages %d to %d of stream %s: %w", first, last, s.name, err)
	}
	return nil
}

func (s Stream) span(ctx context.Context, first, last uint64, each func(*Raw)) error {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	consumer, err := s.js.CreateConsumer(ctx, s.name, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: first, AckPolicy: jetstream.AckNonePolicy, MaxDeliver: 1,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: spanInactive,
	})
	if err != nil {
		return err
	}
	name := consumer.CachedInfo().Name
	defer s.drop(name)
	// Not by a pull of nats.go, which takes a stored message with a header Status and no payload for a status of the server. Not
	// into an inbox of its responses: it gives a message with the subject of a stream to whoever waits for one.
	nc := s.js.Conn()
	arrived, inbox := make(chan *nats.Msg, last-first+2), nc.NewInbox()
	sub, err := nc.ChanSubscribe(inbox, arrived)
	if err != nil {
		return err
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection may be closed, and the subscription with it
	for at := first - 1; at < last; {
		body := fmt.Appendf(nil, `{"batch":%d,"max_bytes":%d,"expires":%d}`, last-at, narrowBytes, readFor)
		if err := nc.PublishRequest(natsx.API(s.js, "CONSUMER.MSG.NEXT."+s.name+"."+name), inbox, body); err != nil {
			return err
		}
		if at, err = take(ctx, arrived, at, last, each); err != nil {
			return err
		}
	}
	return nil
}

// take passes on what a pull delivers after message at, up to last, and returns how far that is.
func take(ctx context.Context, arrived <-chan *nats.Msg, at, last uint64, each func(*Raw)) (uint64, error) {
	for from := at; at < last; {
		select {
		case <-ctx.Done():
			return at, ctx.Err()
		case msg := <-arrived:
			if msg.Reply == "" { // a status of the server, which ends the pull: no room for the next message, or why there is none
				if at == from {
					return at, fmt.Errorf("the server answered %s %s", msg.Header.Get("Status"), msg.Header.Get("Description"))
				}
				return at, nil
			}
			meta, err := msg.Metadata()
			if err != nil {
				return at, err
			}
			if at = meta.Sequence.Stream; at <= last {
				each(&Raw{Subject: msg.Subject, Header: msg.Header, Data: msg.Data, Sequence: at, Time: meta.Timestamp.UTC()})
			}
		}
	}
	return at, nil
}

// drop deletes a consumer without waiting for the response. If the request is lost, the consumer expires.
func (s Stream) drop(name string) {
	_ = s.js.Conn().Publish(natsx.API(s.js, "CONSUMER.DELETE."+s.name+"."+name), nil)
}
