package rebuild

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/projections/segments"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// selection selects the part of the log that is folded. The zero value selects all of it.
type selection struct {
	// Until leaves out events after this lane time. 0 = none.
	Until wire.Instant
	// Campaign leaves out all other campaigns. Empty = none.
	Campaign string
}

// shadow is a set of read tables being filled beside the live ones.
type shadow struct {
	s     *Session
	name  string
	only  selection
	lanes []*loader

	segments *segments.Set

	urgent bool // the projector waits
}

// shadowRows is how many rows a segment of a shadow has: nobody reads them before they are sealed.
const shadowRows = 256_000

// load fills a shadow up to a sequence per lane, and seals its segments. r, if not nil, gets the times.
func (sh *shadow) load(ctx context.Context, to []uint64, r *Result) error {
	s, started := sh.s, time.Now()
	if err := sh.fill(ctx, Loading, to); err != nil {
		return err
	}
	loaded := time.Since(started)
	s.report.enter(Indexing, 0)
	if err := s.opts.Hook(Indexing); err != nil {
		return err
	}
	if err := sh.running(ctx, sh.segments.Finish); err != nil {
		return err
	}
	// For good plans from the first query on. Afterwards autovacuum looks after these, and the keeper of segments after coupons.
	if _, err := s.pool.Exec(ctx, strings.ReplaceAll("ANALYZE x.campaign, x.coupon_state, x.redemption_row, x.reminder, x.expiry_own, x.day_stats", "x.", sh.name+".")); err != nil {
		return fmt.Errorf("analyzing the tables: %w", err)
	}
	if err := sh.segments.Analyze(ctx); err != nil {
		return err
	}
	if r != nil {
		r.Loaded, r.Indexed = loaded, time.Since(started)-loaded
	}
	return nil
}

// newShadow makes empty tables, or opens those of a schema that is named, with keysOnly without the indexes that only readers use.
func (s *Session) newShadow(ctx context.Context, name string, only selection, keysOnly bool) (*shadow, error) {
	s.fills.Store(true)
	sh := &shadow{s: s, name: name, only: only}
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) (err error) {
		if name == "" {
			if sh.name, err = schema.Make(ctx, tx); err != nil {
				return err
			}
		}
		for n := range s.log.Lanes {
			l := newLoader(sh, n)
			if err := l.Load(ctx, tx); err != nil {
				return err
			}
			sh.lanes = append(sh.lanes, l)
		}
		return nil
	})
	if err == nil {
		sh.segments, err = segments.Open(ctx, s.pool, sh.name, segments.Options{Rows: shadowRows, Waiting: s.opts.Parallel, Sealers: s.opts.Parallel, KeysOnly: keysOnly})
	}
	if err != nil {
		return nil, fmt.Errorf("making new tables: %w", explain(err))
	}
	for _, l := range sh.lanes {
		l.Segments = sh.segments
	}
	s.report.update(func(p *Progress) { p.Events = 0 })
	return sh, nil
}

// running runs f while segments are being sealed.
func (sh *shadow) running(ctx context.Context, f func(context.Context) error) error {
	g, gctx := errgroup.WithContext(ctx)
	within, stop := context.WithCancel(gctx)
	defer stop()
	g.Go(func() error { return sh.segments.Run(within) })
	g.Go(func() error {
		defer stop()
		if err := f(gctx); err != nil {
			return err
		}
		return sh.segments.Settle(gctx)
	})
	return g.Wait()
}

// events returns the number of event lines applied.
func (sh *shadow) events() uint64 { return sh.s.report.get().Events }

// fill applies each lane's messages up to a sequence; a lane that is already there is left unchanged. Options.Parallel
// lanes are filled at the same time.
func (sh *shadow) fill(ctx context.Context, phase Phase, to []uint64) error {
	total := sh.lags(to)
	sh.s.report.enter(phase, total)
	if err := sh.s.opts.Hook(phase); err != nil {
		return err
	}
	if total == 0 {
		return nil
	}
	return sh.running(ctx, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(sh.s.opts.Parallel)
		for n, l := range sh.lanes {
			if to[n] > l.At.Sequence && (sh.only.Campaign == "" || topology.LaneOf(sh.only.Campaign, len(sh.lanes)) == n) {
				g.Go(func() error { return l.fill(ctx, phase, to[n]) })
			}
		}
		return g.Wait()
	})
}

