package reminder

import (
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/table"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// A subscription is found by its key: for kind expires the coupon, for kind opens its note. A few subscriptions are scanned;
// more have an index.
const (
	fewSubscriptions = 32 // walked to find those of a coupon
	fewPages         = 4
)

// Notes returns what a subscription of kind opens is found by: a hash, from the n and the lead time that it was set with. Where
// there is none, only those of coupons can be found.
type Notes interface {
	NoteHash(n uint32, before time.Duration) uint64
}

// OfCoupon returns the pending subscriptions of kind expires of coupon n, rising.
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
	found, ok := p.ofCoupon(n, func(r uint32) bool { return p.before(p.at(r)) == wanted })
	return uint64(found), ok
}

// ofCoupon returns the first subscription of kind expires on coupon n for which same returns true.
func (p *pending) ofCoupon(n uint32, same func(r uint32) bool) (r uint32, ok bool) {
	return p.find(couponHash(n), func(r uint32, e *subscription) bool { return e.n == n && p.expires(e.group) && same(r) })
}

// OfNote returns the subscription of kind opens with that lead time whose note has that hash.
func (s *Subscriptions) OfNote(hash uint64, before time.Duration, notes Notes) (r uint64, ok bool) {
	if s.p == nil {
		return 0, false
	}
	wanted := microseconds(before)
	found, ok := s.p.ofNote(hash, notes, func(is wire.Instant) bool { return is == wanted })
	return uint64(found), ok
}

// CountOfNote counts the subscriptions of kind opens whose note has that hash.
func (s *Subscriptions) CountOfNote(hash uint64, notes Notes) (n int) {
	if s.p != nil {
		s.p.ofNote(hash, notes, func(wire.Instant) bool {
			n++
			return false
		})
	}
	return n
}

// ofNote returns the first subscription of kind opens whose note has that hash and for whose lead time same returns true.
func (p *pending) ofNote(hash uint64, notes Notes, same func(before wire.Instant) bool) (r uint32, ok bool) {
	return p.find(hash, func(_ uint32, e *subscription) bool {
		if p.expires(e.group) {
			return false
		}
		before := p.before(e)
		return notes.NoteHash(e.n, time.Duration(before)*time.Microsecond) == hash && same(before)
	})
}

// before is the lead time of a subscription in microseconds.
func (p *pending) before(e *subscription) wire.Instant {
	return p.leads.list[p.group(e.group).lead].before
}

// Prefetch reads the memory where a key is searched: see [table.Index.Prefetch].
func (s *Subscriptions) Prefetch(key uint64) uint32 {
	if s.p == nil || s.p.keys == nil {
		return 0
	}
	return s.p.keys.Prefetch(key)
}

// find returns the first subscription with that key for which same returns true; same may be called for others too.
func (p *pending) find(key uint64, same func(r uint32, e *subscription) bool) (r uint32, ok bool) {
	if p.keys != nil {
		return p.keys.Find(key, func(r uint32) bool { return same(r, p.at(r)) })
	}
	p.each(func(number uint32, e *subscription) bool {
		if ok = same(number, e); ok {
			r = number
		}
		return !ok
	})
	return r, ok
}

// same reports whether two have the same key and lead time.
func (p *pending) same(a, b uint32, notes Notes) bool {
	x, y := p.at(a), p.at(b)
	expires := p.expires(x.group)
	switch {
	case expires != p.expires(y.group):
		return false
	case p.before(x) != p.before(y):
		return false
	case expires:
		return x.n == y.n
	}
	before := time.Duration(p.before(x)) * time.Microsecond
	return notes.NoteHash(x.n, before) == notes.NoteHash(y.n, before)
}

// key is the hash of the key of e, if it has one.
func (p *pending) key(e *subscription, notes Notes) (key uint64, ok bool) {
	switch {
	case p.expires(e.group):
		return couponHash(e.n), true
	case notes != nil:
		return notes.NoteHash(e.n, time.Duration(p.before(e))*time.Microsecond), true
	}
	return 0, false
}

func (p *pending) addKey(r uint32, e *subscription, notes Notes) {
	if key, ok := p.key(e, notes); ok {
		p.keys.Add(key, r, p.hashOf(notes))
	}
}

func (p *pending) removeKey(r uint32, e *subscription, notes Notes) {
	if key, ok := p.key(e, notes); ok {
		p.keys.Remove(key, r, p.hashOf(notes))
	}
}

// hashOf is how the index gets the hash of a number.
func (p *pending) hashOf(notes Notes) table.HashOf {
	return func(r uint32) uint64 {
		key, _ := p.key(p.at(r), notes)
		return key
	}
}

func (p *pending) isFew() bool { return p.live <= fewSubscriptions && len(p.pages) <= fewPages }

// couponHash spreads coupon numbers. Clients do not choose them, so it needs no key. Source: the
// finalizer of MurmurHash3, A. Appleby.
func couponHash(n uint32) uint64 {
	x := uint64(n)
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
