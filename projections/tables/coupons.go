package tables

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
)

func (f *fold) claimed(c *campaign, l *Line) error {
	e := &l.Event
	switch {
	case e.N == 0:
		return fmt.Errorf("n: a coupon has a number")
	case int64(e.N) <= c.highest: // numbers rise
		return duplicateRow("coupon_claim_key")
	}
	c.highest = int64(e.N)
	k := f.newCoupon()
	*k = coupon{
		n: e.N, code: e.Code, customer: e.CustomerID, attributes: e.Attributes, claimedAt: e.At, position: l.position(),
		ownExpiry: e.ExpiresAt, claimedExpiry: e.ExpiresAt,
	}
	if f.acts {
		c.keep(k)
	}
	f.addRow(c, k)
	c.claimed++
	c.counted = true
	c.add(k, +1)
	f.count(c, k, e.At, stat{claimed: 1})
	return nil
}

// addRow makes the row of a coupon.
func (f *fold) addRow(c *campaign, k *coupon) {
	if c.newest == nil {
		c.claims = k
	} else {
		c.newest.next = k
	}
	c.newest = k
	f.claims++
}

// couponChunk is how many coupons are allocated at once.
const couponChunk = 128

func (f *fold) newCoupon() *coupon {
	if len(f.chunk) == 0 {
		f.chunk = make([]coupon, couponChunk)
	}
	k := &f.chunk[0]
	f.chunk = f.chunk[1:]
	return k
}

// coupon folds an event of a claimed coupon: it subtracts the coupon from its counts, changes it, and adds it to the
// counts of its new state.
func (f *fold) coupon(c *campaign, l *Line) error {
	e := &l.Event
	k := c.coupons[e.N]
	if k == nil {
		k = c.printed(e.N)
	}
	if k == nil {
		return fmt.Errorf("%s of coupon %d, which is not in the tables", e.Type, e.N)
	}
	if e.Type == wire.CouponRedeemed && e.RedeemedCount == 0 {
		return fmt.Errorf("redeemed_count: a redeemed coupon has been redeemed at least once")
	}
	if e.Type == wire.CouponExtended && e.ExpiresAt == 0 {
		return fmt.Errorf("expires_at: an extended coupon has an expiry of its own")
	}
	if k.noRow {
		k.noRow, k.printed, k.code = false, true, e.Code
		f.addRow(c, k)
	}
	c.add(k, -1)
	c.changed = true
	k.changed = true
	f.addCouponEvent(c, k, l, k.ownExpiry)
	switch e.Type {
	case wire.CouponRedeemed:
		f.redeem(c, k, l)
	case wire.CouponRolledBack:
		f.rollback(c, k, e)
	case wire.CouponVoided:
		k.voidedAt, k.voidReason = e.At, e.Reason
		f.count(c, k, e.At, stat{voided: 1})
	case wire.CouponExtended:
		k.ownExpiry = e.ExpiresAt
		f.remindersMove(c, reminderMove{kind: wire.KindExpires, n: e.N, anchor: e.ExpiresAt})
	default:
		c.add(k, +1)
		return fmt.Errorf("%s is not known to the read tables", e.Type)
	}
	c.add(k, +1)
	return nil
}

func (f *fold) redeem(c *campaign, k *coupon, l *Line) {
	e := &l.Event
	k.redeemedCount, k.redeemedAt = e.RedeemedCount, e.At
	if k.customer == "" { // printed
		k.customer = e.CustomerID
		k.named = !k.printed
	}
	r := &redemption{campaign: c.name, coupon: k, customer: k.customer, order: e.OrderID, at: e.At, sequence: l.Sequence, line: l.Number}
	if c.maxRedemptions > 1 {
		r.count = e.RedeemedCount
	}
	f.redemptions = append(f.redemptions, r)
	if f.open == nil {
		f.open = make(map[orderKey]*redemption)
	}
	f.open[orderKey{c.name, k.n, e.OrderID}] = r
	f.count(c, k, e.At, stat{redeemed: 1})
}

func (f *fold) rollback(c *campaign, k *coupon, e *wire.Event) {
	k.redeemedCount = e.RedeemedCount
	if k.redeemedCount == 0 {
		k.redeemedAt = 0
	} else {
		k.recheck = true
	}
	key := orderKey{c.name, k.n, e.OrderID}
	if r := f.open[key]; r != nil {
		r.rolledBackAt = e.At
		delete(f.open, key)
	} else {
		f.rollbacks = append(f.rollbacks, rollback{key, e.At})
	}
	f.count(c, k, e.At, stat{rolledBack: 1})
}

