package projector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// takeMessages is how many messages are taken from the reader at a time while a batch is filled.
const takeMessages = 64

// lane projects one lane.
type lane struct {
	number   int
	p        *Projector
	stream   eventlog.Stream
	progress *progress

	// Owned by run.
	at    eventlog.Position // of the last message applied
	clock wire.Instant      // lane time at that message; 0 before the first
	// generation is that of the tables when at was read.
	generation int64
	messages   []eventlog.Message
	takenLines int // approximate lines, and bytes, in messages
	takenBytes int
	lines      []tables.Line
	// failing: PostgreSQL is available and rejects the batch.
	failing bool
	// stopped is the error that stopped the lane, nil while it is projected.
	stopped error
}

// stoppedPause is how long a stopped lane waits before it checks whether it can continue: the log may have been
// restored, a disk repaired.
const stoppedPause = 5 * time.Second

func newLane(p *Projector, js jetstream.JetStream, number int) *lane {
	return &lane{number: number, p: p, stream: eventlog.Events(js, number).In(p.log), progress: newProgress(number)}
}

// run follows the log until ctx ends (nil), or until the projector must start again (errFenced, errDropped).
func (l *lane) run(ctx context.Context) error {
	pause := newPause()
	l.failing, l.stopped = false, nil
	for {
		before := l.progress.batches.Load()
		err := l.follow(ctx)
		var pg *pgconn.PgError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errFenced):
			return err
		case tables.Missing(err):
			return errDropped
		case isFinal(err), tables.Damaged(err):
			l.stop(ctx, err)
			if errors.Is(err, eventlog.ErrNewerFormat) || errors.Is(err, eventlog.ErrUnreadable) {
				_, _ = l.stream.AwaitSkip(ctx, err) // only the operator's skip list resolves that; the loop checks ctx
				l.stopped = nil
				continue
			}
			_ = topology.Pause(ctx, stoppedPause)
			continue
		case l.stopped != nil: // something else became unavailable during the check
			l.progress.state(Stopped, l.stopped)
			_ = topology.Pause(ctx, stoppedPause)
			continue
		case errors.As(err, &pg), errors.Is(err, errPostgres):
			l.p.postgres.begin(ctx, l, err)
		default:
			l.p.nats.begin(ctx, l, err)
		}
		l.progress.state(Waiting, err)
		if l.progress.batches.Load() != before {
			pause.Reset()
		}
		_ = topology.Pause(ctx, pause.NextBackOff())
	}
}

// follow reads the log from the checkpoint, at the start and after every interruption.
func (l *lane) follow(ctx context.Context) error {
	if err := l.load(ctx); err != nil {
		return err
	}
	if !l.failing {
		l.p.postgres.end(ctx, l)
	}
	reader, err := l.stream.Open(ctx, l.p.log.UUID, l.at, eventlog.ReaderOptions{Logger: l.p.opts.Logger})
	if err != nil {
		return err
	}
	defer reader.Close()
	l.p.nats.end(ctx, l)
	if l.stopped != nil && isLost(l.stopped) { // the position is in the log again
		l.resumed(ctx)
	}
	l.progress.follow(l.at.Sequence, l.clock, reader, l.stopped == nil)
	var begun time.Time
	for {
		if err := l.take(ctx, reader); err != nil {
			return err
		}
		if rest := time.Until(begun.Add(l.p.opts.Every)); rest > 0 && !l.full() {
			_ = topology.Pause(ctx, rest)
		}
		begun = time.Now()
		err := l.p.throttle.Work(ctx, func() error {
			_ = l.fill(reader) // what arrived while it waited for its slot; the reader keeps an error for the next take
			l.progress.took(reader, len(l.messages))
			// An idle lane holds no batch.
			defer func() { clear(l.lines); clear(l.messages) }()
			return l.apply(ctx)
		})
		if err != nil {
			l.failing = isAnswer(err)
			return err
		}
		l.failing = false
		l.p.postgres.end(ctx, l)
		if l.stopped != nil {
			l.resumed(ctx)
			l.progress.resume()
		}
	}
}

