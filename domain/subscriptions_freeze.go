package domain

import "time"

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
func (f FrozenSubscriptions) All(visit func(r uint64, kind string, before time.Duration, n uint32, own Instant)) {
	if f.p == nil {
		return
	}
	f.p.each(func(r uint32, e *subscription) bool {
		g := f.p.group(e.group)
		x := f.p.leads.list[g.lead]
		kind := KindExpires
		if x.series == atOpening {
			kind = KindOpens
		}
		visit(uint64(r), kind, time.Duration(x.before)*time.Microsecond, e.n, f.p.ownOf(e.group))
		return true
	})
}
