package tables

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// writer sends what a fold found. New rows go by COPY; changes of rows are queued and go in one round trip.
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

// write brings the tables to where the fold is. first is the place of the first line folded.
func (f *fold) write(ctx context.Context, tx pgx.Tx, first *Line) error {
	w := &writer{tx: tx, schema: f.schema}
	f.sort()
	if err := f.boundValues(ctx, tx); err != nil {
		return err
	}
	for _, copyNew := range []func(context.Context, pgx.Tx) error{f.copyCampaigns, f.copyTasks, f.copyTotals, f.copyCoupons, f.copyRedemptions, f.copyHappenings, f.copyExpiries, f.copyLetters} {
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
		// How many coupons fell is known only now.
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	f.writeCounts(w)
	for _, round := range f.reminders {
		if len(round.set) > 0 {
			// Copied rows must not be seen by what was queued before.
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

// sort lists the campaigns by name: rows that lie together on disk and in indexes are written together.
func (f *fold) sort() {
	f.sorted = make([]*campaign, 0, len(f.campaigns))
	for _, c := range f.campaigns {
		f.sorted = append(f.sorted, c)
	}
	slices.SortFunc(f.sorted, func(a, b *campaign) int { return strings.Compare(a.name, b.name) })
}

// couponBytes is what a row of coupon_row takes in a COPY, about.
const couponBytes = 192

func (f *fold) copyCoupons(ctx context.Context, tx pgx.Tx) error {
	var rows copyRows
	rows.expect(f.claims * couponBytes)
	for _, c := range f.sorted {
		for k := c.claims; k != nil; k = k.next {
			rows.row(12)
			rows.number(int64(k.n))
			rows.instant(k.claimedAt)
			rows.number(int64(k.redeemedCount))
			rows.instant(k.own)
			rows.instant(k.redeemedAt)
			rows.instant(k.voidedAt)
			rows.text(c.name)
			rows.text(k.code)
			rows.text(k.customer)
			rows.textOrNull(clean(string(k.attributes)))
			rows.textOrNull(k.voidReason)
			rows.number(k.place)
		}
	}
	return rows.send(ctx, tx, f.schema, "coupon_row",
		"n, claimed_at, redeemed_count, expires_at, redeemed_at, voided_at, campaign, code, customer_id, attributes, void_reason, claimed_place")
}

func (f *fold) copyRedemptions(ctx context.Context, tx pgx.Tx) error {
	var rows copyRows
	for _, r := range f.redemptions {
		rows.row(9)
		rows.number(int64(r.coupon.n))
		rows.instant(r.at)
		rows.instant(r.rolledBackAt)
		rows.number(int64(r.sequence))
		rows.number(int64(r.line))
		rows.text(r.campaign)
		rows.text(r.coupon.code)
		rows.text(r.coupon.customer)
		rows.text(r.order)
	}
	return rows.send(ctx, tx, f.schema, "redemption",
		"n, redeemed_at, rolled_back_at, sequence, line, campaign, code, customer_id, order_id")
}

func (f *fold) copyLetters(ctx context.Context, tx pgx.Tx) error {
	var rows copyRows
	for i := range f.letters {
		l := &f.letters[i]
		rows.row(9)
		rows.number(int64(f.lane))
		rows.number(int64(l.sequence))
		rows.number(int64(l.line))
		rows.number(int64(l.eventSeq))
		rows.number(int64(l.eventLine))
		rows.instant(l.at)
		rows.text(l.stream)
		rows.text(l.reason)
		rows.text(l.payload)
	}
	return rows.send(ctx, tx, f.schema, "dead_letter", "lane, sequence, line, event_sequence, event_line, at, stream, reason, payload")
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
			own, redeemed, voided = own.add(k.own), redeemed.add(k.redeemedAt), voided.add(k.voidedAt)
		}
	}
	if len(ns) > 0 {
		w.queue(changeCouponsSQL, campaigns, ns, own, counts, redeemed, voided, reasons)
	}
}

// Rows of this very batch, copied before, lie at or behind ($5, $6) and are not meant.
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

// A coupon with some of its redemptions rolled back was last redeemed when the newest of the others was made.
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
