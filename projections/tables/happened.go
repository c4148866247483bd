package tables

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// placeLines is how many lines a message has at most, and some: 512 KiB hold far fewer.
const placeLines = 1 << 20

// place is where an event stands in its lane, as one number; see migration 7.
func (l *Line) place() int64 { return int64(l.Sequence)*placeLines + int64(l.Number) }

// happening is a new row of coupon_event.
type happening struct {
	campaign, what    string
	n                 uint32
	place             int64
	at                wire.Instant
	expiresAt, before wire.Instant // extended
	order, reason     string
}

// happened keeps what happened to coupon k besides claim and redemption. before is k's own expiry until now.
func (f *fold) happened(c *campaign, k *coupon, l *Line, before wire.Instant) {
	e := &l.Event
	if e.Type == wire.CouponRedeemed {
		return // it has a row of redemption
	}
	h := happening{campaign: c.name, n: k.n, place: l.place(), at: e.At, what: e.Type.Spec().Change,
		order: e.OrderID, reason: e.Reason, expiresAt: e.ExpiresAt}
	if h.expiresAt != 0 {
		h.before = before
	}
	f.happenings = append(f.happenings, h)
}

func (f *fold) copyHappenings(ctx context.Context, tx pgx.Tx) error {
	var rows copyRows
	for i := range f.happenings {
		h := &f.happenings[i]
		rows.row(9)
		rows.number(int64(h.n))
		rows.number(h.place)
		rows.instant(h.at)
		rows.instant(h.expiresAt)
		rows.instant(h.before)
		rows.text(h.campaign)
		rows.text(h.what)
		if h.what == "rolled_back" {
			rows.text(h.order)
		} else {
			rows.null()
		}
		rows.textOrNull(h.reason)
	}
	return rows.send(ctx, tx, f.schema, "coupon_event", "n, place, at, expires_at, own_before, campaign, what, order_id, reason")
}

// copyExpiries writes what was announced to have fallen.
func (f *fold) copyExpiries(ctx context.Context, tx pgx.Tx) error {
	var rows copyRows
	for _, c := range f.sorted {
		for _, x := range c.crossings {
			rows.row(5)
			rows.instant(x.through)
			rows.instant(x.at)
			rows.number(x.place)
			rows.instant(x.end)
			rows.text(c.name)
		}
	}
	return rows.send(ctx, tx, f.schema, "expiry_event", "through, at, place, campaign_end, campaign")
}
