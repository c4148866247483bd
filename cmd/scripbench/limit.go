package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// limitLines is how many lines a message has.
	limitLines = 500
	// limitWriters per lane publish at once.
	limitWriters = 8
)

// openLimit publishes the lines that the plan would put on the log, and nothing is decided: command lines to one stream
// and, after the acknowledgement, their event lines to another, for as many lanes as the plan's campaigns have. It bounds
// the rate of any program that keeps commands and events on JetStream.
func openLimit(ctx context.Context, b *bench, p *plan, _ int) (job, error) {
	s := b.limit
	lanes := map[int]bool{}
	for _, name := range p.names {
		lanes[topology.LaneOf(name, s.desc.Lanes)] = true
	}
	l := &limit{js: s.js, p: p, lanes: len(lanes)}
	for _, name := range l.streams() {
		if _, err := s.bareStream(ctx, name); err != nil {
			return job{}, err
		}
	}
	j := job{callers: limitWriters * l.lanes, batch: limitLines, close: l.drop}
	if p.style == alone {
		j.callers, j.batch = 1, 1
	}
	j.inFlight = j.callers * j.batch
	j.caller = func(_ context.Context, i int) (caller, error) {
		nc, err := nats.Connect(s.desc.NATSURL, nats.Name("scripbench limit"))
		if err != nil {
			return nil, err
		}
		js, err := jetstream.New(nc)
		return &limitCaller{limit: l, nc: nc, js: js, streams: l.streams()[2*(i%l.lanes):]}, err
	}
	j.check = l.written
	return j, nil
}

type limit struct {
	js    jetstream.JetStream
	p     *plan
	lanes int
	// acked messages
	acked atomic.Uint64
}

// streams are for each lane one for commands and one for events.
func (l *limit) streams() (names []string) {
	for lane := range l.lanes {
		names = append(names, "LIMIT_CMD_"+strconv.Itoa(lane), "LIMIT_EVT_"+strconv.Itoa(lane))
	}
	return names
}

// bareStream makes a stream as durable as scrip's, for messages without deduplication.
func (s *scripServer) bareStream(ctx context.Context, name string) (jetstream.Stream, error) {
	stream, err := s.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name}, Storage: jetstream.FileStorage, Duplicates: 100 * time.Millisecond,
	})
	if err != nil {
		return nil, fmt.Errorf("making stream %s: %w", name, err)
	}
	return stream, nil
}

func (l *limit) drop() {
	for _, name := range l.streams() {
		_ = l.js.DeleteStream(context.Background(), name) // the directory is removed anyway
	}
}

// written compares the number of messages on the streams with that of those acknowledged.
func (l *limit) written(ctx context.Context, _ tally) error {
	var messages uint64
	for _, name := range l.streams() {
		stream, err := l.js.Stream(ctx, name)
		if err != nil {
			return err
		}
		messages += stream.CachedInfo().State.Msgs
	}
	if acked := l.acked.Load(); messages != acked {
		return fmt.Errorf("%d messages are on the streams, acknowledged were %d", messages, acked)
	}
	return nil
}

// limitCaller has a connection of its own.
type limitCaller struct {
	*limit
	nc           *nats.Conn
	js           jetstream.JetStream
	streams      []string // for commands and for events
	cmds, events []byte
}

func (c *limitCaller) close() { c.nc.Close() }

func (c *limitCaller) send(ctx context.Context, from, to int, answers []answer) error {
	c.cmds, c.events = c.cmds[:0], c.events[:0]
	now := wire.At(time.Now())
	for i := from; i < to; i++ {
		id := uuid.Must(uuid.NewV7()).String()
		cmd := wire.Command{Type: wire.Claim, ID: id, Campaign: c.p.campaign(i), CustomerID: c.p.customer(i)}
		c.cmds = append(cmd.AppendJSON(c.cmds), '\n')
		ev := wire.Event{Type: wire.CouponClaimed, Campaign: cmd.Campaign, At: now, ID: id, N: uint32(i + 1), Code: code(0, i), CustomerID: cmd.CustomerID}
		c.events = append(ev.AppendJSON(c.events), '\n')
		answers[i] = answer{verdict: won, code: ev.Code}
	}
	for i, lines := range [][]byte{c.cmds, c.events} {
		if _, err := c.js.Publish(ctx, c.streams[i], lines); err != nil {
			return err
		}
	}
	c.acked.Add(2)
	return nil
}
