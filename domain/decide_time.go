package domain

import (
	"time"

	"github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// expire announces which coupons have expired, for the read tables. It changes nothing for redemptions, which compare times
// themselves. It makes one event, whether one coupon expires or ten million.
func (d *decision) expire() {
	if !d.campaign() {
		return
	}
	through := min(d.cmd.Through, d.now)
	d.out.Status = wire.StatusExpired
	if through <= d.c.expiredThrough {
		d.out.Repeat = true
		return
	}
	ev := d.emit(wire.CouponsExpired)
	ev.Through, ev.Count = through, d.c.expiring(through)
	d.out.Count = ev.Count
	d.apply()
}

// expiring counts the live coupons that expire after what has been announced, up to through, and removes their instants: the
// event that follows is applied anyway, and finding them twice would cost twice as much.
func (c *campaign) expiring(through wire.Instant) uint64 {
	expired := int64(0)
	if c.sparse != nil {
		expired = c.sparse.due.through(through)
	}
	if end := c.settings.Expires(); end > c.expiredThrough && end <= through {
		expired += c.inheriting
	}
	return uint64(expired)
}

// remind subscribes a customer to a reminder: for kind expires, of the customer's newest coupon.
func (d *decision) remind() {
	if !d.campaign() {
		return
	}
	c := d.c
	customer := d.customer
	if d.remembered(customer, wire.Remind, wire.StatusReminderSet) {
		return
	}
	n, ok := d.remindedOf(customer)
	if !ok {
		return
	}
	if _, pending := d.lane.pendingReminder(c, customer, d.cmd.Kind, d.cmd.Before, n); pending {
		d.reminderOutcome(wire.StatusReminderSet, n, true)
		return
	}
	due := d.dueAt(n)
	if n != 0 {
		if count, voided := c.redemptionState(n); voided {
			d.refuse(wire.Voided, "the coupon is void")
			return
		} else if count >= c.settings.MaxRedemptions {
			d.refuse(wire.AlreadyRedeemed, "the coupon has been redeemed")
			return
		}
	}
	switch {
	case c.state == ended && n == 0:
		d.refuse(wire.CampaignEnded, "the campaign has ended")
	case due == wire.Never && n == 0:
		d.refuse(wire.TooLate, "claims are open already")
	case due == wire.Never:
		d.refuse(wire.Invalid, "kind: the coupon never expires, so there is nothing to remind of")
	case due <= d.now:
		d.refuse(wire.TooLate, d.textTime("the reminder would have been due at ", due, ""))
	case n != 0 && len(c.reminders().OfCoupon(n)) >= wire.MaxReminders:
		d.refuse(wire.LimitReached, d.textNumber("a coupon may have at most ", wire.MaxReminders, " pending reminders; cancel one first"))
	case n == 0 && c.reminders().CountOfNote(reminded(customer), c) >= wire.MaxOpenings:
		d.refuse(wire.LimitReached, d.textNumber("a customer may have at most ", wire.MaxOpenings, " pending reminders of one opening; cancel one first"))
	case c.reminders().Len() >= int(c.settings.MostReminders(c.total())):
		d.refuse(wire.LimitReached, d.textNumber("the campaign may have at most ", c.settings.MostReminders(c.total()), " pending reminders; an operator may raise its setting reminders"))
	case c.lastReminder >= reminder.MaxReminder:
		d.refuse(wire.LimitReached, d.textNumber("the campaign has had ", reminder.MaxReminder, " reminders, the most there may be"))
	default:
		ev := d.emit(wire.ReminderSet)
		ev.R, ev.CustomerID, ev.Kind, ev.Before, ev.DueAt, ev.N, ev.Zone = c.lastReminder+1, d.cmd.CustomerID, d.cmd.Kind, d.cmd.Before, due, n, d.cmd.Zone
		d.apply()
		d.reminderOutcome(wire.StatusReminderSet, n, false)
	}
}

// unremind cancels a pending reminder. One that is not pending is a repeat, one that has fired is too late.
func (d *decision) unremind() {
	if !d.campaign() {
		return
	}
	c := d.c
	customer := d.customer
	if d.remembered(customer, wire.Unremind, wire.StatusReminderCancelled) {
		return
	}
	n, ok := d.remindedOf(customer)
	if !ok {
		return
	}
	r, pending := d.lane.pendingReminder(c, customer, d.cmd.Kind, d.cmd.Before, n)
	if parked, ok := c.parked().FindOfCoupon(n, d.cmd.Before); !pending && ok {
		// A redemption cancelled it, and its rollback would set it again. It is set again here and cancelled, so that it
		// stays cancelled. That also holds while the coupon never expires: the campaign may get an end before the rollback.
		x, _ := c.sparse.parked.Get(parked)
		if due := d.dueOf(&x); due > d.now {
			if pending = d.restoreReminder(&x, due); pending {
				r = c.lastReminder
			}
		}
	}
	due := d.dueAt(n)
	switch {
	case pending:
		ev := d.emit(wire.ReminderCancelled)
		ev.R, ev.CustomerID, ev.Kind, ev.Before, ev.N = r, d.cmd.CustomerID, d.cmd.Kind, d.cmd.Before, n
		d.apply()
		d.reminderOutcome(wire.StatusReminderCancelled, n, false)
	case due <= d.now:
		d.refuse(wire.TooLate, d.textTime("the reminder was due at ", due, ""))
	default:
		d.reminderOutcome(wire.StatusReminderCancelled, n, true)
	}
}

// remembered answers a remind or unremind whose id has been accepted before.
func (d *decision) remembered(customer customerHash, kind wire.CommandType, status string) bool {
	act, known := d.c.seenAct(d.id)
	switch {
	case !known:
		return false
	case act == nil || act.kind != kind || act.arg != d.lane.hash.reminder(customer, d.cmd.Kind, d.cmd.Before):
		d.reused()
	default:
		_, pending := d.lane.pendingReminder(d.c, customer, d.cmd.Kind, d.cmd.Before, act.count)
		switch {
		case pending == (kind == wire.Remind):
			d.reminderOutcome(status, act.count, true)
		case pending:
			d.refuse(wire.Outdated, "the reminder was set again since; unremind with a new id")
		default:
			d.refuse(wire.Outdated, "the reminder is not pending any more: it has fired, or was dropped or cancelled; remind with a new id")
		}
	}
	return true
}

// remindedOf is the coupon that a reminder of the command's kind belongs to: the customer's newest, 0 for the opening of
// the campaign. If the customer has no coupon, it refuses.
func (d *decision) remindedOf(customer customerHash) (n uint32, ok bool) {
	if d.cmd.Kind == wire.KindOpens {
		return 0, true
	}
	if n, ok = d.c.newestOf(customer); !ok {
		d.refuse(wire.NotHolder, "the customer has no coupon of this campaign")
	}
	return n, ok
}

// dueAt is when the command's reminder of coupon n is due, Never without an anchor.
func (d *decision) dueAt(n uint32) wire.Instant {
	var own wire.Instant
	if n != 0 {
		own = d.c.ownExpiry(n)
	}
	return reminder.DueAt(d.cmd.Kind, d.cmd.Before, own, d.c.anchors())
}

func (d *decision) reminderOutcome(status string, n uint32, repeat bool) {
	d.out.Status, d.out.Campaign, d.out.N, d.out.Repeat = status, d.c.name, n, repeat
	d.out.CustomerID, d.out.Kind, d.out.Before = d.cmd.CustomerID, d.cmd.Kind, d.cmd.Before
	if status == wire.StatusReminderSet {
		d.out.DueAt = d.dueAt(n)
	}
}

// remindDue fires the reminders that are due at one instant: the event is the firing. Late ones are dropped instead (see
// [decision.late]). Coupons with own expiries can make a part of them late, which then has its own event.
func (d *decision) remindDue() {
	if !d.campaign() {
		return
	}
	c := d.c
	d.out.Status, d.out.Kind, d.out.DueAt = wire.StatusReminderSet, d.cmd.Kind, d.cmd.DueAt
	if d.cmd.DueAt > d.now {
		d.out.Repeat = true // too early: the scheduler sends it again
		return
	}
	set := wire.DueSet{Kind: d.cmd.Kind, DueAt: d.cmd.DueAt, ThroughR: d.cmd.ThroughR}
	due := c.reminders().At(set, c.anchors())
	if due.Subscriptions == 0 {
		d.out.Repeat = true
		return
	}
	d.out.Count = due.Subscriptions
	late, passed := d.late()
	if !late && passed != 0 {
		set.Passed = passed
		useless := c.reminders().At(set, c.anchors())
		if late = useless.Subscriptions == due.Subscriptions; !late && useless.Subscriptions > 0 {
			ev := d.remindersDue(&useless)
			ev.Dropped, ev.Passed = useless.Subscriptions, passed
			d.apply()
			set.Passed = 0
			due = c.reminders().At(set, c.anchors())
		}
	}
	if ev := d.remindersDue(&due); late {
		ev.Dropped = due.Subscriptions
	} else {
		ev.Fired = due.Subscriptions
	}
	d.apply()
}

func (d *decision) remindersDue(due *reminder.DueReminders) *wire.Event {
	ev := d.emit(wire.RemindersDue)
	ev.Kind, ev.DueAt, ev.FromR, ev.ThroughR = due.Kind, due.DueAt, due.FromR, due.LastR
	return ev
}

// late reports whether all that is due is dropped: the campaign whose opening it announces has ended, or it is later than the
// campaign's late_after. If it is later than the grace, reminders that announce an instant up to passed are dropped.
//
// For reminders that waited for the operator's rate limit, the time that counts is when they could have been requested.
func (d *decision) late() (late bool, passed wire.Instant) {
	at := d.now
	if d.cmd.ReadyAt != 0 {
		at = min(at, max(d.cmd.ReadyAt, d.cmd.DueAt))
	}
	after := d.c.settings.LateAfter
	switch {
	case d.c.state == ended && d.cmd.Kind == wire.KindOpens, after != 0 && at > d.cmd.DueAt.Add(after):
		return true, 0
	case at > d.cmd.DueAt.Add(d.lane.grace):
		return false, at
	}
	return false, 0
}

// pendingReminder finds a subscription of a customer; n is its coupon, 0 for the opening.
func (l *Lane) pendingReminder(c *campaign, customer customerHash, kind string, before time.Duration, n uint32) (r uint64, ok bool) {
	if kind == wire.KindExpires {
		return c.reminders().FindOfCoupon(n, before)
	}
	return c.reminders().OfNote(reminded(customer), before, c)
}
