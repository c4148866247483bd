package tables

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
)

// writer writes the result of a fold. New rows are written by COPY; changes of rows are queued and sent in one round
// trip.
type writer struct {
	tx     pgx.Tx
	schema string
	batch  pgx.Batch
}

func (w *writer) queue(sql string, args ...any) *pgx.QueuedQuery {
	return w.batch.Queue(in(w.schema, sql), args...)
}

func (w *writer) flush(ctx context.Context) error {
	if w.batch.Len() == 0 {
		return nil
	}
	err := w.tx.SendBatch(ctx, &w.batch).Close()
	w.batch = pgx.Batch{}
	if err != nil {
		return fmt.Errorf("changing rows: %w", err)
	}
	return nil
}

// write writes the result of the fold to the tables. first is the position of the first line folded.
func (f *fold) write(ctx context.Context, tx pgx.Tx, first *Line) error {
	w := &writer{tx: tx, schema: f.schema}
	f.sort()
	if err := f.boundStats(ctx, tx); err != nil {
		return err
	}
	for _, copyNew := range []func(context.Context, pgx.Tx) error{f.copyCampaigns, f.copyTasks, f.copyTotals, f.copyCoupons, f.copyRedemptions, f.copyCouponEvents, f.copyExpiries, f.copyDeadLetters} {
		if err := copyNew(ctx, tx); err != nil {
			return err
		}
	}
	f.changeSettings(w)
	f.changeCoupons(w)
	f.rollBack(w, first)
	f.recheckRedeemed(w)
	f.writeStats(w)
	f.writeRefusals(w)
	if crossed := f.writeTasks(w); crossed {
		// How many coupons expired is known only now.
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	f.writeCounts(w)
	for _, round := range f.reminders {
		if len(round.set) > 0 {
			// Copied rows must not be visible to statements queued before.
			if err := w.flush(ctx); err != nil {
				return err
			}
			if err := round.copySet(ctx, tx, f.schema); err != nil {
				return err
			}
		}
		round.write(w)
	}
	return w.flush(ctx)
}

// sort lists the campaigns by name, so that adjacent rows on disk and in indexes are written together.
func (f *fold) sort() {
	f.sorted = make([]*campaign, 0, len(f.campaigns))
	for _, c := range f.campaigns {
		f.sorted = append(f.sorted, c)
	}
	slices.SortFunc(f.sorted, func(a, b *campaign) int { return strings.Compare(a.name, b.name) })
}

func (f *fold) copyDeadLetters(ctx context.Context, tx pgx.Tx) error {
	var rows pgcopy.Rows
	for i := range f.deadLetters {
		l := &f.deadLetters[i]
		rows.Row(9)
		rows.Int64(int64(f.lane))
		rows.Int64(int64(l.sequence))
		rows.Int64(int64(l.line))
		rows.Int64(int64(l.eventSeq))
		rows.Int64(int64(l.eventLine))
		rows.Instant(l.at)
		rows.Text(l.stream)
		rows.Text(l.reason)
		rows.Text(l.payload)
	}
	return rows.Send(ctx, tx, in(f.schema, "scrip.dead_letter"), "lane, sequence, line, event_sequence, event_line, at, stream, reason, payload")
}

// instants is a column of times; 0 is NULL.
type instants []pgtype.Timestamptz

func (s instants) add(at wire.Instant) instants { return append(s, timestamp(at)) }
