package tables

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
)

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

func (f *fold) copyCouponEvents(ctx context.Context, tx pgx.Tx) error {
	var rows pgcopy.Rows
	for i := range f.couponEvents {
		h := &f.couponEvents[i]
		rows.Row(9)
		rows.Int64(int64(h.n))
		rows.Int64(h.position)
		rows.Instant(h.at)
		rows.Instant(h.expiresAt)
		rows.Instant(h.before)
		rows.Text(h.campaign)
		rows.Text(h.what)
		if h.what == "rolled_back" {
			rows.Text(h.order)
		} else {
			rows.Null()
		}
		rows.TextOrNull(h.reason)
	}
	return rows.Send(ctx, tx, in(f.schema, "scrip.coupon_event"), "n, place, at, expires_at, own_before, campaign, what, order_id, reason")
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
