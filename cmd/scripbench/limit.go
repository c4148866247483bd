package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// limitLines is how many lines a message has.
	limitLines = 500
	// limitWriters per lane publish at once.
	limitWriters = 8
	// limitPending is how many bare messages of a due job are in flight at most.
	limitPending = 64
)

// openLimit publishes the lines that the plan would put on the log, and nothing is decided: command lines to one stream
// and, after the acknowledgement, their event lines to another, for as many lanes as the plan's campaigns have. It bounds
// the rate of any program that keeps commands and events on JetStream.
func openLimit(ctx context.Context, b *bench, p *plan) (job, error) {
	s, lanes := b.limit, map[int]bool{}
	for _, name := range p.names {
		lanes[topology.LaneOf(name, s.desc.Lanes)] = true
	}
	var names []string // for each lane one for commands and one for events
	for lane := range len(lanes) {
		names = append(names, "LIMIT_CMD_"+strconv.Itoa(lane), "LIMIT_EVT_"+strconv.Itoa(lane))
	}
	for _, name := range names {
		if err := s.bareStream(ctx, name); err != nil {
			return job{}, err
		}
	}
	j := job{callers: limitWriters * len(lanes), batch: limitLines}
	if p.style == alone {
		j.callers, j.batch = 1, 1
	}
	j.inFlight = j.callers * j.batch
	j.caller = func(_ context.Context, i int) (caller, error) {
		nc, err := nats.Connect(s.desc.NATSURL, nats.Name("scripbench limit"))
		if err != nil {
			return caller{}, err
		}
		js, err := jetstream.New(nc)
		return caller{send: bareLines(js, p, names[2*(i%len(lanes)):]), close: nc.Close}, err
	}
	j.close = func() {
		for _, name := range names {
			_ = s.js.DeleteStream(context.Background(), name) // the directory is removed anyway
		}
	}
	return j, nil
}

// bareLines publishes command lines to the first stream and event lines to the second.
func bareLines(js jetstream.JetStream, p *plan, streams []string) sender {
	var cmds, events []byte
	return func(ctx context.Context, from, to int, answers []answer) error {
		cmds, events = cmds[:0], events[:0]
		now := wire.At(time.Now())
		for i := from; i < to; i++ {
			id := uuid.Must(uuid.NewV7()).String()
			cmd := wire.Command{Type: wire.Claim, ID: id, Campaign: p.campaign(i), CustomerID: p.customer(i)}
			cmds = append(cmd.AppendJSON(cmds), '\n')
			ev := wire.Event{Type: wire.CouponClaimed, Campaign: cmd.Campaign, At: now, ID: id, N: uint32(i + 1), Code: code(0, i), CustomerID: cmd.CustomerID}
			events = append(ev.AppendJSON(events), '\n')
			answers[i] = answer{verdict: won, code: ev.Code}
		}
		for i, lines := range [][]byte{cmds, events} {
			if _, err := js.Publish(ctx, streams[i], lines); err != nil {
				return err
			}
		}
		return nil
	}
}

// bareStream makes a stream as durable as scrip's, for messages without deduplication.
func (s *scripServer) bareStream(ctx context.Context, name string) error {
	_, err := s.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name}, Storage: jetstream.FileStorage, Duplicates: 100 * time.Millisecond,
	})
	if err != nil {
		return fmt.Errorf("making stream %s: %w", name, err)
	}
	return nil
}

// publishGrown publishes as many bytes as scrip's log grew by in this round, in as many messages, to a bare stream, as
// durable as scrip's: no program that stores its results on JetStream is faster.
func publishGrown(ctx context.Context, o options, b *bench) (d dueWork, err error) {
	s, g := b.limit, o.grown
	if g.messages == 0 {
		return d, errors.New("it publishes as many bytes as scrip's log grew by: name scrip in --systems, too")
	}
	const name = "LIMIT_DUE"
	if err := s.bareStream(ctx, name); err != nil {
		return d, err
	}
	js, err := jetstream.New(s.nc, jetstream.WithPublishAsyncMaxPending(limitPending))
	if err != nil {
		return d, err
	}
	payload := bytes.Repeat([]byte{'x'}, max(1, g.bytes/g.messages))
	d.at = time.Now().Add(settled)
	d.work = func(ctx context.Context, m *report.Run) error {
		if err := until(ctx, d.at); err != nil {
			return err
		}
		acks := make([]jetstream.PubAckFuture, g.messages)
		for i := range acks {
			if acks[i], err = js.PublishAsync(name, payload, jetstream.WithStallWait(patience)); err != nil {
				return err
			}
		}
		for _, ack := range acks {
			select {
			case <-ack.Ok():
			case err := <-ack.Err():
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			m.Advance(d.at)
		}
		return nil
	}
	return d, nil
}