// take waits for a message, then takes those that have arrived, up to the size of a batch.
func (l *lane) take(ctx context.Context, reader *eventlog.Reader) error {
	l.messages, l.takenLines, l.takenBytes = l.messages[:0], 0, 0
	for {
		err := l.fill(reader)
		l.progress.took(reader, len(l.messages))
		switch {
		case len(l.messages) > 0:
			return nil // first the messages before an error; the reader keeps the error
		case err != nil:
			return err
		}
		select {
		case <-reader.Ready():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// full reports whether a batch has its maximum size.
func (l *lane) full() bool {
	return l.takenLines >= l.p.opts.MaxLines || l.takenBytes >= l.p.opts.MaxBytes
}

// fill takes what has arrived, in addition to the messages taken before.
func (l *lane) fill(reader *eventlog.Reader) (err error) {
	for !l.full() {
		had := len(l.messages)
		if l.messages, err = reader.TryBatch(takeMessages, l.messages); err != nil || len(l.messages) == had {
			return err
		}
		for _, m := range l.messages[had:] {
			l.takenBytes += len(m.Payload)
			l.takenLines += bytes.Count(m.Payload, newline) + 1 // one too many if the last line ends with a newline
		}
	}
	return nil
}

var newline = []byte{'\n'}

// apply applies the messages taken. If PostgreSQL rejects the batch, it retries message by message, then line by line.
func (l *lane) apply(ctx context.Context) error {
	err := l.commit(ctx, l.messages, tables.Apply)
	if _, refused := tables.Refused(err); !refused {
		return err
	}
	for i := range l.messages {
		one := l.messages[i : i+1]
		err := l.commit(ctx, one, tables.Apply)
		if _, refused := tables.Refused(err); refused {
			err = l.commit(ctx, one, tables.ApplyOneByOne)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type applier func(context.Context, pgx.Tx, *tables.Batch) ([]tables.Parked, error)

// commit applies messages and moves the checkpoint to the last of them, in one transaction.
func (l *lane) commit(ctx context.Context, messages []eventlog.Message, apply applier) error {
	batch := l.decode(messages)
	last := &messages[len(messages)-1]
	to := last.Position(l.p.log.UUID, l.number)

	tx, err := tables.Begin(ctx, l.p.db)
	if err != nil {
		return postgresError("beginning a batch", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // no effect after a commit
	// First, so that a projector that is fenced off writes nothing, and finds no row of another one as a duplicate.
	if err := l.advance(ctx, tx, to, batch.To); err != nil {
		return err
	}
	parked, err := apply(ctx, tx, batch)
	if err != nil {
		return postgresError(fmt.Sprintf("applying messages %d to %d of lane %d", messages[0].Sequence, last.Sequence, l.number), err)
	}
	if f := l.p.faults.beforeCommit; f != nil {
		f(l.number, tx.Conn().PgConn().PID())
	}
	// If no reply arrives, follow reads from the checkpoint whether it was committed.
	if err := tx.Commit(ctx); err != nil {
		return postgresError("committing a batch", err)
	}
	if f := l.p.faults.afterCommit; f != nil {
		if err := f(l.number); err != nil {
			return postgresError("committing a batch", err)
		}
	}
	l.at, l.clock = to, batch.To
	l.progress.applied(batch, to.Sequence, len(messages), len(parked))
	if len(parked) > 0 {
		l.p.opts.Logger.ErrorContext(ctx, "event lines stored as dead letters, see scrip.dead_letter", "lane", l.number, "lines", len(parked),
			"sequence", parked[0].Sequence, "line", parked[0].Line, "reason", parked[0].Reason)
	}
	return nil
}

// decode reads the lines of messages into a batch that follows the lane's position.
func (l *lane) decode(messages []eventlog.Message) *tables.Batch {
	l.lines = slices.Grow(l.lines[:0], l.takenLines)
	var clock wire.Instant
	for i := range messages {
		m := &messages[i]
		clock = wire.At(m.LaneTime)
		for n, raw := range eventlog.Lines(m.Payload) {
			if len(l.lines) == cap(l.lines) {
				l.lines = slices.Grow(l.lines, 1)
			}
			l.lines = l.lines[:len(l.lines)+1]
			l.lines[len(l.lines)-1].Read(m.Sequence, uint32(n)+1, raw, clock) // sets every field
		}
	}
	return &tables.Batch{Lane: l.number, Lines: l.lines, From: l.clock, To: clock}
}

// errPostgres is the kind of all errors of PostgreSQL.
var errPostgres = errors.New("PostgreSQL")

func postgresError(doing string, err error) error {
	return fmt.Errorf("%s: %w: %w", doing, errPostgres, err)
}

// isAnswer reports whether PostgreSQL returned an error, rather than became unavailable.
func isAnswer(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && !strings.HasPrefix(pg.Code, "08") && !strings.HasPrefix(pg.Code, "57P")
}

// isFinal reports whether a retry cannot help: the log is not the one that was read, or has a newer format.
func isFinal(err error) bool {
	var gap *eventlog.GapError
	return isLost(err) || errors.Is(err, eventlog.ErrHole) || errors.Is(err, eventlog.ErrNewerFormat) || errors.Is(err, eventlog.ErrUnreadable) || errors.As(err, &gap)
}

// isLost reports whether the log lacks what the tables were filled from.
func isLost(err error) bool {
	return errors.Is(err, eventlog.ErrLostTail) || errors.Is(err, eventlog.ErrDiverged) || errors.Is(err, eventlog.ErrTrimmed)
}

// stop records and logs that the lane has stopped, with the next command.
func (l *lane) stop(ctx context.Context, err error) {
	switch {
	case isLost(err):
		err = fmt.Errorf("the log no longer has what the read tables were filled from up to message %d of lane %d (restored, tail lost, or another log): %w; "+
			"run `scrip rebuild` to fill the tables again from the log as it is, or restore the log", l.at.Sequence, l.number, err)
	case tables.Damaged(err):
		err = fmt.Errorf("PostgreSQL reports damaged files after message %d of lane %d: %w; check its disk, "+
			"then run `scrip rebuild` to fill the tables again from the log", l.at.Sequence, l.number, err)
	}
	l.progress.state(Stopped, err)
	if l.stopped == nil {
		l.p.opts.Logger.ErrorContext(ctx, "lane is not projected any more", "lane", l.number, "err", err)
	}
	l.stopped = err
	l.p.postgres.end(ctx, l) // it does not wait for PostgreSQL
}

func (l *lane) resumed(ctx context.Context) {
	l.stopped = nil
	l.p.opts.Logger.InfoContext(ctx, "lane is projected again", "lane", l.number, "from", l.at.Sequence)
}
