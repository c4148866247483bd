package eventlog

import (
	"context"
	"fmt"
	"math"
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
	if err := s.span(ctx, nil, first, last, last-first+1, each); err != nil {
		return fmt.Errorf("reading messages %d to %d of stream %s: %w", first, last, s.name, err)
	}
	return nil
}

// Some is Span for the next messages on some subjects, which may have wildcards, after message after: at most so many. They may
// end early: a replica that lags does not have the newest ones.
func (s Stream) Some(ctx context.Context, subjects []string, after, most uint64, each func(*Raw)) error {
	if err := s.span(ctx, subjects, after+1, math.MaxUint64, most, each); err != nil {
		return fmt.Errorf("reading messages after %d of stream %s: %w", after, s.name, err)
	}
	return nil
}

func (s Stream) span(ctx context.Context, subjects []string, first, last, most uint64, each func(*Raw)) error {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	consumer, err := s.js.CreateConsumer(ctx, s.name, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: first, FilterSubjects: subjects,
		AckPolicy: jetstream.AckNonePolicy, MaxDeliver: 1, MemoryStorage: true, Replicas: 1, InactiveThreshold: spanInactive,
	})
	if err != nil {
		return err
	}
	name := consumer.CachedInfo().Name
	defer s.drop(name)
	if subjects != nil {
		most = min(most, consumer.CachedInfo().NumPending)
	}
	// Not by a pull of nats.go, which takes a stored message with a header Status and no payload for a status of the server. Not
	// into an inbox of its responses: it gives a message with the subject of a stream to whoever waits for one.
	nc := s.js.Conn()
	arrived, inbox := make(chan *nats.Msg, most+1), nc.NewInbox()
	sub, err := nc.ChanSubscribe(inbox, arrived)
	if err != nil {
		return err
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection may be closed, and the subscription with it
	for at := first - 1; most > 0 && at < last; {
		body := fmt.Appendf(nil, `{"batch":%d,"max_bytes":%d,"expires":%d}`, most, narrowBytes, readFor)
		if err := nc.PublishRequest(natsx.API(s.js, "CONSUMER.MSG.NEXT."+s.name+"."+name), inbox, body); err != nil {
			return err
		}
		var got uint64
		if at, got, err = take(ctx, arrived, at, last, most, each); err != nil {
			return err
		}
		most -= got
	}
	return nil
}

// take passes on what a pull delivers after message at, up to last or most messages, and returns how far that is, and how many.
func take(ctx context.Context, arrived <-chan *nats.Msg, at, last, most uint64, each func(*Raw)) (_, got uint64, err error) {
	for got < most && at < last {
		select {
		case <-ctx.Done():
			return at, got, ctx.Err()
		case msg := <-arrived:
			if msg.Reply == "" { // a status of the server, which ends the pull: no room for the next message, or why there is none
				if got == 0 {
					err = fmt.Errorf("the server answered %s %s", msg.Header.Get("Status"), msg.Header.Get("Description"))
				}
				return at, got, err
			}
			meta, err := msg.Metadata()
			if err != nil {
				return at, got, err
			}
			if at, got = meta.Sequence.Stream, got+1; at <= last {
				each(&Raw{Subject: msg.Subject, Header: msg.Header, Data: msg.Data, Sequence: at, Time: meta.Timestamp.UTC()})
			}
		}
	}
	return at, got, nil
}

// drop deletes a consumer without waiting for the response. If the request is lost, the consumer expires.
func (s Stream) drop(name string) {
	_ = s.js.Conn().Publish(natsx.API(s.js, "CONSUMER.DELETE."+s.name+"."+name), nil)
}
