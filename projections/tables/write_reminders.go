package tables

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
)

func (r *reminderRound) copySet(ctx context.Context, tx pgx.Tx, schema string) error {
	var rows pgcopy.Rows
	for _, s := range r.set {
		rows.Row(11)
		rows.Int64(int64(s.r))
		rows.Int64OrNull(int64(s.n))
		rows.Int64(int64(s.before / time.Microsecond))
		rows.Instant(s.dueAt)
		rows.Instant(s.ownExpiry)
		rows.Instant(s.setAt)
		rows.Text(s.campaign)
		rows.Text(s.customer)
		rows.Text(s.kind)
		rows.Text("pending")
		rows.Int64(s.position)
	}
	return rows.Send(ctx, tx, in(schema, "scrip.reminder"), "r, n, before_us, due_at, own_expires_at, set_at, campaign, customer_id, kind, state, set_place")
}

// $1, $2 = campaign, r   $3, $4 = time, packed position
const cancelRemindersSQL = `
UPDATE scrip.reminder r SET state = 'cancelled', settled_at = d.at, settled_place = d.place
FROM unnest($1::text[], $2::bigint[], $3::timestamptz[], $4::bigint[]) d (campaign, r, at, place)
WHERE r.campaign = d.campaign AND r.r = d.r AND coalesce(r.state = 'pending', false)`

// The lane fired or dropped the reminders that are pending, due at this instant and in this range; with passed only
// those that announce an instant up to it.
//
// $1..$3 = campaign, kind, due_at   $4, $5 = first and last r   $6 = fired or dropped   $7, $8 = time, packed position
// $9 = passed, or NULL
const remindersDueSQL = `
UPDATE scrip.reminder r SET state = d.state, settled_at = d.at, settled_place = d.place
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::bigint[], $5::bigint[], $6::text[], $7::timestamptz[], $8::bigint[], $9::timestamptz[])
     d (campaign, kind, due_at, from_r, through_r, state, at, place, passed)
WHERE r.campaign = d.campaign AND r.kind = d.kind AND r.due_at = d.due_at AND r.r BETWEEN d.from_r AND d.through_r
  AND coalesce(r.state = 'pending', false)
  AND (d.passed IS NULL OR r.due_at + r.before_us * interval '1 microsecond' <= d.passed)`

// Reminders anchored to their campaign: all of kind opens, and of kind expires those whose coupon has no own expiry.
// NULL = no anchor any more: they stay pending and never become due.
//
// $1, $2 = campaign, kind   $3 = its new opening or end
const moveByCampaignSQL = `
UPDATE scrip.reminder r SET due_at = d.anchor - r.before_us * interval '1 microsecond'
FROM unnest($1::text[], $2::text[], $3::timestamptz[]) d (campaign, kind, anchor)
WHERE r.campaign = d.campaign AND r.kind = d.kind AND coalesce(r.state = 'pending' AND r.own_expires_at IS NULL, false)`

// Reminders anchored to a coupon that now has an own expiry.
//
// $1, $2 = campaign, n   $3 = that expiry
const moveByCouponSQL = `
UPDATE scrip.reminder r SET due_at = d.anchor - r.before_us * interval '1 microsecond', own_expires_at = d.anchor
FROM unnest($1::text[], $2::bigint[], $3::timestamptz[]) d (campaign, n, anchor)
WHERE r.campaign = d.campaign AND r.n = d.n AND coalesce(r.kind = '` + wire.KindExpires + `' AND r.state = 'pending', false)`

// write queues all changes except new rows.
func (r *reminderRound) write(w *writer) {
	r.writeCancelled(w)
	r.writeDue(w)
	r.writeMoves(w)
}

func (r *reminderRound) writeCancelled(w *writer) {
	if len(r.cancelled) == 0 {
		return
	}
	var campaigns []string
	var rs, places []int64
	var at instants
	for _, c := range r.cancelled {
		campaigns, rs, at, places = append(campaigns, c.campaign), append(rs, int64(c.r)), at.add(c.at), append(places, c.position)
	}
	w.queue(cancelRemindersSQL, campaigns, rs, at, places)
}

func (r *reminderRound) writeDue(w *writer) {
	if len(r.due) == 0 {
		return
	}
	var campaigns, kinds, states []string
	var from, through, places []int64
	var due, at, passed instants
	for _, d := range r.due {
		campaigns, kinds, states = append(campaigns, d.campaign), append(kinds, d.kind), append(states, d.state)
		from, through, due, at = append(from, int64(d.fromR)), append(through, int64(d.throughR)), due.add(d.dueAt), at.add(d.at)
		places, passed = append(places, d.position), passed.add(d.passed)
	}
	w.queue(remindersDueSQL, campaigns, kinds, due, from, through, states, at, places, passed)
}

func (r *reminderRound) writeMoves(w *writer) {
	var campaigns, kinds, couponCampaigns []string
	var ns []int64
	var anchors, couponAnchors instants
	for _, m := range r.moves {
		if m.n == 0 {
			campaigns, kinds, anchors = append(campaigns, m.campaign), append(kinds, m.kind), anchors.add(m.anchor)
		} else {
			couponCampaigns, ns, couponAnchors = append(couponCampaigns, m.campaign), append(ns, int64(m.n)), couponAnchors.add(m.anchor)
		}
	}
	if len(campaigns) > 0 {
		w.queue(moveByCampaignSQL, campaigns, kinds, anchors)
	}
	if len(ns) > 0 {
		w.queue(moveByCouponSQL, couponCampaigns, ns, couponAnchors)
	}
}
