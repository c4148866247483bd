package rebuild

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// takeMessages is how many messages are taken from the reader at a time while a batch is filled.
const takeMessages = 64

// loader fills a shadow from one lane. It reads and decodes the next batch while one is written.
type loader struct {
	sh     *Shadow
	number int
	stream eventlog.Stream

	// Owned by fill.
	at    eventlog.Position // of the last message applied
	clock wire.Instant      // lane time at that message; 0 before the first
	ended bool              // by Only.Until
}

// batch is the content of one transaction: whole messages, except at the end set by Only.Until.
type batch struct {
	messages []eventlog.Message
	lines    []tables.Line
	upto     uint64 // last sequence read, foreign messages included
	ended    bool
}

func newLoader(sh *Shadow, number int) *loader {
	return &loader{
		sh: sh, number: number, stream: eventlog.Events(sh.s.js, number).In(sh.s.log),
		at: eventlog.Position{Log: sh.s.log.UUID, Lane: number},
	}
}

func (l *loader) holds(campaign string) bool {
	return topology.LaneOf(campaign, l.sh.s.log.Lanes) == l.number
}

// fill applies the next messages, up to a sequence.
func (l *loader) fill(ctx context.Context, phase Phase, to uint64) error {
	if l.ended {
		return nil
	}
	reader, err := l.stream.Open(ctx, l.sh.s.log.UUID, l.at, eventlog.ReaderOptions{Logger: l.sh.s.opts.Logger})
	if err != nil {
		return fmt.Errorf("reading lane %d: %w", l.number, err)
	}
	defer reader.Close()
	// Two batches alternate: one is written while the other is read.
	free, full := make(chan *batch, 2), make(chan *batch)
	free <- new(batch)
	free <- new(batch)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(full)
		return l.read(ctx, reader, to, free, full)
	})
	g.Go(func() error {
		for b := range full {
			if err := l.write(ctx, phase, b); err != nil {
				return err
			}
			l.ended = l.ended || b.ended
			free <- b
		}
		return nil
	})
	return g.Wait()
}

