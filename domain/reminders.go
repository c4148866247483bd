package domain

import (
	"math"
	"slices"
	"time"
)

// Reminders are the pending subscriptions of one campaign. Three folders of the event log keep one each: the lane (to
// decide), the scheduler (to know when to ask) and the fan-out (to know whom to tell); C is how they know a customer.
//
//	reminder.set ──Set──> pending ──Fire──> told (reminders.due)
//	                         └─────Cancel──> gone (reminder.cancelled)
//
// A subscription belongs to a group: all of one kind, lead time and anchor fall due together, so moving a campaign's
// opening or end moves no entry, and what is due is found by looking at groups, never at subscriptions. What is due at one
// instant is found without looking at the other groups: where coupons have expiries of their own, there may be one for
// every minute of a month.
type Reminders[C comparable] struct {
	pending  map[uint64]reminder[C]
	groups   map[reminderGroup][]uint64  // subscription numbers, rising; may name ones that are gone
	owns     map[Instant][]reminderGroup // the groups with an anchor of their own, by when they fall due
	byKey    map[reminderKey[C]]uint64
	byCoupon map[uint32][]uint64
}

type reminder[C comparable] struct {
	customer C
	n        uint32
	group    reminderGroup
}

// reminderGroup is what decides when a subscription falls due: before its anchor, which is the coupon's own expiry,
// else the campaign's opening or end.
type reminderGroup struct {
	expires bool
	before  time.Duration
	own     Instant
}

type reminderKey[C comparable] struct {
	customer C
	expires  bool
	before   time.Duration
	n        uint32
}

// Anchors are the instants of a campaign that reminders hang on; zero where the campaign has none.
type Anchors struct{ Opens, Expires Instant }

// due is when a group falls due, Never without an anchor.
func (g reminderGroup) due(a Anchors) Instant {
	anchor := a.Opens
	if g.expires {
		anchor = a.Expires
		if g.own != 0 {
			anchor = g.own
		}
	}
	if anchor == 0 || anchor == Never {
		return Never
	}
	return anchor - Instant(g.before/time.Microsecond)
}

// DueAt is when a subscription falls due: own is the coupon's own expiry (0 = the campaign's); Never without an anchor.
func DueAt(kind string, before time.Duration, own Instant, a Anchors) Instant {
	return reminderGroup{kind == KindExpires, before, own}.due(a)
}

// Len is the number of pending subscriptions.
func (b *Reminders[C]) Len() int { return len(b.pending) }

// Set adds subscription r. own is the coupon's own expiry, 0 if it inherits the campaign's or the kind is opens.
func (b *Reminders[C]) Set(r uint64, customer C, kind string, before time.Duration, n uint32, own Instant) {
	if b.pending == nil {
		b.pending = make(map[uint64]reminder[C])
		b.groups = make(map[reminderGroup][]uint64)
		b.owns = make(map[Instant][]reminderGroup)
		b.byKey = make(map[reminderKey[C]]uint64)
		b.byCoupon = make(map[uint32][]uint64)
	}
	before = before.Truncate(time.Microsecond)
	g := reminderGroup{kind == KindExpires, before, own}
	if !g.expires {
		g.own = 0
	}
	b.pending[r] = reminder[C]{customer, n, g}
	b.byKey[reminderKey[C]{customer, g.expires, before, n}] = r
	b.join(g, r)
	if n != 0 {
		b.byCoupon[n] = append(b.byCoupon[n], r)
	}
}

// Find returns the pending subscription of that customer, kind, lead time and coupon.
func (b *Reminders[C]) Find(customer C, kind string, before time.Duration, n uint32) (r uint64, ok bool) {
	r, ok = b.byKey[reminderKey[C]{customer, kind == KindExpires, before.Truncate(time.Microsecond), n}]
	return r, ok
}

// join puts r into a group.
func (b *Reminders[C]) join(g reminderGroup, r uint64) {
	rs, known := b.groups[g]
	if !known && g.own != 0 {
		at := g.due(Anchors{})
		b.owns[at] = append(b.owns[at], g)
	}
	b.groups[g] = insert(rs, r)
}

