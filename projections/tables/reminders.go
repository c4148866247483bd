package tables

import (
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// reminderRound is a part of the batch whose changes to table reminder can be written kind by kind, in the order of the
// fields, with the same result as one by one: within a campaign, no change depends on one that is written later. A new
// round begins where that would not hold. Reminders are not loaded: one event may fire a million of them.
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
