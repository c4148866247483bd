package domain

import (
	"github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// claim hands out the next coupon. CONTRACT.md has the order of the checks.
func (d *decision) claim() {
	if !d.campaign() {
		return
	}
	c, now := d.c, d.now
	customer := d.customer
	if ref, known := c.seen(d.id); known {
		if ref&1 != 0 || c.claims.At(ref>>1).customer != customer {
			d.reused()
			return
		}
		d.claimed(c.couponAt(ref>>1), true)
		return
	}
	newest, has := c.newestOf(customer)
	held := uint32(0) // void ones do not count
	if has {
		held = c.held(newest)
	}
	s := c.settings
	switch {
	case held > 0 && s.PerCustomer == 1:
		for c.isVoid(newest) {
			newest = c.before(newest)
		}
		d.claimed(newest, true)
	case c.state == ended:
		d.refuse(wire.CampaignEnded, "the campaign has ended")
	case c.state == paused:
		d.refuse(wire.CampaignPaused, "the campaign is paused; retry later")
	case now < s.OpensAt:
		d.refuse(wire.ClaimNotOpen, d.textTime("claims open at ", s.OpensAt, ""))
	case now >= s.Closes():
		d.refuse(wire.ClaimClosed, d.textTime("claims closed at ", s.Closes(), ""))
	case s.PerCustomer > 1 && held >= s.PerCustomer:
		d.refuse(wire.ClaimLimitReached, d.textNumber("the customer has ", s.PerCustomer, " coupons, the most allowed"))
	case c.claimed() >= c.total():
		d.refuse(wire.SoldOut, "all coupons have been claimed")
	default:
		n := c.claimed() + 1
		ev := d.emit(wire.CouponClaimed)
		ev.N, ev.Code, ev.CustomerID, ev.Attributes = n, d.codeOf(n), d.cmd.CustomerID, d.cmd.Attributes
		ev.Replaces = c.replaced(newest)
		ev.ExpiresAt = s.ExpiryOf(now)
		// Without Apply: the hashes are computed already, and this is the hottest path.
		c.recordClaim(customer, newest, d.id, ev.ExpiresAt)
		d.lane.list(c)
		d.first = len(d.events)
		if n == c.total() {
			d.emit(wire.CampaignSoldOut)
			d.first = len(d.events)
		}
		d.claimed(n, false)
	}
}

// claimed fills in the outcome of a claim of coupon n.
func (d *decision) claimed(n uint32, repeat bool) {
	d.couponOutcome(wire.StatusClaimed, n)
	if repeat {
		d.repeated(n)
	}
}

// repeated makes the outcome a repeat about coupon n. Its status is what was done; the coupon may be something else by now.
func (d *decision) repeated(n uint32) {
	d.out.Repeat = true
	if is := d.c.statusOf(n, d.now); is != wire.StatusClaimed && is != d.out.Status {
		d.out.CouponStatus = is
	}
}

// redeem uses a coupon once for an order.
func (d *decision) redeem() {
	n, order, act, ok := d.checkRedeem()
	if !ok {
		return
	}
	c := d.c
	if act != nil {
		d.couponOutcome(wire.StatusRedeemed, n)
		d.out.OrderID, d.out.RedeemedCount, d.out.Benefit = d.cmd.OrderID, act.count, c.settings.Benefit
		d.repeated(n)
		return
	}
	count, _ := c.redemptionState(n)
	ev := d.emit(wire.CouponRedeemed)
	ev.N, ev.Code, ev.OrderID, ev.RedeemedCount, ev.CustomerID = n, d.codeOf(n), d.cmd.OrderID, count+1, d.cmd.CustomerID
	// Without Apply: the hashes are computed already.
	d.mustApply(d.lane.applyCoupon(c, ev, eventHashes{d.id, d.customer}, order))
	d.first = len(d.events)
	if count+1 >= c.settings.MaxRedemptions {
		d.cancelReminders(n, n)
		d.apply()
		d.lane.list(c)
	}
	d.couponOutcome(wire.StatusRedeemed, n)
	d.out.OrderID, d.out.RedeemedCount, d.out.Benefit = d.cmd.OrderID, count+1, c.settings.Benefit
}

// checkRedeem runs the checks of redeem, for redeem and for validate. With ok and an act, the redemption was made before;
// with ok alone it may be made, for the order with that hash.
func (d *decision) checkRedeem() (n uint32, order uint64, before *actRecord, ok bool) {
	n, ok = d.coupon()
	if !ok {
		return 0, 0, nil, false
	}
	c := d.c
	order = d.lane.hash.text(d.cmd.OrderID)
	if d.cmd.ID != "" {
		if act, known := c.seenAct(d.id); known {
			if act == nil || act.kind != wire.Redeem || act.n != n || act.arg != order || !d.isHolder(n) {
				d.reused()
				return 0, 0, nil, false
			}
			if before = c.redeemedFor(n, order); before == nil {
				d.refuse(wire.RedemptionRolledBack, d.text("the redemption for order ", d.cmd.OrderID, " was rolled back since; redeem with a new id"))
			}
			return n, order, before, before != nil
		}
	}
	if d.cmd.OrderID != "" && d.isHolder(n) {
		if before = c.redeemedFor(n, order); before != nil {
			return n, order, before, true
		}
	}
	count, voided := c.redemptionState(n)
	switch {
	case !d.isHolder(n):
		d.refuse(wire.NotHolder, "the coupon belongs to another customer")
	case voided:
		d.refuse(wire.Voided, "the coupon is void")
	case c.state == paused:
		d.refuse(wire.CampaignPaused, "the campaign is paused; retry later")
	case d.now >= c.expires(n):
		d.refuse(wire.Expired, d.textTime("the coupon expired at ", c.expires(n), ""))
	case count >= c.settings.MaxRedemptions && c.settings.MaxRedemptions == 1:
		d.refuse(wire.AlreadyRedeemed, "the coupon has been redeemed")
	case count >= c.settings.MaxRedemptions:
		d.refuse(wire.RedemptionLimitReached, d.textNumber("the coupon has been redeemed ", count, " times, the most allowed"))
	case c.rollbacks(n) >= c.maxRollbacks():
		d.refuse(wire.LimitReached, d.textNumber("redemptions of the coupon have been rolled back ", c.maxRollbacks(), " times, the most allowed"))
	default:
		return n, order, nil, true
	}
	return 0, 0, nil, false
}

// cancelReminders cancels the pending reminders of coupon n: a coupon that is used up or void needs none. If restorable is n
// and not 0, a rollback sets them again.
func (d *decision) cancelReminders(n, restorable uint32) {
	for _, r := range d.c.reminders().OfCoupon(n) {
		ev := d.emit(wire.ReminderCancelled)
		ev.R, ev.N = r, restorable
	}
}

// restoreReminders sets again the reminders that redemptions of coupon n cancelled and that are not due yet. Each is a new
// subscription: the cancelled one stays cancelled.
func (d *decision) restoreReminders(n uint32) {
	for _, r := range d.c.parked().OfCoupon(n) {
		x, _ := d.c.sparse.parked.Get(r)
		_, there := d.c.reminders().FindOfCoupon(n, x.Before)
		due := d.dueOf(&x)
		if there || due <= d.now || due == wire.Never || len(d.c.reminders().OfCoupon(n)) >= wire.MaxReminders {
			continue
		}
		d.restoreReminder(&x, due)
	}
}

// dueOf is when a reminder of a coupon is due, Never without an anchor.
func (d *decision) dueOf(x *reminder.Subscription) wire.Instant {
	return reminder.DueAt(x.Kind, x.Before, x.Own, d.c.anchors())
}

// restoreReminder sets one of them again, without due_at if it is due Never. False if the campaign has no number left.
func (d *decision) restoreReminder(x *reminder.Subscription, due wire.Instant) bool {
	if d.c.lastReminder >= reminder.MaxReminder {
		return false
	}
	ev := d.emit(wire.ReminderSet)
	ev.R, ev.Kind, ev.Before, ev.N = d.c.lastReminder+1, x.Kind, x.Before, x.N
	if due != wire.Never {
		ev.DueAt = due
	}
	d.apply()
	return true
}

// rollback undoes the redemption for an order. The coupon is usable again unless it has expired meanwhile, and its reminders
// are set again.
func (d *decision) rollback() {
	n, ok := d.coupon()
	if !ok {
		return
	}
	c := d.c
	order := d.lane.hash.text(d.cmd.OrderID)
	if act, known := c.seenAct(d.id); known {
		if act == nil || act.kind != wire.Rollback || act.n != n || act.arg != order || !d.isHolder(n) {
			d.reused()
			return
		}
		if c.redeemedFor(n, order) != nil {
			d.refuse(wire.Outdated, d.text("order ", d.cmd.OrderID, " was redeemed again since; roll back with a new id"))
			return
		}
		d.rolledBack(n, true)
		return
	}
	_, act := c.redemption(n, order)
	switch {
	case !d.isHolder(n):
		d.refuse(wire.NotHolder, "the coupon belongs to another customer")
	case act == nil:
		d.refuse(wire.NotRedeemed, "the coupon was not redeemed for this order")
	case act.flags&flagRolledBack != 0:
		d.rolledBack(n, true)
	default:
		count, voided := c.redemptionState(n)
		ev := d.emit(wire.CouponRolledBack)
		ev.N, ev.Code, ev.OrderID, ev.RedeemedCount = n, d.codeOf(n), d.cmd.OrderID, count-1
		switch {
		case voided:
			ev.Status = wire.StatusVoided
		case count-1 >= c.settings.MaxRedemptions:
			ev.Status = wire.StatusRedeemed
		case d.now >= c.expires(n):
			ev.Status = wire.StatusExpired
		default:
			ev.Status = wire.StatusClaimed
		}
		restored := ev.Status == wire.StatusClaimed
		d.apply()
		if restored {
			d.restoreReminders(n)
		}
		d.rolledBack(n, false)
	}
}

func (d *decision) rolledBack(n uint32, repeat bool) {
	d.couponOutcome(wire.StatusRolledBack, n)
	d.out.OrderID = d.cmd.OrderID
	d.out.RedeemedCount, _ = d.c.redemptionState(n)
	if repeat {
		d.repeated(n)
	}
}

// void makes a coupon permanently unusable.
func (d *decision) void() {
	n, ok := d.coupon()
	if !ok {
		return
	}
	if act, known := d.c.seenAct(d.id); known && (act == nil || act.kind != wire.Void || act.n != n) {
		d.reused()
		return
	}
	if _, voided := d.c.redemptionState(n); voided {
		d.couponOutcome(wire.StatusVoided, n)
		d.repeated(n)
		return
	}
	ev := d.emit(wire.CouponVoided)
	ev.N, ev.Code, ev.Reason, ev.Status = n, d.codeOf(n), d.cmd.Reason, wire.StatusVoided
	d.cancelReminders(n, 0)
	d.apply()
	d.couponOutcome(wire.StatusVoided, n)
}

// extend gives a coupon a new own expiry; an expired coupon is valid again.
func (d *decision) extend() {
	n, ok := d.coupon()
	if !ok {
		return
	}
	c := d.c
	if act, known := c.seenAct(d.id); known {
		if act == nil || act.kind != wire.Extend || act.n != n {
			d.reused()
			return
		}
		d.couponOutcome(wire.StatusExtended, n)
		d.repeated(n)
		return
	}
	count, voided := c.redemptionState(n)
	switch {
	case voided:
		d.refuse(wire.Voided, "the coupon is void")
	case d.cmd.ExpiresAt <= d.now:
		// One watermark per campaign covers what has expired: no expiry may move before it.
		d.refuse(wire.Invalid, d.textTime("expires_at: must lie in the future; it is ", d.now, " now"))
	default:
		ev := d.emit(wire.CouponExtended)
		ev.N, ev.Code, ev.ExpiresAt, ev.Status = n, d.codeOf(n), d.cmd.ExpiresAt, wire.StatusClaimed
		if count >= c.settings.MaxRedemptions {
			ev.Status = wire.StatusRedeemed
		}
		d.apply()
		d.couponOutcome(wire.StatusExtended, n)
	}
}

// onCoupon decides the commands that name a coupon by its code.
func (d *decision) onCoupon() {
	switch d.cmd.Type {
	case wire.Redeem:
		d.redeem()
	case wire.Rollback:
		d.rollback()
	case wire.Void:
		d.void()
	case wire.Extend:
		d.extend()
	default:
		d.refuse(wire.Invalid, unknownCommand)
	}
}

// unknownCommand is the message for a command that no rule decides.
const unknownCommand = "unknown command"