// read fills batches until a sequence is reached.
func (l *loader) read(ctx context.Context, reader *eventlog.Reader, to uint64, free <-chan *batch, full chan<- *batch) error {
	for reader.Sequence() < to {
		var b *batch
		select {
		case b = <-free:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := l.take(ctx, reader, to, b); err != nil {
			return fmt.Errorf("reading lane %d: %w", l.number, err)
		}
		select {
		case full <- b:
		case <-ctx.Done():
			return ctx.Err()
		}
		if b.ended {
			return nil
		}
	}
	return nil
}

// take reads until a batch is full, or the end is reached. It decodes messages as they arrive, so that the reader's
// queue is free for the next.
func (l *loader) take(ctx context.Context, reader *eventlog.Reader, to uint64, b *batch) error {
	clear(b.messages)
	b.messages, b.lines = b.messages[:0], b.lines[:0]
	bytes := 0
	for reader.Sequence() < to && !b.ended && len(b.lines) < l.sh.s.opts.BatchLines && bytes < l.sh.s.opts.BatchBytes {
		had := len(b.messages)
		var err error
		most := int(min(takeMessages, to-reader.Sequence()))
		if b.messages, err = reader.TryBatch(most, b.messages); err != nil {
			return err
		}
		for i := had; i < len(b.messages); i++ {
			bytes += len(b.messages[i].Payload)
			if l.decode(&b.messages[i], b); b.ended {
				b.messages = b.messages[:i] // its earlier lines are applied, but the checkpoint stays before it
				break
			}
		}
		b.upto = reader.Sequence()
		if len(b.messages) > had || b.upto >= to {
			continue
		}
		select {
		case <-reader.Ready():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// nextLine appends a line without clearing it; Read overwrites all of it. A line is large, and clearing and copying one
// costs as much as reading it.
func (b *batch) nextLine() *tables.Line {
	if n := len(b.lines); n < cap(b.lines) {
		b.lines = b.lines[:n+1]
	} else {
		b.lines = append(b.lines, tables.Line{})
	}
	return &b.lines[len(b.lines)-1]
}

// decode appends the selected lines of a message. The first line after Until is the end.
func (l *loader) decode(m *eventlog.Message, b *batch) {
	only := &l.sh.only
	clock := wire.At(m.LaneTime)
	for n, raw := range eventlog.Lines(m.Payload) {
		line := b.nextLine()
		line.Read(m.Sequence, uint32(n)+1, raw, clock)
		at := line.Event.At
		if line.Problem != nil {
			at = clock
		}
		if only.Until != 0 && at > only.Until {
			b.lines = b.lines[:len(b.lines)-1]
			b.ended = true
			return
		}
		if only.Campaign != "" && line.Event.Campaign != only.Campaign {
			b.lines = b.lines[:len(b.lines)-1]
		}
	}
	b.ended = only.Until != 0 && clock > only.Until
}

// write creates the indexes that a batch needs, and applies it.
func (l *loader) write(ctx context.Context, phase Phase, b *batch) error {
	if err := l.sh.s.opts.Hook(phase); err != nil {
		return err
	}
	if err := l.sh.ensure(ctx, b.lines); err != nil {
		return err
	}
	began := time.Now()
	err := l.commit(ctx, b.messages, b.lines, tables.Apply)
	if _, refused := tables.Refused(err); refused {
		err = l.piecemeal(ctx, b)
	}
	if err != nil {
		return fmt.Errorf("filling lane %d after message %d: %w", l.number, l.at.Sequence, err)
	}
	r := l.sh.s.report
	r.messages.Add(uint64(len(b.messages)))
	r.events.Add(uint64(len(b.lines)))
	r.update()
	if phase != Exchanging { // the projector waits then
		l.sh.s.throttle.Pause(ctx, time.Since(began))
	}
	return ctx.Err()
}

// piecemeal applies a batch of which PostgreSQL rejects a part, as the live projector does: message by message, and a
// rejected message line by line.
func (l *loader) piecemeal(ctx context.Context, b *batch) error {
	for lines := b.lines; len(lines) > 0; {
		n := 1
		for n < len(lines) && lines[n].Sequence == lines[0].Sequence {
			n++
		}
		var one []eventlog.Message
		for i := range b.messages {
			if b.messages[i].Sequence == lines[0].Sequence {
				one = b.messages[i : i+1]
			}
		}
		err := l.commit(ctx, one, lines[:n], tables.Apply)
		if _, refused := tables.Refused(err); refused {
			err = l.commit(ctx, one, lines[:n], tables.ApplyOneByOne)
		}
		if err != nil {
			return err
		}
		lines = lines[n:]
	}
	return l.commit(ctx, b.messages, nil, tables.Apply) // messages without lines also move the checkpoint
}

// The shadow's own fence: if another session dropped and created it again, no row is updated.
//
// $1 = projection   $2 = lane   $3, $4, $5 = sequence, digest and lane time of the new position   $6, $7 = sequence and
// digest of the old one
const advanceSQL = `
UPDATE %s.checkpoint SET sequence = $3, digest = $4, log_time = $5, updated_at = clock_timestamp()
WHERE projection = $1 AND lane = $2 AND sequence = $6 AND digest = $7`

// commit applies lines and moves the checkpoint to the last of the messages, in one transaction.
func (l *loader) commit(ctx context.Context, messages []eventlog.Message, lines []tables.Line,
	apply func(context.Context, pgx.Tx, *tables.Batch) ([]tables.Parked, error),
) error {
	if len(messages) == 0 && len(lines) == 0 {
		return nil
	}
	to, clock := l.at, l.clock
	if len(messages) > 0 {
		last := &messages[len(messages)-1]
		if last.Sequence > l.at.Sequence {
			to, clock = last.Position(l.sh.s.log.UUID, l.number), wire.At(last.LaneTime)
		}
	}
	if until := l.sh.only.Until; until != 0 && len(lines) > 0 {
		clock = max(clock, lines[len(lines)-1].Event.At)
	}
	tx, err := tables.Begin(ctx, l.sh.s.pool)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // no effect after a commit
	tag, err := tx.Exec(ctx, fmt.Sprintf(advanceSQL, l.sh.name), projector.Projection, l.number, int64(to.Sequence), to.Digest,
		timestampOf(clock), int64(l.at.Sequence), l.at.Digest)
	if err != nil {
		return err
	}
	if tag.RowsAffected() != 1 {
		return errors.New("another session fills the same tables; run it again")
	}
	if _, err := apply(ctx, tx, &tables.Batch{Lane: l.number, Lines: lines, From: l.clock, To: clock, Schema: l.sh.name}); err != nil {
		return err
	}
	// Not ended by ctx: after a commit whose reply was not awaited, a retry would find a moved checkpoint and report
	// another session.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTime)
	defer cancel()
	if err := tx.Commit(ending); err != nil {
		return err
	}
	l.at, l.clock = to, clock
	return nil
}

// commitTime bounds a commit.
const commitTime = 30 * time.Second

// timestampOf returns nil for 0.
func timestampOf(at wire.Instant) *time.Time {
	if at == 0 {
		return nil
	}
	t := at.Time()
	return &t
}
