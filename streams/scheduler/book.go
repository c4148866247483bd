package scheduler

import (
	"fmt"
	"time"

	"github.com/tidwall/btree"

	"github.com/seed-4a2410e3/scrip/domain"
)

// book is what a lane's scheduler knows: for every campaign when its coupons fall and who is to be reminded. It is the
// fold of the lane's event stream and of nothing else, so a book read from a snapshot and one replayed from the first
// event are the same. It knows no clock and does no I/O.
type book struct {
	campaigns map[string]*entry
	// order holds every campaign by the instant at which it must be looked at, so that waking up costs a walk down a
	// tree and never a scan over campaigns.
	order     *btree.BTreeG[*entry]
	reminders int // pending, over all campaigns
	instants  int // at which coupons are still to fall, over all campaigns
}

// entry is one campaign of the book.
type entry struct {
	name           string
	anchors        domain.Anchors
	priority       priority                 // who goes first when more is due than can be asked for
	expiredThrough domain.Instant           // coupons that fall up to it have been announced
	own            ownExpiries              // which coupons have an expiry of their own
	falls          falls                    // those expiries after expiredThrough
	newest         domain.Instant           // put into falls last: nearly always the next one too
	pending        domain.Reminders[string] // customers in clear: the fan-out tells them
	look           domain.Instant           // place in the order: nothing falls due before it; 0 = find out
}

func newBook() *book {
	return &book{
		campaigns: make(map[string]*entry),
		order: btree.NewBTreeGOptions(func(a, b *entry) bool {
			if a.look != b.look {
				return a.look < b.look
			}
			return a.name < b.name
		}, btree.Options{NoLocks: true}),
	}
}

func (b *book) add(name string) *entry {
	e := &entry{name: name}
	b.campaigns[name] = e
	b.order.Set(e)
	return e
}

// setLook moves e in the order.
func (b *book) setLook(e *entry, at domain.Instant) {
	if at != e.look {
		b.order.Delete(e)
		e.look = at
		b.order.Set(e)
	}
}

// sooner says that something may fall due in e at the given instant.
func (b *book) sooner(e *entry, at domain.Instant) {
	if at < e.look {
		b.setLook(e, at)
	}
}

// fold applies one event. gone is what a reminders.due event fired or dropped, by rising number. An error means that
// the event does not fit what came before: the stream is not the one this book was folded from.
func (b *book) fold(ev *domain.Event) (gone []domain.Fired[string], err error) {
	switch ev.Type {
	case domain.CommandsRefused, domain.CommandRejected:
		return nil, nil
	case domain.CampaignCreated:
		if b.campaigns[ev.Campaign] != nil {
			return nil, fmt.Errorf("campaign %s is created twice", ev.Campaign)
		}
		b.anchor(b.add(ev.Campaign), &ev.Settings)
		return nil, nil
	}
	e := b.campaigns[ev.Campaign]
	if e == nil {
		return nil, fmt.Errorf("%s of campaign %q, which was never created", ev.Type, ev.Campaign)
	}
	switch ev.Type {
	case domain.CampaignUpdated:
		b.anchor(e, &ev.Settings)
	case domain.CouponClaimed:
		b.ownExpiry(e, ev.N, ev.ExpiresAt)
	case domain.CouponExtended:
		b.ownExpiry(e, ev.N, ev.ExpiresAt)
		if len(e.pending.OfCoupon(ev.N)) > 0 {
			e.pending.Move(ev.N, ev.ExpiresAt)
			b.setLook(e, 0)
		}
	case domain.CouponsExpired:
		b.expired(e, ev.Through)
	case domain.ReminderSet:
		own := e.ownExpiryOf(ev)
		before := e.pending.Len()
		e.pending.Set(ev.R, ev.CustomerID, ev.Kind, ev.Before, ev.N, own)
		b.reminders += e.pending.Len() - before
		b.sooner(e, domain.DueAt(ev.Kind, ev.Before, own, e.anchors))
	case domain.ReminderCancelled:
		if !e.pending.Cancel(ev.R) {
			return nil, fmt.Errorf("%s of campaign %s: reminder %d is not pending", ev.Type, e.name, ev.R)
		}
		b.reminders--
	case domain.RemindersDue:
		gone = e.pending.Fire(ev.Kind, ev.DueAt, ev.FromR, ev.ThroughR, e.anchors)
		b.reminders -= len(gone)
		b.setLook(e, 0)
	}
	return gone, nil
}

// anchor takes over what reminders and coupons of the campaign hang on. Moving it moves no reminder: they are found by
// their anchor.
func (b *book) anchor(e *entry, s *domain.Settings) {
	b.instants -= e.instants()
	e.anchors = domain.Anchors{Opens: s.OpensAt, Expires: s.ExpiresAt}
	e.priority = priorityOf(s.Priority)
	b.instants += e.instants()
	b.setLook(e, 0)
}

// ownExpiry notes that coupon n falls at the given instant, 0 = with its campaign. The instant it fell at before stays
// among those to come: announcing it says that nothing fell, which costs a line and no bookkeeping per coupon.
func (b *book) ownExpiry(e *entry, n uint32, at domain.Instant) {
	if at == 0 {
		e.own.remove(n)
		return
	}
	e.own.add(n)
	if at <= e.expiredThrough || at == e.newest {
		return
	}
	if e.falls.insert(at) {
		b.instants++
	}
	e.newest = at
	b.sooner(e, at)
}

// ownExpiryOf is the own expiry of the coupon that a reminder.set event's subscription hangs on, 0 if it has none: the
// lane worked out due_at from it, so it lies the lead time behind due_at, to the microsecond. (The lane refuses what would
// be due in the past or never, so nothing was cut off there, and both sides drop the same parts of a microsecond.)
func (e *entry) ownExpiryOf(ev *domain.Event) domain.Instant {
	if ev.N == 0 || !e.own.has(ev.N) {
		return 0
	}
	return ev.DueAt + domain.Instant(ev.Before/time.Microsecond)
}

// expired notes that everything up to through has been announced.
func (b *book) expired(e *entry, through domain.Instant) {
	if through <= e.expiredThrough {
		return
	}
	b.instants -= e.instants()
	e.expiredThrough = through
	e.falls.forget(through)
	if e.newest <= through {
		e.newest = 0
	}
	b.instants += e.instants()
	b.setLook(e, 0)
}

// instants is the number of instants at which coupons of the campaign are still to fall.
func (e *entry) instants() int {
	n := e.falls.n
	if e.end() != domain.Never {
		n++
	}
	return n
}

// end is when coupons fall that inherit it from the campaign, Never if they do not or did.
func (e *entry) end() domain.Instant {
	if e.anchors.Expires > e.expiredThrough {
		return e.anchors.Expires
	}
	return domain.Never
}

// firstFall is the earliest instant after what has been announced at which coupons fall, Never if there is none.
func (e *entry) firstFall() domain.Instant { return min(e.falls.after(0), e.end()) }

// fallAfter is the earliest instant after now at which coupons fall, Never if there is none.
func (e *entry) fallAfter(now domain.Instant) domain.Instant {
	next := e.falls.after(now)
	if end := e.end(); end > now {
		next = min(next, end)
	}
	return next
}

// lastFall is the latest instant at or before now, after what has been announced, at which coupons fall; 0 if none.
func (e *entry) lastFall(now domain.Instant) domain.Instant {
	last := e.falls.upTo(now)
	if end := e.end(); end <= now {
		last = max(last, end)
	}
	return last
}
