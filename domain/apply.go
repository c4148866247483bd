package domain

import (
	"errors"
	"fmt"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Apply folds one event into the state. A restart rebuilds the lane with it, and Decide changes the lane with it. An error
// means that the event does not fit the state: the log is not the one of this state, or it is damaged. Nothing has been
// changed then.
func (l *Lane) Apply(ev *wire.Event) error { return l.apply(ev, l.hashesOf(ev)) }

func (l *Lane) apply(ev *wire.Event, h eventHashes) error {
	switch ev.Type {
	case wire.CampaignCreated:
		return l.applyCreated(ev, h)
	case wire.CommandsRefused, wire.CommandRejected:
		l.clock = max(l.clock, ev.At)
		return nil
	}
	c := l.find(ev.Campaign)
	if c == nil {
		return fmt.Errorf("%s of campaign %q, which was never created", ev.Type, ev.Campaign)
	}
	if err := l.applyTo(c, ev, h); err != nil {
		return fmt.Errorf("%s of campaign %s: %w", ev.Type, c.name, err)
	}
	l.list(c)
	l.clock = max(l.clock, ev.At)
	return nil
}

func (l *Lane) applyCreated(ev *wire.Event, h eventHashes) error {
	c := &campaign{name: strings.Clone(ev.Campaign), number: ev.Number, created: ev.At, scanLimit: l.scanLimit}
	if ev.Settings.Codes == 0 {
		c.imported = &importedCodes{key: l.hash.key}
	}
	c.setSettings(l.settings.keep(&ev.Settings))
	if err := l.add(c); err != nil {
		return err
	}
	c.record(actRecord{id: h.id, kind: wire.CreateCampaign, arg: l.settingsHash(&ev.Settings)})
	l.clock = max(l.clock, ev.At)
	return nil
}

func (l *Lane) applyTo(c *campaign, ev *wire.Event, h eventHashes) error {
	if ev.Type.ChangesCoupon() {
		if ev.N == 0 || ev.N > c.claimed() {
			return fmt.Errorf("coupon %d was never claimed", ev.N)
		}
		order := uint64(0)
		if ev.OrderID != "" {
			order = l.hash.text(ev.OrderID)
		}
		return l.applyCoupon(c, ev, h, order)
	}
	switch ev.Type {
	case wire.CampaignUpdated:
		c.setSettings(l.settings.keep(&ev.Settings))
		c.record(actRecord{id: h.id, kind: wire.UpdateCampaign})
	case wire.CampaignPausedEvent:
		c.state = paused
		c.record(actRecord{id: h.id, kind: wire.PauseCampaign})
	case wire.CampaignResumed:
		c.state = active
		c.record(actRecord{id: h.id, kind: wire.ResumeCampaign})
	case wire.CampaignEndedEvent:
		c.state = ended
		c.record(actRecord{id: h.id, kind: wire.EndCampaign})
	case wire.CampaignSoldOut:
	case wire.CodesImported:
		if c.imported == nil {
			return fmt.Errorf("its codes are generated")
		}
		for _, text := range ev.Codes {
			if !c.imported.add(text) {
				return fmt.Errorf("no room for more codes")
			}
		}
		c.record(actRecord{id: h.id, kind: wire.ImportCodes, count: uint32(len(ev.Codes))})
	case wire.CouponsAllotted:
		return c.allot(ev, h.id, l.hash.text(ev.Batch))
	case wire.CouponClaimed:
		if ev.N != c.claimed()+1 {
			return fmt.Errorf("coupon %d follows coupon %d", ev.N, c.claimed())
		}
		previous, _ := c.newestOf(h.customer)
		if ev.Replaces != c.replaced(previous) {
			return fmt.Errorf("coupon %d replaces %d, which is not its customer's void one", ev.N, ev.Replaces)
		}
		c.recordClaim(h.customer, previous, h.id, ev.ExpiresAt)
	case wire.CouponsExpired:
		if c.sparse != nil {
			c.sparse.due.through(ev.Through)
			l.parked -= c.sparse.parked.Len()
			c.sparse.parked.FireThrough(ev.Through, c.anchors(), nil)
			l.parked += c.sparse.parked.Len()
		}
		c.expiredThrough = max(c.expiredThrough, ev.Through)
	case wire.ReminderSet:
		x := reminder.Subscription{R: ev.R, Kind: ev.Kind, Before: ev.Before, N: ev.N}
		switch {
		case ev.R == 0 || ev.R > reminder.MaxReminder:
			return fmt.Errorf("reminders have the numbers 1 to %d, this one %d", uint32(reminder.MaxReminder), ev.R)
		case ev.N > c.claimed():
			return fmt.Errorf("coupon %d was never claimed", ev.N)
		case ev.N != 0:
			x.Own = c.ownExpiry(ev.N)
		}
		if ev.CustomerID == "" {
			// Set again, for the coupon's holder: the event of the rollback or unremind remembers the command id.
			was, ok := c.parked().FindOfCoupon(ev.N, ev.Before)
			if !ok || ev.Kind != wire.KindExpires {
				return fmt.Errorf("reminder %d is set again, but no redemption of coupon %d cancelled it", ev.R, ev.N)
			}
			c.sparse.parked.Cancel(was)
			l.parked--
		} else {
			// Not linked to the coupon (n): that chain holds its redemption state, which a reminder does not change.
			arg := l.hash.reminder(h.customer, ev.Kind, ev.Before)
			c.record(actRecord{id: h.id, kind: wire.Remind, arg: arg, count: ev.N})
		}
		if ev.Kind == wire.KindOpens {
			x.N = c.acts.Len()
		}
		pending := &c.ensureSparse().reminders
		was := pending.Len()
		pending.SetNoted(x, c)
		l.reminders += pending.Len() - was
		c.lastReminder = max(c.lastReminder, ev.R)
	case wire.ReminderCancelled:
		was, ok := c.reminders().Get(ev.R)
		switch {
		case !ok:
			return fmt.Errorf("reminder %d is not pending", ev.R)
		case ev.Restorable() && (was.Kind != wire.KindExpires || was.N != ev.N):
			return fmt.Errorf("reminder %d is not of coupon %d", ev.R, ev.N)
		}
		c.reminders().CancelNoted(ev.R, c)
		l.reminders--
		if ev.Restorable() {
			c.sparse.parked.Set(was.R, was.Kind, was.Before, was.N, was.Own)
			l.parked++
		}
		// Without a customer it follows from a redeem or void, whose event remembers the command id.
		if ev.CustomerID != "" {
			arg := l.hash.reminder(h.customer, ev.Kind, ev.Before)
			c.record(actRecord{id: h.id, kind: wire.Unremind, arg: arg, count: ev.N})
		}
	case wire.RemindersDue:
		l.reminders -= c.reminders().FireNoted(ev.DueSet(), c.anchors(), c, nil)
	default:
		return errNotApplied
	}
	return nil
}

// errNotApplied is the error of an event that no rule applies.
var errNotApplied = errors.New("does not belong on an event stream")

// applyCoupon applies an event that changes one coupon: the coupon is taken out of the counts, changed, and counted again.
// h and order are the hashes of the event's.
func (l *Lane) applyCoupon(c *campaign, ev *wire.Event, h eventHashes, order uint64) (err error) {
	n := ev.N
	count, voided := c.redemptionState(n)
	act := actRecord{id: h.id, n: n, count: count, kind: ev.Type.Spec().Command}
	if voided {
		act.flags = flagVoided
	}
	if c.live(n) {
		c.count(n, -1)
	} else if !voided {
		c.redeemed--
	}
	switch ev.Type {
	case wire.CouponRedeemed:
		act.arg, act.count = order, ev.RedeemedCount
		if c.coupon(n).customer == (customerHash{}) {
			c.editCoupon(n).customer = h.customer
		}
		l.unpark(c, n) // reminders that an earlier redemption cancelled and its rollback did not set again
	case wire.CouponRolledBack:
		act.arg, act.count = order, ev.RedeemedCount
		if i, redemption := c.redemption(n, act.arg); redemption != nil {
			c.acts.Edit(i).flags |= flagRolledBack
		}
	case wire.CouponVoided:
		act.flags = flagVoided
		l.unpark(c, n)
		if !voided {
			c.drop(n)
			l.voided++
		}
	case wire.CouponExtended:
		c.setOwnExpiry(n, ev.ExpiresAt)
		c.reminders().Move(n, ev.ExpiresAt)
		c.parked().Move(n, ev.ExpiresAt)
	default:
		err = errNotApplied // the coupon is counted again as it was
	}
	if err == nil {
		c.record(act)
	}
	if c.live(n) {
		c.count(n, +1)
	} else if act.flags&flagVoided == 0 {
		c.redeemed++
	}
	return err
}

// unpark drops the reminders that redemptions of coupon n cancelled: no rollback sets them again.
func (l *Lane) unpark(c *campaign, n uint32) {
	for _, r := range c.parked().OfCoupon(n) {
		c.sparse.parked.Cancel(r)
		l.parked--
	}
}

func (l *Lane) hashesOf(ev *wire.Event) (h eventHashes) {
	h.id = l.hash.text(ev.ID)
	if ev.CustomerID != "" {
		h.customer = l.hash.customer(ev.CustomerID)
	}
	return h
}