// dueAt calls f for each group of that kind that falls due exactly at the given instant.
func (b *Reminders[C]) dueAt(kind string, at Instant, a Anchors, f func(g reminderGroup, rs []uint64)) {
	// Of those that hang on the campaign, the lead time says which: there is one.
	g := reminderGroup{expires: kind == KindExpires}
	anchor := a.Opens
	if g.expires {
		anchor = a.Expires
	}
	if anchor != 0 && anchor != Never {
		g.before = time.Duration(anchor-at) * time.Microsecond
		if rs, ok := b.groups[g]; ok && g.due(a) == at {
			f(g, rs)
		}
	}
	// Not over owns itself: f may take groups out of it.
	for _, g := range slices.Clone(b.owns[at]) {
		if g.expires == (kind == KindExpires) && g.due(a) == at {
			f(g, b.groups[g])
		}
	}
}

// OfCoupon returns the pending subscriptions that hang on coupon n, rising.
func (b *Reminders[C]) OfCoupon(n uint32) []uint64 { return b.byCoupon[n] }

// Cancel removes subscription r; false if it is not pending.
func (b *Reminders[C]) Cancel(r uint64) bool {
	s, ok := b.pending[r]
	if ok {
		b.forget(r, s)
		b.trim(s.group)
	}
	return ok
}

// forget removes r everywhere but from its group's list, where it is skipped until trim.
func (b *Reminders[C]) forget(r uint64, s reminder[C]) {
	delete(b.pending, r)
	delete(b.byKey, reminderKey[C]{s.customer, s.group.expires, s.group.before, s.n})
	if s.n == 0 {
		return
	}
	if rest := slices.DeleteFunc(b.byCoupon[s.n], func(x uint64) bool { return x == r }); len(rest) > 0 {
		b.byCoupon[s.n] = rest
	} else {
		delete(b.byCoupon, s.n)
	}
}

// trim drops a group's ends that are gone, and the group when nothing is left.
func (b *Reminders[C]) trim(g reminderGroup) {
	rs := b.groups[g]
	for len(rs) > 0 && !b.in(g, rs[0]) {
		rs = rs[1:]
	}
	for len(rs) > 0 && !b.in(g, rs[len(rs)-1]) {
		rs = rs[:len(rs)-1]
	}
	if len(rs) == 0 {
		delete(b.groups, g)
		if g.own != 0 {
			at := g.due(Anchors{})
			if left := slices.DeleteFunc(b.owns[at], func(x reminderGroup) bool { return x == g }); len(left) > 0 {
				b.owns[at] = left
			} else {
				delete(b.owns, at)
			}
		}
		return
	}
	b.groups[g] = rs
}

func (b *Reminders[C]) in(g reminderGroup, r uint64) bool {
	s, ok := b.pending[r]
	return ok && s.group == g
}

// Move gives coupon n an expiry of its own: its subscriptions fall due by it from now on.
func (b *Reminders[C]) Move(n uint32, own Instant) {
	for _, r := range b.byCoupon[n] {
		s := b.pending[r]
		if !s.group.expires || s.group.own == own {
			continue
		}
		old := s.group
		s.group.own = own
		b.pending[r] = s
		b.join(s.group, r)
		b.trim(old)
	}
}

// Next is the earliest instant at which something falls due, Never if nothing does.
func (b *Reminders[C]) Next(a Anchors) Instant { return b.NextAfter(a, math.MinInt64) }

// NextAfter is the earliest instant after now at which something falls due, Never if nothing does.
func (b *Reminders[C]) NextAfter(a Anchors, now Instant) Instant {
	next := Never
	for g := range b.groups {
		if at := g.due(a); at > now {
			next = min(next, at)
		}
	}
	return next
}

// All calls f for every pending subscription, in no order: for snapshots.
func (b *Reminders[C]) All(f func(r uint64, customer C, kind string, before time.Duration, n uint32, own Instant)) {
	for r, s := range b.pending {
		kind := KindOpens
		if s.group.expires {
			kind = KindExpires
		}
		f(r, s.customer, kind, s.group.before, s.n, s.group.own)
	}
}

// insert keeps the list rising. Numbers rise, so this nearly always appends; only a moved one lands inside.
func insert(rs []uint64, r uint64) []uint64 {
	if len(rs) == 0 || rs[len(rs)-1] < r {
		return append(rs, r)
	}
	i, found := slices.BinarySearch(rs, r)
	if found {
		return rs
	}
	return slices.Insert(rs, i, r)
}
