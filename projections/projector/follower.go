package projector

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// follower projects one lane.
type follower struct {
	number   int
	p        *Projector
	stream   eventlog.Stream
	progress *progress

	// Owned by run.
	tables fill.Tables // and the checkpoint
	batch  fill.Batch
	lines  []tables.Line // of the batch
	// failing: PostgreSQL is available and rejects the batch.
	failing bool
	// stopped is the error that stopped the lane, nil while it is projected.
	stopped error
}

// stoppedPause is how long a stopped lane waits before it checks whether it can continue: the log may have been
// restored, a disk repaired.
const stoppedPause = 5 * time.Second

func newFollower(p *Projector, js jetstream.JetStream, number int) *follower {
	l := &follower{
		number: number, p: p, stream: eventlog.Events(js, number).In(p.log),
		progress: newProgress(number, p.opts.Clock, js.Conn().IsConnected, &p.signals.progress),
	}
	l.tables = fill.Tables{DB: p.db, Log: p.log.UUID, Lane: number, Commit: l.commit, Applied: l.applied}
	return l
}

// run follows the log until ctx ends (nil), or until the projector must start again (fill.ErrFenced, errDropped).
func (l *follower) run(ctx context.Context) error {
	pause := newPause()
	l.failing, l.stopped = false, nil
	for {
		before := l.progress.batches.Load()
		err := l.follow(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, fill.ErrFenced):
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
			l.p.pause(ctx, stoppedPause)
			continue
		case l.stopped != nil: // something else became unavailable during the check
			l.progress.state(Stopped, l.stopped)
			l.p.pause(ctx, stoppedPause)
			continue
		case errors.Is(err, errPostgres):
			l.p.postgres.start(ctx, l, err)
		default:
			l.p.nats.start(ctx, l, err)
		}
		l.progress.state(Waiting, err)
		if l.progress.batches.Load() != before {
			pause.Reset()
		}
		l.p.pause(ctx, pause.NextBackOff())
	}
}

// follow reads the log from the checkpoint, at the start and after every interruption.
func (l *follower) follow(ctx context.Context) error {
	if err := l.tables.Load(ctx, l.p.db); err != nil {
		return postgresError(err)
	}
	l.progress.load(l.tables.At.Sequence, l.tables.Clock)
	if !l.failing {
		l.p.postgres.end(ctx, l)
	}
	reader, err := l.stream.Open(ctx, l.p.log.UUID, l.tables.At, eventlog.ReaderOptions{Logger: l.p.opts.Logger})
	if err != nil {
		return err
	}
	defer reader.Close()
	l.p.nats.end(ctx, l)
	if l.stopped != nil && fill.IsLost(l.stopped) { // the position is in the log again
		l.resumed(ctx)
	}
	l.progress.follow(reader, l.stopped == nil)
	limits := l.p.opts.Limits
	var started time.Time
	for {
		if err := l.batch.Wait(ctx, reader, limits, math.MaxUint64); err != nil {
			return err
		}
		l.progress.took(len(l.batch.Messages))
		if rest := started.Add(l.p.opts.Every).Sub(l.p.opts.Clock.Now()); rest > 0 && !l.batch.Full(limits) {
			l.p.pause(ctx, rest)
		}
		started = l.p.opts.Clock.Now()
		err := l.p.throttle.Work(ctx, func() error {
			_ = l.batch.Fill(reader, limits, math.MaxUint64) // what arrived while it waited for its slot; the reader keeps an error
			l.progress.took(len(l.batch.Messages))
			defer func() { l.batch.Reset(); clear(l.lines) }() // an idle lane holds no batch
			l.lines = l.lines[:0]
			for i := range l.batch.Messages {
				l.lines = fill.Parse(l.lines, &l.batch.Messages[i], nil)
			}
			traced := l.traced()
			err := l.tables.Apply(ctx, l.batch.Messages, l.lines)
			if traced != nil {
				traced(err)
			}
			return postgresError(err)
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

// traced makes the span of the batch, and returns what ends it; nil = it has no sampled step, or there are no traces.
func (l *follower) traced() (end func(error)) {
	if l.p.opts.Trace == nil {
		return nil
	}
	var steps []string
	for i := range l.batch.Messages {
		if parent := l.batch.Messages[i].Trace(); parent != "" && len(steps) < topology.MostTraces {
			steps = append(steps, parent)
		}
	}
	if steps == nil {
		return nil
	}
	return l.p.opts.Trace(l.number, steps)
}

// commit commits. If no reply arrives, follow reads from the checkpoint whether it took effect.
func (l *follower) commit(ctx context.Context, tx pgx.Tx) error {
	if f := l.p.faults.beforeCommit; f != nil {
		f(l.number, tx.Conn().PgConn().PID())
	}
	err := tx.Commit(ctx)
	if f := l.p.faults.afterCommit; f != nil && err == nil {
		err = f(l.number)
	}
	return err
}

// applied records what a transaction applied.
func (l *follower) applied(batch *tables.Batch, messages []eventlog.Message, parked []tables.Parked) {
	if len(parked) > 0 {
		l.p.opts.Logger.Error("event lines stored as dead letters, see scrip.dead_letter", "lane", l.number, "lines", len(parked),
			"sequence", parked[0].Sequence, "line", parked[0].Line, "reason", parked[0].Reason)
	}
	l.progress.applied(batch, l.tables.At.Sequence, len(messages), len(parked))
}

// errPostgres is the kind of all errors of PostgreSQL.
var errPostgres = errors.New("PostgreSQL")

func postgresError(err error) error {
	if err == nil || errors.Is(err, fill.ErrFenced) {
		return err
	}
	return fmt.Errorf("%w: %w", errPostgres, err)
}

// isAnswer reports whether PostgreSQL returned an error, rather than became unavailable.
func isAnswer(err error) bool {
	state := schema.State(err)
	return state != "" && !strings.HasPrefix(state, "08") && !strings.HasPrefix(state, "57P")
}

// isFinal reports whether a retry cannot help: the log is not the one that was read, or has a newer format.
func isFinal(err error) bool {
	var gap *eventlog.GapError
	return fill.IsLost(err) || errors.Is(err, eventlog.ErrHole) || errors.Is(err, eventlog.ErrNewerFormat) || errors.Is(err, eventlog.ErrUnreadable) || errors.As(err, &gap)
}

// stop records and logs that the lane has stopped, with the next command.
func (l *follower) stop(ctx context.Context, err error) {
	switch {
	case fill.IsLost(err):
		err = fmt.Errorf("the log no longer has what the read tables were filled from up to message %d of lane %d (restored, tail lost, or another log): %w; "+
			"run `scrip rebuild` to fill the tables again from the log as it is, or restore the log", l.tables.At.Sequence, l.number, err)
	case tables.Damaged(err):
		err = fmt.Errorf("PostgreSQL reports damaged files after message %d of lane %d: %w; check its disk, "+
			"then run `scrip rebuild` to fill the tables again from the log", l.tables.At.Sequence, l.number, err)
	}
	if l.stopped == nil {
		l.p.opts.Logger.ErrorContext(ctx, "lane is not projected any more", "lane", l.number, "err", err)
	}
	l.stopped = err
	l.p.postgres.end(ctx, l) // it does not wait for PostgreSQL
	l.progress.state(Stopped, err)
}

func (l *follower) resumed(ctx context.Context) {
	l.stopped = nil
	l.p.opts.Logger.InfoContext(ctx, "lane is projected again", "lane", l.number, "from", l.tables.At.Sequence)
}
