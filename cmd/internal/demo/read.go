package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// mark is where the streams of all lanes end at some moment.
type mark map[string]uint64 // stream → last sequence

func markNow(ctx context.Context, js jetstream.JetStream, lanes int) (mark, error) {
	m := mark{}
	for lane := range lanes {
		for _, name := range []string{topology.EvtStream(lane), topology.RmdStream(lane)} {
			s, err := js.Stream(ctx, name)
			if err != nil {
				return nil, fmt.Errorf("looking at stream %s: %w", name, err)
			}
			m[name] = s.CachedInfo().State.LastSeq
		}
	}
	return m, nil
}

// read folds what the streams hold after from and up to until.
func (l *ledger) read(ctx context.Context, js jetstream.JetStream, from, until mark) error {
	for name, last := range until {
		if last <= from[name] {
			continue
		}
		if err := l.readStream(ctx, js, name, from[name]+1, last); err != nil {
			return fmt.Errorf("reading stream %s: %w", name, err)
		}
	}
	return nil
}

func (l *ledger) readStream(ctx context.Context, js jetstream.JetStream, name string, first, last uint64) error {
	consumer, err := js.OrderedConsumer(ctx, name, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: first,
	})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	for {
		msg, err := messages.Next()
		if err != nil {
			return errors.Join(ctx.Err(), err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		for raw := range bytes.Lines(msg.Data()) {
			if len(bytes.TrimSpace(raw)) == 0 {
				continue
			}
			if err := l.fold(raw); err != nil {
				return err
			}
		}
		if meta.Sequence.Stream >= last {
			return nil
		}
	}
}