// fillLocked is fill while the projector is locked out.
func (sh *shadow) fillLocked(ctx context.Context, phase Phase, to []uint64) error {
	sh.urgent = true
	defer func() { sh.urgent = false }()
	return sh.fill(ctx, phase, to)
}

// lags returns how many messages are missing up to a sequence per lane.
func (sh *shadow) lags(to []uint64) (total uint64) {
	for n, l := range sh.lanes {
		total += to[n] - min(to[n], l.At.Sequence)
	}
	return total
}

// loader fills a shadow from one lane. It reads and parses the next batch while one is written.
type loader struct {
	fill.Tables
	sh     *shadow
	stream eventlog.Stream
	ended  bool // by selection.Until
}

// batch is the content of one transaction: whole messages, and if it ended also the lines of the next message up to
// selection.Until.
type batch struct {
	fill.Batch
	lines []tables.Line
	ended bool
}

func newLoader(sh *shadow, number int) *loader {
	l := &loader{sh: sh, stream: eventlog.Events(sh.s.js, number).In(sh.s.log)}
	l.Tables = fill.Tables{DB: sh.s.pool, Schema: sh.name, Log: sh.s.log.UUID, Lane: number, Commit: commit, Applied: l.applied}
	return l
}

// commitTime bounds a commit.
const commitTime = 30 * time.Second

// commit is not ended by ctx: after a commit whose reply was not awaited, a retry would find a moved checkpoint and
// report another session.
func commit(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTime)
	defer cancel()
	return tx.Commit(ctx)
}

func (l *loader) applied(b *tables.Batch, messages []eventlog.Message, _ []tables.Parked) {
	l.sh.s.report.update(func(p *Progress) {
		p.Messages += uint64(len(messages))
		p.Events += uint64(len(b.Lines))
	})
}

// fill applies the next messages, up to a sequence.
func (l *loader) fill(ctx context.Context, phase Phase, to uint64) error {
	if l.ended {
		return nil
	}
	reader, err := l.stream.Open(ctx, l.Log, l.At, eventlog.ReaderOptions{Logger: l.sh.s.opts.Logger})
	if err != nil {
		return fmt.Errorf("reading lane %d: %w", l.Lane, err)
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
			l.ended = b.ended
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
			return fmt.Errorf("reading lane %d: %w", l.Lane, err)
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

// take reads until a batch is full, or the end is reached.
func (l *loader) take(ctx context.Context, reader *eventlog.Reader, to uint64, b *batch) error {
	limits, until := l.sh.s.opts.Limits, l.sh.only.Until
	keep := func(line *tables.Line) bool {
		at := line.Event.At
		if line.Problem != nil {
			at = line.At
		}
		b.ended = b.ended || until != 0 && at > until
		return !b.ended && (l.sh.only.Campaign == "" || line.Event.Campaign == l.sh.only.Campaign)
	}
	b.Reset()
	b.lines = b.lines[:0]
	for reader.Sequence() < to && !b.ended && !b.Full(limits) {
		had := len(b.Messages)
		if err := b.Wait(ctx, reader, limits, to); err != nil {
			return err
		}
		for i := had; i < len(b.Messages) && !b.ended; i++ {
			m := &b.Messages[i]
			b.lines = fill.Parse(b.lines, m, keep)
			b.ended = b.ended || until != 0 && wire.At(m.LaneTime) > until
			if b.ended {
				b.Messages = b.Messages[:i] // its first lines may be applied, but the checkpoint stays before it
			}
		}
	}
	return nil
}

// write applies a batch.
func (l *loader) write(ctx context.Context, phase Phase, b *batch) error {
	if err := l.sh.s.opts.Hook(phase); err != nil {
		return err
	}
	started := time.Now()
	err := l.Apply(ctx, b.Messages, b.lines)
	switch {
	case errors.Is(err, fill.ErrFenced): // the shadow was dropped and created again
		return fmt.Errorf("another session fills the same tables; run it again: %w", err)
	case err != nil:
		return fmt.Errorf("filling lane %d after message %d: %w", l.Lane, l.At.Sequence, err)
	}
	if !l.sh.urgent {
		l.sh.s.throttle.Pause(ctx, time.Since(started))
	}
	return ctx.Err()
}
