package main

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ends are the last sequences of one stream of each lane.
func (s *scripServer) ends(ctx context.Context, stream func(lane int) string) ([]uint64, error) {
	ends := make([]uint64, s.desc.Lanes)
	for lane := range ends {
		info, err := s.js.Stream(ctx, stream(lane))
		if err != nil {
			return nil, err
		}
		ends[lane] = info.CachedInfo().State.LastSeq
	}
	return ends, nil
}

// tail reads each lane's stream after those ends, with the instant at which each message was stored.
func (s *scripServer) tail(ctx context.Context, stream func(lane int) string, ends []uint64, each func(m jetstream.Msg, stored time.Time) error) error {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	for lane, after := range ends {
		if err := s.read(ctx, stream(lane), after, each); err != nil {
			return err
		}
	}
	return nil
}

func (s *scripServer) read(ctx context.Context, name string, after uint64, each func(m jetstream.Msg, stored time.Time) error) error {
	stream, err := s.js.Stream(ctx, name)
	if err != nil {
		return err
	}
	last := stream.CachedInfo().State.LastSeq
	if last <= after {
		return nil
	}
	messages, err := s.consume(ctx, name, after)
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next()
		if err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if err := each(m, meta.Timestamp); err != nil {
			return err
		}
		if meta.Sequence.Stream == last {
			return nil
		}
	}
}

// consume delivers the messages of a stream after a sequence, until ctx ends.
func (s *scripServer) consume(ctx context.Context, name string, after uint64) (jetstream.MessagesContext, error) {
	consumer, err := s.js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1})
	if err != nil {
		return nil, err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, messages.Stop)
	return messages, nil
}

// sizeOf is what a message is on the wire: subject, headers and payload.
func sizeOf(m jetstream.Msg) (bytes int) {
	bytes = len(m.Subject()) + len(m.Data())
	for name, values := range m.Headers() {
		for _, v := range values {
			bytes += len(name) + len(v) + len(": \r\n")
		}
	}
	return bytes
}