// couponEvent is a new row of coupon_event.
type couponEvent struct {
	campaign, what    string
	n                 uint32
	position          int64
	at                wire.Instant
	expiresAt, before wire.Instant // extended
	order, reason, by string
}

// addCouponEvent records an event of coupon k other than claim and redemption. before is k's own expiry before the
// event.
func (f *fold) addCouponEvent(c *campaign, k *coupon, l *Line, before wire.Instant) {
	e := &l.Event
	if e.Type == wire.CouponRedeemed {
		return // it has a row of redemption
	}
	h := couponEvent{campaign: c.name, n: k.n, position: l.position(), at: e.At, what: e.Type.Spec().Change,
		order: e.OrderID, reason: e.Reason, by: e.By, expiresAt: e.ExpiresAt}
	if h.expiresAt != 0 {
		h.before = before
	}
	f.couponEvents = append(f.couponEvents, h)
}

// couponBytes is the approximate size of a row of coupon_claim in a COPY.
const couponBytes = 176

// copyCoupons writes claims to the segment of the batch, and printed coupons to segment 0.
func (f *fold) copyCoupons(ctx context.Context, tx pgx.Tx) error {
	var claims, printed pgcopy.Rows
	claims.Grow(f.claims * couponBytes)
	for _, c := range f.sorted {
		for k := c.claims; k != nil; k = k.next {
			rows, segment := &claims, f.segment
			if k.printed {
				rows, segment = &printed, 0
			}
			rows.Row(9)
			rows.Int64(int64(k.n))
			rows.Instant(k.claimedAt)
			rows.Instant(k.claimedExpiry)
			rows.Int64(k.position)
			rows.Int32(segment)
			rows.Text(c.name)
			rows.Text(k.code)
			rows.Text(k.customer)
			rows.TextOrNull(pgcopy.Clean(string(k.attributes)))
		}
	}
	if err := claims.Send(ctx, tx, In(f.schema, "scrip."+SegmentTable(f.segment)), ClaimColumns); err != nil {
		return err
	}
	return printed.Send(ctx, tx, In(f.schema, "scrip."+SegmentTable(0)), ClaimColumns)
}

// ClaimColumns are those of coupon_claim.
const ClaimColumns = "n, claimed_at, expires_at, claimed_place, segment, campaign, code, customer_id, attributes"

// SegmentTable is the name of the table of a segment.
func SegmentTable(segment int32) string { return fmt.Sprintf("coupon_claim_%d", -segment) }

func (f *fold) copyRedemptions(ctx context.Context, tx pgx.Tx) error {
	var rows pgcopy.Rows
	for _, r := range f.redemptions {
		rows.Row(10)
		rows.Int64(int64(r.coupon.n))
		rows.Instant(r.at)
		rows.Instant(r.rolledBackAt)
		rows.Int64(int64(r.sequence))
		rows.Int64(int64(r.line))
		rows.Text(r.campaign)
		rows.Text(r.coupon.code)
		rows.Text(r.customer)
		rows.Text(r.order)
		rows.Int64OrNull(int64(r.count))
	}
	return rows.Send(ctx, tx, In(f.schema, "scrip.redemption_row"),
		"n, redeemed_at, rolled_back_at, sequence, line, campaign, code, customer_id, order_id, redeemed_count")
}

func (f *fold) copyCouponEvents(ctx context.Context, tx pgx.Tx) error {
	var rows pgcopy.Rows
	for i := range f.couponEvents {
		h := &f.couponEvents[i]
		order := any(h.order) // a rollback has one, if only an empty one
		if h.what != "rolled_back" {
			order = nil
		}
		rows.Add(h.n, h.position, h.at, h.expiresAt, h.before, h.campaign, h.what, order, orNull(h.reason), orNull(h.by))
	}
	return rows.Send(ctx, tx, In(f.schema, "scrip.coupon_event"), "n, place, at, expires_at, own_before, campaign, what, order_id, reason, by")
}

// $1, $2 = campaign, n   $3.. = their new values
const changeCouponsSQL = `
INSERT INTO scrip.coupon_state AS s (campaign, n, expires_at, redeemed_count, redeemed_at, voided_at, void_reason)
SELECT campaign, n, expires_at, redeemed_count, redeemed_at, voided_at, nullif(void_reason, '')
FROM unnest($1::text[], $2::bigint[], $3::timestamptz[], $4::bigint[], $5::timestamptz[], $6::timestamptz[], $7::text[])
     d (campaign, n, expires_at, redeemed_count, redeemed_at, voided_at, void_reason)
ON CONFLICT (campaign, n) DO UPDATE SET expires_at = excluded.expires_at, redeemed_count = excluded.redeemed_count,
    redeemed_at = excluded.redeemed_at, voided_at = excluded.voided_at, void_reason = excluded.void_reason`

