package fill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/segments"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// takeMessages is how many messages are taken from a reader at a time; a batch exceeds its limits by that many at most.
const takeMessages = 16

// Limits of a batch: it is full once it has that many lines or that many bytes of payload. It has whole messages (at
// most 512 KiB each), so it may exceed them.
type Limits struct{ Lines, Bytes int }

// OrDefault replaces zeros: 20,000 lines, 8 MiB. Above some thousand lines the cost per transaction is negligible, and
// memory and the time to a first row grow.
func (l Limits) OrDefault() Limits {
	if l.Lines <= 0 {
		l.Lines = 20_000
	}
	if l.Bytes <= 0 {
		l.Bytes = 8 << 20
	}
	return l
}

// Batch is messages taken from a reader, in order. The zero value is empty. Its memory is used again after Reset.
type Batch struct {
	Messages []eventlog.Message

	lines, bytes int
}

// Reset empties the batch.
func (b *Batch) Reset() {
	clear(b.Messages)
	b.Messages, b.lines, b.bytes = b.Messages[:0], 0, 0
}

// Full reports whether the batch has reached a limit.
func (b *Batch) Full(l Limits) bool { return b.lines >= l.Lines || b.bytes >= l.Bytes }

// Fill adds the messages that have arrived, without waiting, until the batch is full or has message last. After an error
// the batch has the messages before it; the reader keeps the error.
func (b *Batch) Fill(r *eventlog.Reader, l Limits, last uint64) (err error) {
	for !b.Full(l) && r.Sequence() < last {
		had, sequence := len(b.Messages), r.Sequence()
		most := min(takeMessages, l.Lines-b.lines)
		b.Messages, err = r.TryBatch(int(min(uint64(most), last-sequence)), b.Messages)
		for i := range b.Messages[had:] {
			payload := b.Messages[had+i].Payload
			b.bytes += len(payload)
			b.lines += bytes.Count(payload, newline)
			if !bytes.HasSuffix(payload, newline) {
				b.lines++ // also for a message without lines
			}
		}
		if err != nil || r.Sequence() == sequence {
			return err
		}
	}
	return nil
}

var newline = []byte{'\n'}

