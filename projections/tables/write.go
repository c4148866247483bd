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

// change queues a statement over rows, whose columns are its first arguments. It returns nil if there are no rows.
func (w *writer) change(sql string, rows *arrays, more ...any) *pgx.QueuedQuery {
	if len(rows.columns) == 0 {
		return nil
	}
	args := make([]any, 0, len(rows.columns)+len(more))
	for i := range rows.columns {
		switch c := &rows.columns[i]; {
		case c.texts != nil:
			args = append(args, c.texts)
		case c.numbers != nil:
			args = append(args, c.numbers)
		default:
			args = append(args, c.instants)
		}
	}
	return w.batch.Queue(In(w.schema, sql), append(args, more...)...)
}

// arrays are rows as arguments of a statement: an array per column.
type arrays struct{ columns []column }

// column has values of one type.
type column struct {
	texts    []string
	numbers  []int64
	instants []pgtype.Timestamptz // 0 is NULL
}

// add adds a row of texts, numbers and instants.
func (a *arrays) add(row ...any) {
	if a.columns == nil {
		a.columns = make([]column, len(row))
	}
	for i, v := range row {
		c := &a.columns[i]
		switch v := v.(type) {
		case string:
			c.texts = append(c.texts, v)
		case int64:
			c.numbers = append(c.numbers, v)
		case uint32:
			c.numbers = append(c.numbers, int64(v))
		case uint64:
			c.numbers = append(c.numbers, int64(v))
		case wire.Instant:
			c.instants = append(c.instants, timestamp(v))
		default:
			panic(fmt.Sprintf("a column of type %T", v))
		}
	}
}

func (w *writer) flush(ctx context.Context) error {
	if w.batch.Len() == 0 {
		return nil
	}
	err := w.tx.SendBatch(ctx, &w.batch).Close()
	w.batch = pgx.Batch{}
	return err
}

// write writes the result of the fold to the tables. first is the position of the first line folded.
func (f *fold) write(ctx context.Context, tx pgx.Tx, first *Line) error {
	w := &writer{tx: tx, schema: f.schema}
	f.sort()
	if err := f.boundStats(ctx, tx); err != nil {
		return err
	}
	for _, copyNew := range []func(context.Context, pgx.Tx) error{f.copyCampaigns, f.copyTasks, f.copyCoupons, f.copyRedemptions, f.copyCouponEvents, f.copyExpiries, f.copyAllotments, f.copyCampaignEvents, f.copyDeadLetters} {
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
		rows.Add(f.lane, l.sequence, l.line, l.eventSeq, l.eventLine, l.at, l.stream, l.reason, l.payload)
	}
	return rows.Send(ctx, tx, In(f.schema, "scrip.dead_letter"), "lane, sequence, line, event_sequence, event_line, at, stream, reason, payload")
}
