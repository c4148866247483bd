package domain

import (
	"iter"
	"time"
)

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
