package domain

import (
	"slices"
	"time"
)

// Subscriptions are the pending reminders of one campaign, known by their numbers and not by customers: who asked for
// one is kept elsewhere, as a hash (the lane) or on disk (the fan-out).
//
//	reminder.set ──Set──> pending ──Fire──> told (reminders.due)
//	                         └─────Cancel──> gone (reminder.cancelled)
//
// A subscription belongs to a group: all of one kind, lead time and anchor fall due together. Moving a campaign's opening
// or end moves nothing, and what is due is found by looking at groups, in the order in which they fall due.
//
//	pages by number: 16 bytes each ──> group: 20 bytes + 4 in an order of its series
//	   group, n, next, previous            key, lead time, first, count
//	        ^
//	index of coupons (kind expires): 5 to 10 bytes each
//
// There are three series of groups. Of those that hang on the campaign, one per kind, an order by lead time is the order of
// falling due, whatever the anchor is. Those that hang on coupons' own expiries fall due at instants that never change.
// Within a group subscriptions are linked by rising number.
//
// Sixty million lie in one process, so nothing is kept per subscription that its group knows, nothing is ever copied as a
// whole, and memory follows what is pending: pages shrink and go, and with the last subscription everything does.
//
// The zero value is empty. Owner: one goroutine; what [Subscriptions.Freeze] returns may be read by another. Nothing that
// is looked at changes what is pending, but looking may put links in order, so that too is the owner's alone.
type Subscriptions struct{ p *pending }

// MaxReminder is the highest number of a subscription.
const MaxReminder = 1<<32 - 2

// Subscription is one pending reminder.
type Subscription struct {
	R      uint64
	Kind   string
	Before time.Duration
	N      uint32  // of kind expires the coupon; of kind opens what Set was given
	Own    Instant // the coupon's own expiry; 0 = the campaign's, or the kind is opens
}

// pending is what there is while there is any subscription.
type pending struct {
	live    uint32
	epoch   uint32 // rises with each copy; a page of an older one is copied before it is written
	frozen  bool   // somebody reads it: copied before it is written
	pages   []numberedPage
	groups  groupTable
	leads   leadTable
	series  [numSeries]groupOrder
	newest  uint32 // the group that was joined last: nearly always the next one's too
	astray  uint32 // groups whose links are not in order
	coupons *index // coupon → numbers of kind expires; nil while a walk finds them as fast
}

// subscription is what is kept of one: 16 bytes.
type subscription struct {
	group    uint32 // 0 = not pending
	n        uint32
	next     uint32 // in its group by number; after the last comes the first
	previous uint32
}

const (
	fewSubscriptions = 32 // walked to find those of a coupon
	fewPages         = 4
)

// Len is the number of pending subscriptions.
func (s *Subscriptions) Len() int {
	if s.p == nil {
		return 0
	}
	return int(s.p.live)
}

// Set adds subscription r, from 1 to [MaxReminder]; false, and nothing done, beyond. One that is pending already is
// replaced. before is truncated to microseconds. own is the expiry of coupon n, 0 if it inherits the campaign's; of kind
// opens it is ignored, and n is the caller's to use: it is given back by All, and finds nothing.
//
// Numbers that rise make it cheap, as the log has them: O(log groups).
func (s *Subscriptions) Set(r uint64, kind string, before time.Duration, n uint32, own Instant) bool {
	if r == 0 || r > MaxReminder {
		return false
	}
	s.Cancel(r)
	p := s.own()
	p.set(uint32(r), kind == KindExpires, before, n, own)
	p.indexCoupon(uint32(r), kind == KindExpires, n)
	return true
}

// Restore sets many into what is empty, as from a snapshot: it looks for coupons only at the end. False if one of the
// numbers is out of bounds or not higher than the one before; what is pending then is of no use.
func (s *Subscriptions) Restore(list func(yield func(Subscription) bool)) bool {
	p, last, ok := s.own(), uint64(0), s.Len() == 0
	var ofCoupons []uint32
	for x := range list {
		if ok = ok && x.R > last && x.R <= MaxReminder; !ok {
			return false
		}
		last = x.R
		expires := x.Kind == KindExpires
		p.set(uint32(x.R), expires, x.Before, x.N, x.Own)
		if expires {
			ofCoupons = append(ofCoupons, uint32(x.R))
		}
	}
	if p.live == 0 {
		s.p = nil
	} else if !p.isFew() {
		p.coupons = new(index)
		p.coupons.fill(uint32(len(ofCoupons)), func(k uint32) uint32 { return ofCoupons[k] }, p.couponHash,
			func(_, _ uint32) bool { return false })
	}
	return ok
}