// Wait is Fill, but waits for a first message unless the reader is at message last already. An error is returned only
// if no message precedes it.
func (b *Batch) Wait(ctx context.Context, r *eventlog.Reader, l Limits, last uint64) error {
	for had := len(b.Messages); ; {
		err := b.Fill(r, l, last)
		switch {
		case len(b.Messages) > had || r.Sequence() >= last:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-r.Ready():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Parse appends the lines of a message to lines, except those for which keep, if not nil, returns false. A line is
// large, and clearing and copying one costs as much as reading it; so Read, which sets every field, writes in place.
func Parse(lines []tables.Line, m *eventlog.Message, keep func(*tables.Line) bool) []tables.Line {
	clock := wire.At(m.LaneTime)
	for n, raw := range eventlog.Lines(m.Payload) {
		if len(lines) == cap(lines) {
			lines = slices.Grow(lines, 1)
		}
		lines = lines[:len(lines)+1]
		line := &lines[len(lines)-1]
		if line.Read(m.Sequence, uint32(n)+1, raw, clock); keep != nil && !keep(line) {
			lines = lines[:len(lines)-1]
		}
	}
	return lines
}

// Projection is the name of the read tables in table checkpoint.
const Projection = "tables"

// ErrFenced: the checkpoint is not where this process committed it last, or another one opened the segments. The batch was not
// applied.
var ErrFenced = segments.ErrFenced

// IsLost reports whether an error of eventlog means that the log lacks what was read from it: it lost its tail, was
// restored or is another one.
func IsLost(err error) bool {
	return errors.Is(err, eventlog.ErrLostTail) || errors.Is(err, eventlog.ErrDiverged) || errors.Is(err, eventlog.ErrTrimmed)
}

// Tables fills the read tables of one schema with one lane.
type Tables struct {
	DB     tables.Beginner
	Schema string // of the tables
	Log    string // UUID
	Lane   int
	// Segments is where claims go; nil = to segment 0.
	Segments *segments.Set
	// Commit replaces tx.Commit, if not nil.
	Commit func(context.Context, pgx.Tx) error
	// Applied is called after each commit.
	Applied func(b *tables.Batch, messages []eventlog.Message, parked []tables.Parked)

	// At is the position of the last message applied, Clock the lane time there (0 before the first message). Both are
	// set by Load, and by Apply after a commit.
	At    eventlog.Position
	Clock wire.Instant

	generation int64
}

// %[1]s is the schema. The first creates the checkpoint of a lane that has none, before the first message.
//
// $1 = projection   $2 = lane   $3 = log
const (
	createCheckpointSQL = `
INSERT INTO %[1]s.checkpoint (projection, lane, sequence, updated_at, log, digest)
VALUES ($1, $2, 0, clock_timestamp(), $3, '') ON CONFLICT (projection, lane) DO NOTHING`
	loadCheckpointSQL = `SELECT sequence, log, digest, log_time, generation FROM %[1]s.checkpoint WHERE projection = $1 AND lane = $2`
)

// The fence: no row is updated if the checkpoint is not at the position that this process last committed, or if the
// tables were exchanged since (see generation in schema/tables.sql). It is the first statement of a transaction: an exchange locks out
// writers of this table, and no transaction may have written other rows by then.
//
// $1 = projection   $2 = lane   $3, $4, $5 = sequence, digest and lane time of the new position   $6, $7, $8, $9 =
// sequence, digest, log and generation of the old one
const advanceSQL = `
UPDATE %[1]s.checkpoint SET sequence = $3, digest = $4, log_time = $5, updated_at = clock_timestamp()
WHERE projection = $1 AND lane = $2 AND sequence = $6 AND digest = $7 AND log = $8 AND generation = $9`

// Fence gives the checkpoints of all lanes a new generation, and creates those that are missing. Of a process that loaded
// another generation, no transaction commits any more once that is committed; a running projector begins again.
func Fence(ctx context.Context, db schema.Querier, name, log string, lanes int) error {
	_, err := schema.Collect(ctx, db, pgx.RowTo[int64], fmt.Sprintf(fenceSQL, name), Projection, lanes, log)
	if err != nil {
		return fmt.Errorf("fencing the checkpoints: %w", err)
	}
	return nil
}

// %[1]s is the schema.
//
// $1 = projection   $2 = lanes   $3 = log
const fenceSQL = `
INSERT INTO %[1]s.checkpoint AS c (projection, lane, sequence, updated_at, log, digest, generation)
SELECT $1, lane, 0, clock_timestamp(), $3, '', (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM generate_series(0, $2::bigint - 1) lane
ON CONFLICT (projection, lane) DO UPDATE SET generation = excluded.generation RETURNING lane`

// Load reads the checkpoint, and creates it before the first message if there is none.
func (t *Tables) Load(ctx context.Context, db interface {
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}) error {
	batch := &pgx.Batch{}
	batch.Queue(fmt.Sprintf(createCheckpointSQL, t.Schema), Projection, t.Lane, t.Log)
	at := eventlog.Position{Lane: t.Lane}
	var clock pgtype.Timestamptz
	batch.Queue(fmt.Sprintf(loadCheckpointSQL, t.Schema), Projection, t.Lane).QueryRow(func(row pgx.Row) error {
		return row.Scan(&at.Sequence, &at.Log, &at.Digest, &clock, &t.generation)
	})
	if err := db.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("reading the checkpoint of lane %d: %w", t.Lane, err)
	}
	if t.At, t.Clock = at, 0; clock.Valid {
		t.Clock = wire.At(clock.Time)
	}
	return nil
}

// Apply applies messages, of which these are the lines to apply, and moves the checkpoint to the last message. Lines
// that follow the last message are of a message that is not complete: they are applied, but the checkpoint does not
// cover them. If PostgreSQL rejects the data, Apply retries message by message, and then line by line, to find the lines
// that must become dead letters. Errors are PostgreSQL's, Commit's and ErrFenced.
func (t *Tables) Apply(ctx context.Context, messages []eventlog.Message, lines []tables.Line) error {
	refused, err := t.commit(ctx, messages, lines, tables.Apply)
	if !refused {
		return err
	}
	for i := 0; i < len(messages) || len(lines) > 0; i++ {
		var one []eventlog.Message
		n := len(lines)
		if i < len(messages) {
			one = messages[i : i+1]
			for n = 0; n < len(lines) && lines[n].Sequence == one[0].Sequence; n++ {
			}
		}
		refused, err := t.commit(ctx, one, lines[:n], tables.Apply)
		if refused {
			_, err = t.commit(ctx, one, lines[:n], tables.ApplyOneByOne)
		}
		if err != nil {
			return err
		}
		lines = lines[n:]
	}
	return nil
}

type applier func(context.Context, pgx.Tx, *tables.Batch) ([]tables.Parked, error)

// commit applies lines and moves the checkpoint to the last of the messages, in one transaction. refused is true of an error if
// PostgreSQL rejects what the lines say; segments, checkpoint and COMMIT have no lines, whatever their error.
func (t *Tables) commit(ctx context.Context, messages []eventlog.Message, lines []tables.Line, apply applier) (refused bool, err error) {
	to, clock := t.At, t.Clock
	if len(messages) > 0 {
		last := &messages[len(messages)-1]
		to, clock = last.Position(t.Log, t.Lane), wire.At(last.LaneTime)
	}
	if n := len(lines); n > 0 && lines[n-1].Sequence > to.Sequence {
		clock = max(clock, lines[n-1].Event.At)
	}
	batch := &tables.Batch{Lane: t.Lane, Lines: lines, From: t.Clock, To: clock, Schema: t.Schema}

	if claims := claimsIn(lines); claims > 0 && t.Segments != nil {
		segment, done, err := t.Segments.Take(ctx, claims)
		if err != nil {
			return false, err
		}
		defer done()
		batch.Segment = segment
	}
	if t.Segments != nil {
		batch.Unlisted = t.Segments.Unlisted() // before the transaction: what is listed by then, it lists
	}
	tx, err := tables.Begin(ctx, t.DB)
	if err != nil {
		return false, fmt.Errorf("opening the transaction of a batch: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // no effect after a commit
	// First, so that a process that is fenced off writes nothing, and finds no row of another one as a duplicate.
	if err := t.advance(ctx, tx, to, clock); err != nil {
		return false, err
	}
	parked, err := apply(ctx, tx, batch)
	if err != nil {
		_, refused = tables.Refused(err)
		return refused, fmt.Errorf("applying messages %d to %d of lane %d: %w", t.At.Sequence+1, to.Sequence, t.Lane, err)
	}
	if t.Commit == nil {
		err = tx.Commit(ctx)
	} else {
		err = t.Commit(ctx, tx)
	}
	if err != nil {
		return false, fmt.Errorf("committing a batch: %w", err)
	}
	t.At, t.Clock = to, clock
	if t.Applied != nil {
		t.Applied(batch, messages, parked)
	}
	return false, nil
}

func claimsIn(lines []tables.Line) (n int) {
	for i := range lines {
		if lines[i].Event.Type == wire.CouponClaimed {
			n++
		}
	}
	return n
}

// advance moves the checkpoint to a new position.
func (t *Tables) advance(ctx context.Context, tx pgx.Tx, to eventlog.Position, clock wire.Instant) error {
	tag, err := tx.Exec(ctx, fmt.Sprintf(advanceSQL, t.Schema), Projection, t.Lane, int64(to.Sequence), to.Digest,
		pgtype.Timestamptz{Time: clock.Time(), Valid: clock != 0}, int64(t.At.Sequence), t.At.Digest, t.At.Log, t.generation)
	if err != nil {
		return fmt.Errorf("moving the checkpoint of lane %d: %w", t.Lane, err)
	}
	if tag.RowsAffected() != 1 {
		return fmt.Errorf("lane %d: %w", t.Lane, ErrFenced)
	}
	return nil
}
