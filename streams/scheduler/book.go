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
	list      []*entry // the same, as they were made
	// order holds every campaign by the instant at which it must be looked at, so that waking up costs a walk down a
	// tree and never a scan over campaigns.
	order     *btree.BTreeG[*entry]
	customers customers
	reminders int         // pending, over all campaigns
	instants  int         // at which coupons are still to fall, over all campaigns
	rs        []uint64    // of the firing that is folded
	freezing  *frozenBook // nil if none is half done
	epoch     uint32      // rises with each freeze
}

// entry is one campaign of the book.
type entry struct {
	name           string
	anchors        domain.Anchors
	priority       priority       // who goes first when more is due than can be asked for
	lateAfter      time.Duration  // reminders later than this are dropped; 0 = not for that
	expiredThrough domain.Instant // coupons that fall up to it have been announced
	own            ownExpiries    // which coupons have an expiry of their own
	falls          falls          // those expiries after expiredThrough
	newest         domain.Instant // put into falls last: nearly always the next one too
	pending        domain.Subscriptions
	parked         domain.Subscriptions // that redemptions cancelled: their rollback sets them again, without saying for whom
	who            *customerList        // the customers of those that are pending or parked; nil if none are
	epoch          uint32               // of the last freeze that it is part of, or that it came too late for
	look           domain.Instant       // place in the order: nothing falls due before it; 0 = find out
}

// newBook makes an empty book that keeps customers in a file in dir, "" = os.TempDir. The file is made when there are many.
func newBook(dir string) *book {
	return &book{
		customers: customers{dir: dir},
		campaigns: make(map[string]*entry),
		order: btree.NewBTreeGOptions(func(a, b *entry) bool {
			if a.look != b.look {
				return a.look < b.look
			}
			return a.name < b.name
		}, btree.Options{NoLocks: true}),
	}
}

// close lets go of the file. Nothing frozen may be read any more.
func (b *book) close() {
	if b != nil {
		b.customers.close()
	}
}

func (b *book) add(name string) *entry {
	e := &entry{name: name, epoch: b.epoch}
	b.campaigns[name] = e
	b.list = append(b.list, e)
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

// fold applies one event. gone is what a reminders.due event fired or dropped, by rising number, and the caller's to keep.
// An error means that customers could not be written or read (errDisk), or that the event does not fit what came before:
// the stream is not the one this book was folded from.
func (b *book) fold(ev *domain.Event) (gone []firing, err error) {
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
	b.touch(e)
	switch ev.Type {
	case domain.CampaignUpdated:
		b.anchor(e, &ev.Settings)
	case domain.CouponClaimed:
		b.ownExpiry(e, ev.N, ev.ExpiresAt)
	case domain.CouponExtended:
		b.ownExpiry(e, ev.N, ev.ExpiresAt)
		e.parked.Move(ev.N, ev.ExpiresAt)
		if e.pending.Len() > 0 && len(e.pending.OfCoupon(ev.N)) > 0 {
			e.pending.Move(ev.N, ev.ExpiresAt)
			b.setLook(e, 0)
		}
	case domain.CouponsExpired:
		b.expired(e, ev.Through)
	case domain.ReminderSet:
		err = b.set(e, ev)
	case domain.ReminderCancelled:
		was, ok := e.pending.Get(ev.R)
		if !ok {
			return nil, fmt.Errorf("%s of campaign %s: reminder %d is not pending", ev.Type, e.name, ev.R)
		}
		e.pending.Cancel(ev.R)
		if ev.Restorable() {
			e.parked.Set(was.R, was.Kind, was.Before, was.N, was.Own)
		} else {
			b.customers.remove(e.who, ev.R)
		}
		b.gone(e, 1)
	case domain.RemindersDue:
		gone, err = b.fire(e, ev)
	}
	if err == nil {
		err = b.tidy()
	}
	if err != nil {
		return nil, fmt.Errorf("%s of campaign %s: %w", ev.Type, e.name, err)
	}
	return gone, nil
}

// set notes a subscription and its customer.
func (b *book) set(e *entry, ev *domain.Event) error {
	if ev.R == 0 || ev.R > domain.MaxReminder {
		return fmt.Errorf("reminder %d, expected 1 to %d", ev.R, uint64(domain.MaxReminder))
	}
	customer := ev.CustomerID
	if customer == "" {
		was, ok := e.parked.FindOfCoupon(ev.N, ev.Before)
		if !ok {
			return fmt.Errorf("reminder %d is set again, but no redemption of coupon %d cancelled it", ev.R, ev.N)
		}
		e.parked.Cancel(was)
		of, err := b.customers.fire(e.who, []uint64{was})
		if err != nil {
			return err
		}
		customer = of[0].customer
	}
	if e.who == nil {
		e.who = new(customerList)
	}
	if err := b.customers.add(e.who, uint32(ev.R), customer); err != nil {
		return err
	}
	own := e.ownExpiryOf(ev)
	e.pending.Set(ev.R, ev.Kind, ev.Before, ev.N, own) // as a rule a new one: the customers' numbers rise
	b.reminders++
	b.sooner(e, domain.DueAt(ev.Kind, ev.Before, own, e.anchors))
	return nil
}

// fire takes out what fired, and says whom it was for.
func (b *book) fire(e *entry, ev *domain.Event) ([]firing, error) {
	rs := e.pending.Fire(ev.DueSet(), e.anchors, b.rs[:0])
	if b.rs = rs; cap(rs) > 1<<20 {
		b.rs = nil // once in a while millions fire at once
	}
	if len(rs) == 0 {
		return nil, nil
	}
	gone, err := b.customers.fire(e.who, rs)
	if err != nil {
		return nil, err
	}
	b.gone(e, len(gone))
	return gone, nil
}

// gone counts n reminders less.
func (b *book) gone(e *entry, n int) {
	b.reminders -= n
	if e.who.empty() {
		e.who = nil
	}
}

// touch is called before anything of e changes that a snapshot holds: a freeze that is half done takes it as it is.
func (b *book) touch(e *entry) {
	if e.epoch != b.epoch && b.freezing != nil {
		b.freezing.take(e)
	}
}

// anchor takes over what reminders and coupons of the campaign hang on. Moving it moves no reminder: they are found by
// their anchor.
func (b *book) anchor(e *entry, s *domain.Settings) {
	b.instants -= e.instants()
	e.anchors = domain.Anchors{Opens: s.OpensAt, Expires: s.ExpiresAt}
	e.priority, e.lateAfter = priorityOf(s.Priority), s.LateAfter
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
	if e.parked.Next(e.anchors) <= through {
		b.rs = b.rs[:0]
		e.parked.FireThrough(through, e.anchors, &b.rs)
		for _, r := range b.rs {
			b.customers.remove(e.who, r)
		}
		b.gone(e, 0)
	}
	if e.newest <= through {
		e.newest = 0
	}
	b.instants += e.instants()
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
