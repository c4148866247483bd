package domain

import (
	"math"
	"slices"
	"sort"
	"time"
)

// Reminders are the pending subscriptions of one campaign. Three folders of the event log keep one each: the lane (to
// decide), the scheduler (to know when to ask) and the fan-out (to know whom to tell); C is how they know a customer.
//
//	reminder.set ──Set──> pending ──Fire──> told (reminders.due)
//	                         └─────Cancel──> gone (reminder.cancelled)
//
// A subscription belongs to a group: all of one kind, lead time and anchor fall due together, so moving a campaign's
// opening or end moves no entry, and what is due is found by looking at groups, never at subscriptions.
type Reminders[C comparable] struct {
	pending  map[uint64]reminder[C]
	groups   map[reminderGroup][]uint64 // subscription numbers, rising; may name ones that are gone
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
		b.byKey = make(map[reminderKey[C]]uint64)
		b.byCoupon = make(map[uint32][]uint64)
	}
	g := reminderGroup{kind == KindExpires, before, own}
	b.pending[r] = reminder[C]{customer, n, g}
	b.byKey[reminderKey[C]{customer, g.expires, before, n}] = r
	b.groups[g] = insert(b.groups[g], r)
	if n != 0 {
		b.byCoupon[n] = append(b.byCoupon[n], r)
	}
}

// Find returns the pending subscription of that customer, kind, lead time and coupon.
func (b *Reminders[C]) Find(customer C, kind string, before time.Duration, n uint32) (r uint64, ok bool) {
	r, ok = b.byKey[reminderKey[C]{customer, kind == KindExpires, before, n}]
	return r, ok
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
		b.groups[s.group] = insert(b.groups[s.group], r)
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

// DueReminders is what falls due at one instant in one campaign: the subscriptions FromR to ThroughR that are pending,
// of that kind and due at that instant. The same three are looked up again when the firing is folded.
type DueReminders struct {
	Kind          string
	DueAt         Instant
	FromR, LastR  uint64
	Subscriptions uint64
}

// Due lists what is due at or before now, by instant, then kind.
func (b *Reminders[C]) Due(a Anchors, now Instant) []DueReminders {
	found := make(map[Instant]*[2]DueReminders)
	for g, rs := range b.groups {
		at := g.due(a)
		if at > now {
			continue
		}
		pair := found[at]
		if pair == nil {
			pair = new([2]DueReminders)
			found[at] = pair
		}
		d := &pair[0]
		d.Kind = KindOpens
		if g.expires {
			d = &pair[1]
			d.Kind = KindExpires
		}
		d.DueAt = at
		b.count(g, rs, 1<<63, d)
	}
	var list []DueReminders
	for _, pair := range found {
		for _, d := range pair {
			if d.Subscriptions > 0 {
				list = append(list, d)
			}
		}
	}
	sort.Slice(list, func(i, j int) bool {
		if list[i].DueAt != list[j].DueAt {
			return list[i].DueAt < list[j].DueAt
		}
		return list[i].Kind > list[j].Kind
	})
	return list
}

// At counts what of that kind is due exactly at the given instant, subscriptions up to throughR.
func (b *Reminders[C]) At(kind string, at Instant, throughR uint64, a Anchors) DueReminders {
	d := DueReminders{Kind: kind, DueAt: at}
	for g, rs := range b.groups {
		if g.expires == (kind == KindExpires) && g.due(a) == at {
			b.count(g, rs, throughR, &d)
		}
	}
	return d
}

func (b *Reminders[C]) count(g reminderGroup, rs []uint64, throughR uint64, d *DueReminders) {
	for _, r := range rs {
		if r > throughR || !b.in(g, r) {
			continue
		}
		d.Subscriptions++
		if d.FromR == 0 || r < d.FromR {
			d.FromR = r
		}
		d.LastR = max(d.LastR, r)
	}
}

// Fired is one subscription that fell due.
type Fired[C comparable] struct {
	R        uint64
	Customer C
}

// Fire removes what of that kind is due at the given instant, subscriptions fromR to throughR, and returns it by rising
// number. Calling it with what a reminders.due event says makes every folder remove the same.
func (b *Reminders[C]) Fire(kind string, at Instant, fromR, throughR uint64, a Anchors) []Fired[C] {
	var fired []Fired[C]
	for g, rs := range b.groups {
		if g.expires != (kind == KindExpires) || g.due(a) != at {
			continue
		}
		for _, r := range rs {
			if s, ok := b.pending[r]; ok && s.group == g && r >= fromR && r <= throughR {
				fired = append(fired, Fired[C]{r, s.customer})
				b.forget(r, s)
			}
		}
		b.trim(g)
	}
	slices.SortFunc(fired, func(x, y Fired[C]) int {
		if x.R < y.R {
			return -1
		}
		return 1
	})
	return fired
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
