package scheduler

import (
	"fmt"

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
	priority       priority                  // who goes first when more is due than can be asked for
	expiredThrough domain.Instant            // coupons that fall up to it have been announced
	own            expiries                  // of coupons with an expiry of their own
	falls          btree.Set[domain.Instant] // those expiries after expiredThrough, each once
	newest         domain.Instant            // put into falls last: nearly always the next one too
	pending        domain.Reminders[string]  // customers in clear: the fan-out tells them
	look           domain.Instant            // place in the order: nothing falls due before it; 0 = find out
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
		var own domain.Instant
		if ev.N != 0 {
			own = e.own.of(ev.N)
		}
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
	e.own.set(n, at)
	if at == 0 || at <= e.expiredThrough || at == e.newest {
		return
	}
	before := e.falls.Len()
	e.falls.Insert(at)
	b.instants += e.falls.Len() - before
	e.newest = at
	b.sooner(e, at)
}

// expired notes that everything up to through has been announced.
func (b *book) expired(e *entry, through domain.Instant) {
	if through <= e.expiredThrough {
		return
	}
	b.instants -= e.instants()
	e.expiredThrough = through
	for first, ok := e.falls.Min(); ok && first <= through; first, ok = e.falls.Min() {
		e.falls.PopMin()
	}
	if e.newest <= through {
		e.newest = 0
	}
	e.own.forget(through)
	b.instants += e.instants()
	b.setLook(e, 0)
}

// instants is the number of instants at which coupons of the campaign are still to fall.
func (e *entry) instants() int {
	n := e.falls.Len()
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
func (e *entry) firstFall() domain.Instant {
	if first, ok := e.falls.Min(); ok {
		return min(first, e.end())
	}
	return e.end()
}

// fallAfter is the earliest instant after now at which coupons fall, Never if there is none.
func (e *entry) fallAfter(now domain.Instant) domain.Instant {
	next := domain.Never
	if end := e.end(); end > now {
		next = end
	}
	e.falls.Ascend(now+1, func(at domain.Instant) bool {
		next = min(next, at)
		return false
	})
	return next
}

// lastFall is the latest instant at or before now, after what has been announced, at which coupons fall; 0 if none.
func (e *entry) lastFall(now domain.Instant) (last domain.Instant) {
	if end := e.end(); end <= now {
		last = end
	}
	e.falls.Descend(now, func(at domain.Instant) bool {
		last = max(last, at)
		return false
	})
	return last
}
