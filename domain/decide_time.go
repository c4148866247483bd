package domain

import (
	"github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// expire announces which coupons have fallen. Until then their expiry was a predicate of every redeem; this changes
// nothing for redeemers, it tells the read tables. One event, whether one coupon falls or ten million.
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
	ev.Through, ev.Count = through, d.c.falling(through)
	d.out.Count = ev.Count
	d.apply()
}

// falling counts the live coupons that expire after what has been announced, up to through, and takes their instants
// out of the book: the event that follows makes it so, and finding them twice would cost as much again.
func (c *campaign) falling(through wire.Instant) uint64 {
	fell := int64(0)
	if c.rare != nil {
		fell = c.rare.due.through(through)
	}
	if end := c.settings.Expires(); end > c.expiredThrough && end <= through {
		fell += c.inheriting
	}
	return uint64(fell)
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
		if count, voided := c.standing(n); voided {
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
		d.refuse(wire.TooLate, d.sayTime("the reminder would have been due at ", due, ""))
	case n != 0 && len(c.reminders().OfCoupon(n)) >= wire.MaxReminders:
		d.refuse(wire.LimitReached, d.sayNumber("a coupon may have at most ", wire.MaxReminders, " pending reminders; cancel one first"))
	case n == 0 && c.reminders().CountOfNote(reminded(customer), c) >= wire.MaxOpenings:
		d.refuse(wire.LimitReached, d.sayNumber("a customer may have at most ", wire.MaxOpenings, " pending reminders of one opening; cancel one first"))
	case c.reminders().Len() >= wire.MaxPending:
		d.refuse(wire.LimitReached, d.sayNumber("a campaign may have at most ", wire.MaxPending, " pending reminders"))
	case c.lastReminder >= reminder.MaxReminder:
		d.refuse(wire.LimitReached, d.sayNumber("the campaign has had ", reminder.MaxReminder, " reminders, the most there may be"))
	default:
		ev := d.emit(wire.ReminderSet)
		ev.R, ev.CustomerID, ev.Kind, ev.Before, ev.DueAt, ev.N = c.lastReminder+1, d.cmd.CustomerID, d.cmd.Kind, d.cmd.Before, due, n
		d.apply()
		d.reminderOutcome(wire.StatusReminderSet, n, false)
	}
}

// unremind cancels a pending reminder. One that is gone already is a repeat, one that has fired is too late.
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
		// A redemption cancelled it, and its rollback would set it again. Set again now and cancelled, it stays cancelled.
		x, _ := c.rare.parked.Get(parked)
		if pending = d.restoreReminder(&x); pending {
			r = c.lastReminder
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
		d.refuse(wire.TooLate, d.sayTime("the reminder was due at ", due, ""))
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
		d.reminderOutcome(status, act.count, true)
	}
	return true
}

// remindedOf is the coupon that a reminder of the command's kind hangs on: the customer's newest, 0 for the opening of
// the campaign. Without a coupon it refuses.
func (d *decision) remindedOf(customer customerHash) (n uint32, ok bool) {
	if d.cmd.Kind == wire.KindOpens {
		return 0, true
	}
	if n, ok = d.c.newestOf(customer); !ok {
		d.refuse(wire.NotHolder, "the customer has no coupon of this campaign")
	}
	return n, ok
}

// dueAt is when the command's reminder of coupon n falls due, Never without an anchor.
func (d *decision) dueAt(n uint32) wire.Instant {
	var own wire.Instant
	if n != 0 {
		own = d.c.own(n)
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

// remindDue fires what is due at one instant: the event is the firing. What is of no use any more is dropped instead (see
// [decision.late]); of coupons' own expiries, which may lie apart, that can be a part of it, and then makes an event of its
// own.
func (d *decision) remindDue() {
	if !d.campaign() {
		return
	}
	c := d.c
	d.out.Status, d.out.Kind, d.out.DueAt = wire.StatusReminderSet, d.cmd.Kind, d.cmd.DueAt
	if d.cmd.DueAt > d.now {
		d.out.Repeat = true // too early: nothing happens, the scheduler asks again
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
		gone := c.reminders().At(set, c.anchors())
		if late = gone.Subscriptions == due.Subscriptions; !late && gone.Subscriptions > 0 {
			ev := d.remindersDue(&gone)
			ev.Dropped, ev.Passed = gone.Subscriptions, passed
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

// late says whether all that is due is of no use any more: the campaign whose opening it announces has ended, or it is
// later than the campaign's late_after. Otherwise, where it is later than the grace, what announces an instant up to passed
// is of no use.
//
// What only waited for the operator's own rate is judged as of the instant at which it could have been asked for.
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