// $1..$3 = campaign, n, customer of a printed coupon
const nameCouponsSQL = `
UPDATE scrip.coupon_claim_0 r SET customer_id = d.customer_id
FROM unnest($1::text[], $2::bigint[], $3::text[]) d (campaign, n, customer_id)
WHERE r.campaign = d.campaign AND r.n = d.n`

func (f *fold) changeCoupons(w *writer) {
	var changed, named arrays
	for _, c := range f.sorted {
		for _, k := range c.coupons {
			if k.changed {
				changed.add(c.name, k.n, k.ownExpiry, k.redeemedCount, k.redeemedAt, k.voidedAt, k.voidReason)
			}
			if k.named {
				named.add(c.name, k.n, k.customer)
			}
		}
	}
	w.change(changeCouponsSQL, &changed)
	w.change(nameCouponsSQL, &named)
}

// A coupon may have any number of redemptions, and so may an order: a producer may use one for all coupons. The redemption
// is looked for among the newest of the coupon, and then among all of the order, so what has many of one kind costs little.
// Rows of this batch, copied before, are at or after ($5, $6) and are excluded.
//
// $1..$3 = campaign, n, order   $4 = when   $5, $6 = sequence and line of the batch's first event
const rollBackSQL = `
UPDATE scrip.redemption_row r SET rolled_back_at = d.at
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::timestamptz[]) d (campaign, n, order_id, at) CROSS JOIN LATERAL (
    (SELECT x.campaign, x.n, x.sequence, x.line
     FROM (SELECT * FROM scrip.redemption_row x
           WHERE x.campaign = d.campaign AND x.n = d.n AND (x.sequence, x.line) < ($5::bigint, $6::bigint)
           ORDER BY x.sequence DESC, x.line DESC LIMIT 100) x
     WHERE x.order_id = d.order_id AND x.rolled_back_at IS NULL)
    UNION ALL
    SELECT x.campaign, x.n, x.sequence, x.line FROM scrip.redemption_row x
    WHERE x.order_id = d.order_id AND coalesce(x.campaign = d.campaign AND x.n = d.n
        AND x.rolled_back_at IS NULL AND (x.sequence, x.line) < ($5::bigint, $6::bigint), false)
    LIMIT 1) k
WHERE r.campaign = k.campaign AND r.n = k.n AND r.sequence = k.sequence AND r.line = k.line`

func (f *fold) rollBack(w *writer, first *Line) {
	var rows arrays
	for _, r := range f.rollbacks {
		rows.add(r.campaign, r.n, r.order, r.at)
	}
	w.change(rollBackSQL, &rows, int64(first.Sequence), int64(first.Number))
}

// A coupon with some of its redemptions rolled back was last redeemed at the newest of the others. They are in index
// redemption_row_open, except one of the time when the campaign allowed one redemption, before all others that count.
//
// $1, $2 = campaign, n
const recheckRedeemedSQL = `
UPDATE scrip.coupon_state r SET redeemed_at = coalesce(
    (SELECT x.redeemed_at FROM scrip.redemption_row x
     WHERE x.campaign COLLATE "POSIX" = r.campaign AND x.n = r.n AND x.redeemed_count IS NOT NULL AND x.rolled_back_at IS NULL
     ORDER BY x.redeemed_at DESC LIMIT 1),
    (SELECT x.redeemed_at FROM scrip.redemption_row x
     WHERE x.campaign = r.campaign AND x.n = r.n AND x.redeemed_count IS NULL AND x.rolled_back_at IS NULL
     ORDER BY x.sequence, x.line LIMIT 1),
    r.redeemed_at)
FROM unnest($1::text[], $2::bigint[]) d (campaign, n)
WHERE r.campaign = d.campaign AND r.n = d.n`

func (f *fold) recheckRedeemed(w *writer) {
	var rows arrays
	for _, c := range f.sorted {
		for _, k := range c.coupons {
			if k.recheck && k.redeemedCount > 0 {
				rows.add(c.name, k.n)
			}
		}
	}
	w.change(recheckRedeemedSQL, &rows)
}