func (p *pending) set(r uint32, expires bool, before time.Duration, n uint32, own Instant) {
	p.addEntry(r, n)
	p.join(p.groupOf(leadOf(expires, before, own), own), r)
	p.live++
}

// Cancel removes subscription r; false if it is not pending.
func (s *Subscriptions) Cancel(r uint64) bool {
	if s.p == nil || r > MaxReminder || s.p.at(uint32(r)) == nil {
		return false
	}
	p, e := s.own(), *s.p.at(uint32(r))
	if p.coupons != nil && p.expires(e.group) {
		p.coupons.remove(couponHash(e.n), uint32(r), p.couponHash)
	}
	p.leave(uint32(r))
	p.removeEntry(uint32(r))
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

// own returns what may be written: a copy if somebody reads it.
func (s *Subscriptions) own() *pending {
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
		s.p = &own // the rest only the owner looks at
	}
	return s.p
}

// OfCoupon returns the pending subscriptions of kind expires that hang on coupon n, rising.
func (s *Subscriptions) OfCoupon(n uint32) (rs []uint64) {
	if s.p == nil {
		return nil
	}
	s.p.ofCoupon(n, func(r uint32) bool {
		rs = append(rs, uint64(r))
		return false
	})
	slices.Sort(rs)
	return rs
}

// FindOfCoupon returns the pending subscription of kind expires with that lead time on coupon n.
func (s *Subscriptions) FindOfCoupon(n uint32, before time.Duration) (r uint64, ok bool) {
	if s.p == nil {
		return 0, false
	}
	p, wanted := s.p, microseconds(before)
	found, ok := p.ofCoupon(n, func(r uint32) bool { return p.leads.list[p.group(p.at(r).group).lead].before == wanted })
	return uint64(found), ok
}

// Move gives coupon n an expiry of its own, or with 0 takes it away: its subscriptions fall due by it from now on.
func (s *Subscriptions) Move(n uint32, own Instant) {
	for _, r := range s.OfCoupon(n) {
		p, r := s.own(), uint32(r)
		id := p.at(r).group
		lead := p.leads.list[p.group(id).lead]
		to := leadOf(true, time.Duration(lead.before)*time.Microsecond, own)
		if p.ownOf(id) == own {
			continue
		}
		p.leave(r)
		p.join(p.groupOf(to, own), r)
	}
}

// ofCoupon returns the first subscription of kind expires on coupon n for which same says yes.
func (p *pending) ofCoupon(n uint32, same func(r uint32) bool) (r uint32, ok bool) {
	if p.coupons != nil {
		return p.coupons.find(couponHash(n), func(r uint32) bool { return p.at(r).n == n && same(r) })
	}
	p.each(func(number uint32, e *subscription) bool {
		if e.n == n && p.expires(e.group) && same(number) {
			r, ok = number, true
		}
		return !ok
	})
	return r, ok
}

// indexCoupon makes r, of coupon n, findable by it.
func (p *pending) indexCoupon(r uint32, expires bool, n uint32) {
	switch {
	case p.coupons != nil:
		if expires {
			p.coupons.add(couponHash(n), r, p.couponHash)
		}
	case !p.isFew():
		p.coupons = new(index)
		p.each(func(r uint32, e *subscription) bool {
			if p.expires(e.group) {
				p.coupons.add(couponHash(e.n), r, p.couponHash)
			}
			return true
		})
	}
}

func (p *pending) isFew() bool { return p.live <= fewSubscriptions && len(p.pages) <= fewPages }

func (p *pending) couponHash(r uint32) uint64 { return couponHash(p.at(r).n) }

// couponHash spreads coupon numbers. They are the campaign's own and nobody chooses them, so it needs no key. Source: the
// finalizer of MurmurHash3, A. Appleby.
func couponHash(n uint32) uint64 {
	x := uint64(n)
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// All calls f for every pending subscription by rising number.
func (s *Subscriptions) All(f func(r uint64, kind string, before time.Duration, n uint32, own Instant)) {
	FrozenSubscriptions{s.p}.All(f)
}
