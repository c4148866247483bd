package domain

import (
	"fmt"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Apply folds one event into the state. It is how a restart rebuilds the lane and how Decide changes it. An error means
// that the event does not fit the state: the log is not the one this state came from, or was damaged; nothing has been
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
	c := &campaign{name: strings.Clone(ev.Campaign), number: ev.Number, created: ev.At, few: l.few}
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
	case wire.CouponClaimed:
		if ev.N != c.claimed()+1 {
			return fmt.Errorf("coupon %d follows coupon %d", ev.N, c.claimed())
		}
		previous, _ := c.newestOf(h.customer)
		c.recordClaim(h.customer, previous, h.id, ev.ExpiresAt)
	case wire.CouponRedeemed, wire.CouponRolledBack, wire.CouponVoided, wire.CouponExtended:
		if ev.N == 0 || ev.N > c.claimed() {
			return fmt.Errorf("coupon %d was never claimed", ev.N)
		}
		order := uint64(0)
		if ev.OrderID != "" {
			order = l.hash.text(ev.OrderID)
		}
		l.applyCoupon(c, ev, h.id, order)
	case wire.CouponsExpired:
		if c.rare != nil {
			c.rare.due.through(ev.Through)
			l.parked -= c.rare.parked.Len()
			c.rare.parked.FireThrough(ev.Through, c.anchors(), nil)
			l.parked += c.rare.parked.Len()
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
			x.Own = c.own(ev.N)
		}
		if ev.CustomerID == "" {
			// Set again, for the coupon's holder: the command that did it is remembered by an event of its own.
			was, ok := c.parked().FindOfCoupon(ev.N, ev.Before)
			if !ok || ev.Kind != wire.KindExpires {
				return fmt.Errorf("reminder %d is set again, but no redemption of coupon %d cancelled it", ev.R, ev.N)
			}
			c.rare.parked.Cancel(was)
			l.parked--
		} else {
			// Not under the coupon (n): that chain says how a coupon stands, and a reminder does not change it.
			arg := l.hash.reminder(h.customer, ev.Kind, ev.Before)
			c.record(actRecord{id: h.id, kind: wire.Remind, arg: arg, count: ev.N})
		}
		if ev.Kind == wire.KindOpens {
			x.N = c.acts.Len()
		}
		pending := &c.rarely().reminders
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
			c.rare.parked.Set(was.R, was.Kind, was.Before, was.N, was.Own)
			l.parked++
		}
		// Without a customer it follows from a redeem or void, whose own event remembers the id.
		if ev.CustomerID != "" {
			arg := l.hash.reminder(h.customer, ev.Kind, ev.Before)
			c.record(actRecord{id: h.id, kind: wire.Unremind, arg: arg, count: ev.N})
		}
	case wire.RemindersDue:
		l.reminders -= c.reminders().FireNoted(ev.DueSet(), c.anchors(), c, nil)
	default:
		return fmt.Errorf("does not belong on an event stream")
	}
	return nil
}

// applyCoupon folds what happened to one coupon: it leaves the count of the live ones, changes, and joins again if it
// still lives. id and order are the hashes of the event's.
func (l *Lane) applyCoupon(c *campaign, ev *wire.Event, id, order uint64) {
	n := ev.N
	count, voided := c.standing(n)
	act := actRecord{id: id, n: n, count: count}
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
		act.kind, act.arg, act.count = wire.Redeem, order, ev.RedeemedCount
		l.unpark(c, n) // what an earlier redemption cancelled and its rollback left
	case wire.CouponRolledBack:
		act.kind, act.arg, act.count = wire.Rollback, order, ev.RedeemedCount
		if i, redemption := c.redemption(n, act.arg); redemption != nil {
			c.acts.Edit(i).flags |= flagRolledBack
		}
	case wire.CouponVoided:
		act.kind, act.flags = wire.Void, flagVoided
		l.unpark(c, n)
		if !voided {
			c.voided++
		}
	case wire.CouponExtended:
		act.kind = wire.Extend
		c.setOwn(n, ev.ExpiresAt)
		c.reminders().Move(n, ev.ExpiresAt)
		c.parked().Move(n, ev.ExpiresAt)
	}
	c.record(act)
	if c.live(n) {
		c.count(n, +1)
	} else if act.flags&flagVoided == 0 {
		c.redeemed++
	}
}

// unpark forgets what redemptions of coupon n cancelled.
func (l *Lane) unpark(c *campaign, n uint32) {
	for _, r := range c.parked().OfCoupon(n) {
		c.rare.parked.Cancel(r)
		l.parked--
	}
}
