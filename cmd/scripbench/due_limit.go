package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// limitPending is how many bare messages are under way at most.
const limitPending = 64

// publishGrown publishes as many bytes as scrip's log grew by in this round, in as many messages, to a bare stream, as
// durable as scrip's: nothing that keeps its news on JetStream is done earlier.
func publishGrown(ctx context.Context, _ options, st *stand, j dueJob) (m DueRun, err error) {
	s, g := st.limit, j.grown
	if g.messages == 0 {
		return m, errors.New("scrip's log did not grow")
	}
	const name = "LIMIT_DUE"
	stream, err := s.js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}, Storage: jetstream.FileStorage, Duplicates: 100 * time.Millisecond})
	if err != nil {
		return m, fmt.Errorf("making stream %s: %w", name, err)
	}
	defer func() { _ = s.js.DeleteStream(context.WithoutCancel(ctx), name) }() // the directory is removed anyway
	js, err := jetstream.New(s.nc, jetstream.WithPublishAsyncMaxPending(limitPending))
	if err != nil {
		return m, err
	}
	payload := bytes.Repeat([]byte{'x'}, max(1, g.bytes/g.messages))
	at := time.Now().Add(settled)
	m, err = measured(ctx, s, at, func(ctx context.Context) (m DueRun, err error) {
		if err := until(ctx, at); err != nil {
			return m, err
		}
		acks := make([]jetstream.PubAckFuture, g.messages)
		for i := range acks {
			if acks[i], err = js.PublishAsync(name, payload, jetstream.WithStallWait(patience)); err != nil {
				return m, err
			}
		}
		for i, ack := range acks {
			select {
			case <-ack.Ok():
			case err := <-ack.Err():
				return m, err
			case <-ctx.Done():
				return m, context.Cause(ctx)
			}
			m.All = time.Since(at).Seconds()
			if i == 0 {
				m.First = m.All
			}
		}
		m.Done = j.n
		return m, nil
	})
	if err != nil {
		return m, err
	}
	info, err := stream.Info(ctx)
	if err == nil && info.State.Msgs != uint64(g.messages) {
		err = fmt.Errorf("%d messages are on the stream, published were %d", info.State.Msgs, g.messages)
	}
	return m, err
}
