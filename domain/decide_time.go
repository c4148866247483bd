package domain

// expire announces which coupons have fallen. Until then their expiry was a predicate of every redeem; this changes
// nothing for redeemers, it tells the read tables. One event, whether one coupon falls or ten million.
func (d *decision) expire() {
	if !d.campaign() {
		return
	}
	through := min(d.cmd.Through, d.now)
	d.out.Status = StatusExpired
	if through <= d.c.expiredThrough {
		d.out.Repeat = true
		return
	}
	ev := d.emit(CouponsExpired)
	ev.ID = ""
	ev.Through, ev.Count = through, d.c.falling(through)
	d.out.Count = ev.Count
	d.apply()
}

// falling counts the live coupons that expire after what has been announced, up to through, and takes their instants
// out of the book: the event that follows makes it so, and finding them twice would cost as much again.
func (c *campaign) falling(through Instant) uint64 {
	fell := c.due.through(through)
	if end := c.settings.Expires(); end > c.expiredThrough && end <= through {
		fell += c.inheriting
	}
	return uint64(fell)
}

// remind subscribes a customer to a reminder.
func (d *decision) remind() {
	n, due, ok := d.reminder()
	if !ok {
		return
	}
	c := d.c
	customer := d.lane.hash.customer(d.cmd.CustomerID)
	arg := d.lane.hash.reminder(customer, d.cmd.Kind, d.cmd.Before)
	if act, known := c.seenAct(d.id); known {
		if act == nil || act.kind != Remind || act.arg != arg {
			d.reused()
			return
		}
		d.reminderOutcome(StatusReminderSet, n, due, true)
		return
	}
	if _, pending := c.reminders.Find(customer, d.cmd.Kind, d.cmd.Before, n); pending {
		d.reminderOutcome(StatusReminderSet, n, due, true)
		return
	}
	if d.cmd.Kind == KindExpires {
		if count, voided := c.standing(n); voided {
			d.refuse(Voided, "the coupon is void")
			return
		} else if count >= c.settings.MaxRedemptions {
			d.refuse(AlreadyRedeemed, "the coupon has been redeemed")
			return
		}
	}
	switch {
	case c.state == ended && d.cmd.Kind == KindOpens:
		d.refuse(CampaignEnded, "the campaign has ended")
	case due == Never && d.cmd.Kind == KindOpens:
		d.refuse(TooLate, "claims are open already")
	case due == Never:
		d.refuse(Invalid, "kind: the coupon never expires, so there is nothing to remind of")
	case due <= d.now:
		d.refuse(TooLate, "the reminder would have been due at %s", due)
	case len(c.reminders.OfCoupon(n)) >= MaxReminders && n != 0:
		d.refuse(Invalid, "before: a coupon may have at most %d pending reminders; cancel one first", MaxReminders)
	default:
		ev := d.emit(ReminderSet)
		ev.R, ev.CustomerID, ev.Kind, ev.Before, ev.DueAt, ev.N = c.lastReminder+1, d.cmd.CustomerID, d.cmd.Kind, d.cmd.Before, due, n
		d.apply()
		d.reminderOutcome(StatusReminderSet, n, due, false)
	}
}

// unremind cancels a pending reminder. One that is gone already is a repeat, one that has fired is too late.
func (d *decision) unremind() {
	n, due, ok := d.reminder()
	if !ok {
		return
	}
	c := d.c
	customer := d.lane.hash.customer(d.cmd.CustomerID)
	arg := d.lane.hash.reminder(customer, d.cmd.Kind, d.cmd.Before)
	if act, known := c.seenAct(d.id); known {
		if act == nil || act.kind != Unremind || act.arg != arg {
			d.reused()
			return
		}
		d.reminderOutcome(StatusReminderCancelled, n, due, true)
		return
	}
	r, pending := c.reminders.Find(customer, d.cmd.Kind, d.cmd.Before, n)
	switch {
	case pending:
		ev := d.emit(ReminderCancelled)
		ev.R, ev.CustomerID, ev.Kind, ev.Before, ev.N = r, d.cmd.CustomerID, d.cmd.Kind, d.cmd.Before, n
		d.apply()
		d.reminderOutcome(StatusReminderCancelled, n, due, false)
	case due <= d.now:
		d.refuse(TooLate, "the reminder was due at %s", due)
	default:
		d.reminderOutcome(StatusReminderCancelled, n, due, true)
	}
}

// reminder finds what a remind or unremind is about: for kind expires the customer's newest coupon; and when it is due.
func (d *decision) reminder() (n uint32, due Instant, ok bool) {
	if !d.campaign() {
		return 0, 0, false
	}
	var own Instant
	if d.cmd.Kind == KindExpires {
		if n, ok = d.c.newestOf(d.lane.hash.customer(d.cmd.CustomerID)); !ok {
			d.refuse(NotHolder, "the customer has no coupon of this campaign")
			return 0, 0, false
		}
		own = d.c.own(n)
	}
	return n, DueAt(d.cmd.Kind, d.cmd.Before, own, d.c.anchors()), true
}

func (d *decision) reminderOutcome(status string, n uint32, due Instant, repeat bool) {
	d.out.Status, d.out.Campaign, d.out.N, d.out.Repeat = status, d.c.name, n, repeat
	d.out.CustomerID, d.out.Kind, d.out.Before = d.cmd.CustomerID, d.cmd.Kind, d.cmd.Before
	if status == StatusReminderSet {
		d.out.DueAt = due
	}
}

// remindDue fires what is due at one instant: the event is the firing. Later than the grace, and for the opening of a
// campaign that has ended, the reminders are dropped instead.
func (d *decision) remindDue() {
	if !d.campaign() {
		return
	}
	c := d.c
	d.out.Status, d.out.Kind, d.out.DueAt = StatusReminderSet, d.cmd.Kind, d.cmd.DueAt
	if d.cmd.DueAt > d.now {
		d.out.Repeat = true // too early: nothing happens, the scheduler asks again
		return
	}
	due := c.reminders.At(d.cmd.Kind, d.cmd.DueAt, d.cmd.ThroughR, c.anchors())
	if due.Subscriptions == 0 {
		d.out.Repeat = true
		return
	}
	ev := d.emit(RemindersDue)
	ev.ID = ""
	ev.Kind, ev.DueAt, ev.FromR, ev.ThroughR = d.cmd.Kind, d.cmd.DueAt, due.FromR, due.LastR
	if d.now > d.cmd.DueAt.Add(d.lane.grace) || c.state == ended && d.cmd.Kind == KindOpens {
		ev.Dropped = due.Subscriptions
	} else {
		ev.Fired = due.Subscriptions
	}
	d.out.Count = due.Subscriptions
	d.apply()
}
