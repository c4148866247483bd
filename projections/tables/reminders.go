package tables

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
)

// reminderRound is a part of the batch whose changes to table reminder can be written kind by kind, in the order of the
// fields, with the same result as one by one: within a campaign, no change depends on one that is written later. A new
// round starts where that would not hold. Reminders are not loaded: one event may fire a million of them.
type reminderRound struct {
	set       []*reminder
	cancelled []reminderCancel
	due       []reminderDue
	moves     []reminderMove

	// campaigns has the last phase of each campaign in this round.
	campaigns map[string]roundPhase
	moved     map[reminderAnchor]bool
	fired     map[reminderInstant]bool
}

type roundPhase uint8

const (
	phaseSet roundPhase = iota
	phaseDue
	phaseMove
)

// reminder is a new row of that table.
type reminder struct {
	campaign, customer, kind string
	r                        uint64
	n                        uint32
	before                   time.Duration
	dueAt, ownExpiry, setAt  wire.Instant
	position                 int64
}

type reminderCancel struct {
	campaign string
	r        uint64
	at       wire.Instant
	position int64
}

type reminderDue struct {
	campaign, kind  string
	dueAt           wire.Instant
	fromR, throughR uint64
	passed          wire.Instant
	state           string
	at              wire.Instant
	position        int64
}

// reminderMove changes the anchor of pending reminders: those of a kind that are anchored to the campaign, or with n
// those anchored to that coupon. Anchor 0 is none: they are not due any more.
type reminderMove struct {
	campaign, kind string
	n              uint32
	anchor         wire.Instant
}

type reminderAnchor struct {
	campaign, kind string
	n              uint32
}

type reminderInstant struct {
	campaign, kind string
	dueAt          wire.Instant
}

// round returns the round in which a campaign's change of the given phase can be written: the last one, unless that is
// past the phase or would write the same row twice.
func (f *fold) round(campaign string, phase roundPhase, twice func(*reminderRound) bool) *reminderRound {
	var last *reminderRound
	if n := len(f.reminders); n > 0 {
		last = f.reminders[n-1]
	}
	if last == nil || last.campaigns[campaign] > phase || twice != nil && twice(last) {
		last = &reminderRound{
			campaigns: make(map[string]roundPhase), moved: make(map[reminderAnchor]bool), fired: make(map[reminderInstant]bool),
		}
		f.reminders = append(f.reminders, last)
	}
	last.campaigns[campaign] = phase
	return last
}

func (f *fold) reminderSet(c *campaign, l *Line) {
	e := &l.Event
	r := &reminder{
		campaign: c.name, customer: e.CustomerID, kind: e.Kind, r: e.R, n: e.N, before: e.Before, dueAt: e.DueAt, setAt: e.At, position: l.position(),
	}
	if k := c.coupons[e.N]; e.N != 0 && k != nil {
		r.ownExpiry = k.ownExpiry
		if r.customer == "" {
			r.customer = k.customer // set again by a rollback, whose event has no customer
		}
	}
	round := f.round(c.name, phaseSet, nil)
	round.set = append(round.set, r)
}

func (f *fold) reminderCancelled(c *campaign, l *Line) {
	round := f.round(c.name, phaseSet, nil)
	round.cancelled = append(round.cancelled, reminderCancel{c.name, l.Event.R, l.Event.At, l.position()})
}

func (f *fold) remindersDue(c *campaign, l *Line) {
	e := &l.Event
	state := "fired"
	if e.Dropped > 0 {
		state = "dropped"
	}
	instant := reminderInstant{c.name, e.Kind, e.DueAt}
	round := f.round(c.name, phaseDue, func(r *reminderRound) bool { return r.fired[instant] })
	round.fired[instant] = true
	round.due = append(round.due, reminderDue{c.name, e.Kind, e.DueAt, e.FromR, e.ThroughR, e.Passed, state, e.At, l.position()})
}

func (f *fold) remindersMove(c *campaign, m reminderMove) {
	m.campaign = c.name
	anchor := reminderAnchor{c.name, m.kind, m.n}
	round := f.round(c.name, phaseMove, func(r *reminderRound) bool { return r.moved[anchor] })
	round.moved[anchor] = true
	round.moves = append(round.moves, m)
}

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
	return rows.Send(ctx, tx, In(schema, "scrip.reminder"), "r, n, before_us, due_at, own_expires_at, set_at, campaign, customer_id, kind, state, set_place")
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
	var cancelled, due, byCampaign, byCoupon arrays
	for _, c := range r.cancelled {
		cancelled.add(c.campaign, c.r, c.at, c.position)
	}
	for i := range r.due {
		d := &r.due[i]
		due.add(d.campaign, d.kind, d.dueAt, d.fromR, d.throughR, d.state, d.at, d.position, d.passed)
	}
	for _, m := range r.moves {
		if m.n == 0 {
			byCampaign.add(m.campaign, m.kind, m.anchor)
		} else {
			byCoupon.add(m.campaign, m.n, m.anchor)
		}
	}
	w.change(cancelRemindersSQL, &cancelled)
	w.change(remindersDueSQL, &due)
	w.change(moveByCampaignSQL, &byCampaign)
	w.change(moveByCouponSQL, &byCoupon)
}
