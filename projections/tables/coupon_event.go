package tables

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
)

// positionLines is above the maximum of lines in a message: 512 KiB have far fewer.
const positionLines = 1 << 20

// position packs the event's position in its lane into one number; see migration 7.
func (l *Line) position() int64 { return int64(l.Sequence)*positionLines + int64(l.Number) }

// couponEvent is a new row of coupon_event.
type couponEvent struct {
	campaign, what    string
	n                 uint32
	position          int64
	at                wire.Instant
	expiresAt, before wire.Instant // extended
	order, reason     string
}

// addCouponEvent records an event of coupon k other than claim and redemption. before is k's own expiry before the
// event.
func (f *fold) addCouponEvent(c *campaign, k *coupon, l *Line, before wire.Instant) {
	e := &l.Event
	if e.Type == wire.CouponRedeemed {
		return // it has a row of redemption
	}
	h := couponEvent{campaign: c.name, n: k.n, position: l.position(), at: e.At, what: e.Type.Spec().Change,
		order: e.OrderID, reason: e.Reason, expiresAt: e.ExpiresAt}
	if h.expiresAt != 0 {
		h.before = before
	}
	f.couponEvents = append(f.couponEvents, h)
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

// copyExpiries writes the announced expiries.
func (f *fold) copyExpiries(ctx context.Context, tx pgx.Tx) error {
	var rows pgcopy.Rows
	for _, c := range f.sorted {
		for _, x := range c.crossings {
			rows.Row(5)
			rows.Instant(x.through)
			rows.Instant(x.at)
			rows.Int64(x.position)
			rows.Instant(x.end)
			rows.Text(c.name)
		}
	}
	return rows.Send(ctx, tx, in(f.schema, "scrip.expiry_event"), "through, at, place, campaign_end, campaign")
}
