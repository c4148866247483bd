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

// couponBytes is the approximate size of a row of coupon_row in a COPY.
const couponBytes = 192

func (f *fold) copyCoupons(ctx context.Context, tx pgx.Tx) error {
	var rows pgcopy.Rows
	rows.Grow(f.claims * couponBytes)
	for _, c := range f.sorted {
		for k := c.claims; k != nil; k = k.next {
			rows.Row(12)
			rows.Int64(int64(k.n))
			rows.Instant(k.claimedAt)
			rows.Int64(int64(k.redeemedCount))
			rows.Instant(k.ownExpiry)
			rows.Instant(k.redeemedAt)
			rows.Instant(k.voidedAt)
			rows.Text(c.name)
			rows.Text(k.code)
			rows.Text(k.customer)
			rows.TextOrNull(pgcopy.Clean(string(k.attributes)))
			rows.TextOrNull(k.voidReason)
			rows.Int64(k.position)
		}
	}
	return rows.Send(ctx, tx, in(f.schema, "scrip.coupon_row"),
		"n, claimed_at, redeemed_count, expires_at, redeemed_at, voided_at, campaign, code, customer_id, attributes, void_reason, claimed_place")
}

func (f *fold) copyRedemptions(ctx context.Context, tx pgx.Tx) error {
	var rows pgcopy.Rows
	for _, r := range f.redemptions {
		rows.Row(9)
		rows.Int64(int64(r.coupon.n))
		rows.Instant(r.at)
		rows.Instant(r.rolledBackAt)
		rows.Int64(int64(r.sequence))
		rows.Int64(int64(r.line))
		rows.Text(r.campaign)
		rows.Text(r.coupon.code)
		rows.Text(r.coupon.customer)
		rows.Text(r.order)
	}
	return rows.Send(ctx, tx, in(f.schema, "scrip.redemption"),
		"n, redeemed_at, rolled_back_at, sequence, line, campaign, code, customer_id, order_id")
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

// $1, $2 = campaign, n   $3.. = their new values
const changeCouponsSQL = `
UPDATE scrip.coupon_row r
SET expires_at = d.expires_at, redeemed_count = d.redeemed_count, redeemed_at = d.redeemed_at, voided_at = d.voided_at,
    void_reason = nullif(d.void_reason, '')
FROM unnest($1::text[], $2::bigint[], $3::timestamptz[], $4::bigint[], $5::timestamptz[], $6::timestamptz[], $7::text[])
     d (campaign, n, expires_at, redeemed_count, redeemed_at, voided_at, void_reason)
WHERE r.campaign = d.campaign AND r.n = d.n`

func (f *fold) changeCoupons(w *writer) {
	var campaigns, reasons []string
	var ns, counts []int64
	var own, redeemed, voided instants
	for _, c := range f.sorted {
		for _, k := range c.coupons {
			if k.isNew || !k.changed {
				continue
			}
			campaigns, ns, counts, reasons = append(campaigns, c.name), append(ns, int64(k.n)), append(counts, int64(k.redeemedCount)), append(reasons, k.voidReason)
			own, redeemed, voided = own.add(k.ownExpiry), redeemed.add(k.redeemedAt), voided.add(k.voidedAt)
		}
	}
	if len(ns) > 0 {
		w.queue(changeCouponsSQL, campaigns, ns, own, counts, redeemed, voided, reasons)
	}
}

// Rows of this batch, copied before, are at or after ($5, $6) and are excluded.
//
// $1..$3 = campaign, n, order   $4 = when   $5, $6 = sequence and line of the batch's first event
const rollBackSQL = `
UPDATE scrip.redemption r SET rolled_back_at = d.at
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::timestamptz[]) d (campaign, n, order_id, at)
WHERE r.campaign = d.campaign AND r.n = d.n AND r.order_id = d.order_id
  AND coalesce(r.rolled_back_at IS NULL AND (r.sequence, r.line) < ($5::bigint, $6::bigint), false)`

func (f *fold) rollBack(w *writer, first *Line) {
	if len(f.rollbacks) == 0 {
		return
	}
	var campaigns, orders []string
	var ns []int64
	var at instants
	for _, r := range f.rollbacks {
		campaigns, ns, orders, at = append(campaigns, r.campaign), append(ns, int64(r.n)), append(orders, r.order), at.add(r.at)
	}
	w.queue(rollBackSQL, campaigns, ns, orders, at, int64(first.Sequence), int64(first.Number))
}

// A coupon with some of its redemptions rolled back was last redeemed at the newest of the others.
//
// $1, $2 = campaign, n
const recheckRedeemedSQL = `
UPDATE scrip.coupon_row r SET redeemed_at = coalesce((
    SELECT max(x.redeemed_at) FROM scrip.redemption x
    WHERE x.campaign = r.campaign AND x.n = r.n AND x.rolled_back_at IS NULL), r.redeemed_at)
FROM unnest($1::text[], $2::bigint[]) d (campaign, n)
WHERE r.campaign = d.campaign AND r.n = d.n`

func (f *fold) recheckRedeemed(w *writer) {
	var campaigns []string
	var ns []int64
	for _, c := range f.sorted {
		for _, k := range c.coupons {
			if k.recheck && k.redeemedCount > 0 {
				campaigns, ns = append(campaigns, c.name), append(ns, int64(k.n))
			}
		}
	}
	if len(ns) > 0 {
		w.queue(recheckRedeemedSQL, campaigns, ns)
	}
}

// instants is a column of times; 0 is NULL.
type instants []pgtype.Timestamptz

func (s instants) add(at wire.Instant) instants { return append(s, timestamp(at)) }
