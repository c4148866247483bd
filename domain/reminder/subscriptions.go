package reminder

import (
	"iter"
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/table"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Subscriptions are the pending reminders of one campaign by number. Their customers are stored elsewhere, as hashes (the
// lane) or on disk (the fan-out).
//
//	reminder.set ──Set──> pending ──Fire────> fired or dropped (reminders.due)
//	                         └──────Cancel──> cancelled (reminder.cancelled)
//
// A subscription belongs to a group: all of one kind, lead time and anchor are due together. A new opening or end of a
// campaign moves no entry, and what is due is found by reading groups, in the order in which they are due.
//
//	pages by number: 16 bytes each ──> group: 20 bytes + 4 in an order of its series
//	   group, n, next, previous            key, lead time, first, count
//	        ^
//	index of their keys (coupon, note): 5 to 10 bytes each
//
// There are three series of groups. Two have the campaign's opening or end as anchor: there the order by lead time is the order
// of due instants, whatever the anchor is. The third has own expiries, whose due instants never change.
// Within a group subscriptions are linked by rising number.
//
// One process holds sixty million, so an entry repeats nothing that its group has, nothing is ever copied as a whole, and
// memory follows what is pending: pages shrink and are released, and with the last subscription everything is.
//
// The zero value is empty. Owner: one goroutine; what [Subscriptions.Freeze] returns may be read by another. Reads do not
// change what is pending, but they may sort links, so only the owner may read.
type Subscriptions struct{ p *pending }

// MaxReminder is the highest number of a subscription.
const MaxReminder = 1<<32 - 2

// Subscription is one pending reminder.
type Subscription struct {
	R      uint64
	Kind   string
	Before time.Duration
	N      uint32       // of kind expires the coupon; of kind opens what Set was given
	Own    wire.Instant // the coupon's own expiry; 0 = the campaign's, or the kind is opens
}

// pending is what there is while there is any subscription.
type pending struct {
	live       uint32
	epoch      uint32 // rises with each copy; a page of an older one is copied before it is written
	frozen     bool   // a frozen copy reads it: copied before it is written
	pages      []numberedPage
	groups     groupTable
	leads      leadTable
	series     [numSeries]groupOrder
	newest     uint32       // the group that was joined last: nearly always the next one's too
	unsorted   uint32       // groups whose links are not in order
	keys       *table.Index // key → number; nil while a scan is as fast
	prefetched uint32       // see index.touch
}

// subscription is what is kept of one: 16 bytes.
type subscription struct {
	group    uint32 // 0 = not pending
	n        uint32
	next     uint32 // in its group by number; after the last comes the first
	previous uint32
}

// Len is the number of pending subscriptions.
func (s *Subscriptions) Len() int {
	if s.p == nil {
		return 0
	}
	return int(s.p.live)
}

// Has reports whether subscription r is pending.
func (s *Subscriptions) Has(r uint64) bool {
	return s.p != nil && r <= MaxReminder && s.p.at(uint32(r)) != nil
}

// Set adds subscription r, from 1 to [MaxReminder]; false, and nothing done, beyond. One that is pending already is
// replaced. before is truncated to microseconds. own is the expiry of coupon n, 0 if it inherits the campaign's; of kind
// opens it is ignored, and n is the caller's to use: it is given back by All, and finds nothing.
//
// Numbers that rise make it cheap, as the log has them: O(log groups).
func (s *Subscriptions) Set(r uint64, kind string, before time.Duration, n uint32, own wire.Instant) bool {
	return s.SetNoted(Subscription{r, kind, before, n, own}, nil)
}

func (s *Subscriptions) SetNoted(x Subscription, notes Notes) bool {
	if x.R == 0 || x.R > MaxReminder {
		return false
	}
	s.CancelNoted(x.R, notes)
	p, r := s.writable(), uint32(x.R)
	p.set(&x)
	switch {
	case p.keys != nil:
		p.addKey(r, p.at(r), notes)
	case !p.isFew():
		p.keys = new(table.Index)
		p.each(func(r uint32, e *subscription) bool {
			p.addKey(r, e, notes)
			return true
		})
	}
	return true
}

// Restore sets many into what is empty, as from a snapshot: their keys are indexed only at the end.
// False if one of the numbers is out of bounds or not higher than the one before; what is pending then is of no use.
func (s *Subscriptions) Restore(list iter.Seq[Subscription]) bool {
	ok, _ := s.RestoreNoted(list, nil)
	return ok
}

// RestoreNoted also reports whether two of them have the same key and lead time.
func (s *Subscriptions) RestoreNoted(list iter.Seq[Subscription], notes Notes) (ok, twice bool) {
	if s.p != nil {
		return false, false
	}
	p, last := s.writable(), uint64(0)
	var keyed []uint32
	for x := range list {
		if x.R <= last || x.R > MaxReminder {
			return false, false
		}
		last = x.R
		p.set(&x)
		if notes != nil || x.Kind == wire.KindExpires {
			keyed = append(keyed, uint32(x.R))
		}
	}
	same := func(r, earlier uint32) bool {
		twice = twice || p.same(r, earlier, notes)
		return false
	}
	switch {
	case p.live == 0:
		s.p = nil
	case p.isFew():
		for i, r := range keyed {
			for _, earlier := range keyed[:i] {
				same(r, earlier)
			}
		}
	default:
		p.keys = new(table.Index)
		p.keys.Fill(uint32(len(keyed)), func(k uint32) uint32 { return keyed[k] }, p.hashOf(notes), same)
	}
	return true, twice
}

// set gives a number, which is not pending, its record and its group.
func (p *pending) set(x *Subscription) {
	r := uint32(x.R)
	p.addEntry(r, x.N)
	p.join(p.groupOf(leadOf(x.Kind == wire.KindExpires, x.Before, x.Own), x.Own), r)
	p.live++
}

// Cancel removes subscription r; false if it is not pending.
func (s *Subscriptions) Cancel(r uint64) bool { return s.CancelNoted(r, nil) }

func (s *Subscriptions) CancelNoted(number uint64, notes Notes) bool {
	if !s.Has(number) {
		return false
	}
	p, r := s.writable(), uint32(number)
	if p.keys != nil {
		p.removeKey(r, p.at(r), notes)
	}
	p.leave(r)
	p.removeEntry(r)
	p.live--
	s.released()
	return true
}

// released lets go of everything when nothing is pending.
func (s *Subscriptions) released() {
	if s.p.live == 0 {
		s.p = nil
	}
}

// writable returns what is pending for writing: a copy if it is frozen.
func (s *Subscriptions) writable() *pending {
	switch p := s.p; {
	case p == nil:
		s.p = new(pending)
	case p.frozen:
		own := *p
		own.frozen = false
		own.epoch++
		own.pages = slices.Clone(p.pages)
		own.groups.pages = slices.Clone(p.groups.pages)
		own.leads.list = slices.Clone(p.leads.list)
		s.p = &own // only the owner reads the rest
	}
	return s.p
}

// Move gives coupon n an expiry of its own, or with 0 takes it away: its subscriptions are due by it from now on.
func (s *Subscriptions) Move(n uint32, own wire.Instant) {
	for _, r := range s.OfCoupon(n) {
		p, r := s.writable(), uint32(r)
		id := p.at(r).group
		lead := p.leads.list[p.group(id).lead]
		to := leadOf(true, time.Duration(lead.before)*time.Microsecond, own)
		if p.ownExpiryOf(id) == own {
			continue
		}
		p.leave(r)
		p.join(p.groupOf(to, own), r)
	}
}

// Get returns subscription r, if it is pending.
func (s *Subscriptions) Get(r uint64) (x Subscription, ok bool) {
	if !s.Has(r) {
		return Subscription{}, false
	}
	return s.p.subscription(uint32(r)), true
}

func (p *pending) subscription(r uint32) Subscription {
	e := p.at(r)
	lead := p.leads.list[p.group(e.group).lead]
	kind := wire.KindExpires
	if lead.series == atOpening {
		kind = wire.KindOpens
	}
	return Subscription{R: uint64(r), Kind: kind, Before: time.Duration(lead.before) * time.Microsecond, N: e.n, Own: p.ownExpiryOf(e.group)}
}

// HasOpening reports whether one of them is of kind opens.
func (s *Subscriptions) HasOpening() bool { return s.p != nil && len(s.p.series[atOpening].chunks) > 0 }

// All calls f for every pending subscription by rising number.
func (s *Subscriptions) All(f func(r uint64, kind string, before time.Duration, n uint32, own wire.Instant)) {
	FrozenSubscriptions{s.p}.All(f)
}

// FrozenSubscriptions are pending subscriptions as they were when Freeze was called. Any one goroutine may read them,
// beside their owner.
type FrozenSubscriptions struct{ p *pending }

// Freeze returns what is pending as it is now. It costs nothing; the owner copies what it writes to from now on, once: the
// lists of pages when it first writes, a page of 4 KiB when it first writes to that.
func (s *Subscriptions) Freeze() FrozenSubscriptions {
	if s.p != nil {
		s.p.frozen = true
	}
	return FrozenSubscriptions{s.p}
}

// Len is their number.
func (f FrozenSubscriptions) Len() int { return (&Subscriptions{f.p}).Len() }

// All calls f for every one by rising number.
func (f FrozenSubscriptions) All(visit func(r uint64, kind string, before time.Duration, n uint32, own wire.Instant)) {
	if f.p == nil {
		return
	}
	f.p.each(func(r uint32, _ *subscription) bool {
		x := f.p.subscription(r)
		visit(x.R, x.Kind, x.Before, x.N, x.Own)
		return true
	})
}

// Each goes through them by rising number.
func (f FrozenSubscriptions) Each() iter.Seq[Subscription] {
	return func(yield func(Subscription) bool) {
		if f.p != nil {
			f.p.each(func(r uint32, _ *subscription) bool { return yield(f.p.subscription(r)) })
		}
	}
}
