package domain

import (
	"math"
	"time"
)

// Anchors are the instants of a campaign that reminders hang on; zero where the campaign has none.
type Anchors struct{ Opens, Expires Instant }

// DueAt is when a subscription falls due: own is the coupon's own expiry (0 = the campaign's); Never without an anchor.
func DueAt(kind string, before time.Duration, own Instant, a Anchors) Instant {
	l := leadOf(kind == KindExpires, before, own)
	return dueFrom(l.key(own), a.offsets()[l.series])
}

// offsets is what the keys of each series count from; Never where the campaign lacks the anchor, so nothing falls due.
func (a Anchors) offsets() (at [numSeries]Instant) {
	at[atOpening], at[atEnd] = a.Opens, a.Expires
	for i := range at[:atOwn] {
		if at[i] == 0 {
			at[i] = Never
		}
	}
	return at
}

// dueFrom is when a group falls due.
func dueFrom(key, offset Instant) Instant {
	if key == Never || offset == Never {
		return Never
	}
	return offset + key
}

// keyAt is the least key that falls due at the given instant or later.
func keyAt(at, offset Instant) Instant {
	if offset > 0 && at < math.MinInt64+offset {
		return math.MinInt64
	}
	return at - offset
}

var (
	seriesOfExpires = []series{atEnd, atOwn}
	seriesOfOpens   = []series{atOpening}
)

// seriesOf are those of a kind.
func seriesOf(kind string) []series {
	if kind == KindExpires {
		return seriesOfExpires
	}
	return seriesOfOpens
}

// Next is the earliest instant at which something falls due, Never if nothing does. O(1).
func (s *Subscriptions) Next(a Anchors) Instant { return s.from(a, math.MinInt64) }

// NextAfter is the earliest instant after now at which something falls due, Never if nothing does. O(log groups).
func (s *Subscriptions) NextAfter(a Anchors, now Instant) Instant {
	if now == Never {
		return Never
	}
	return s.from(a, now+1)
}

// from is the earliest due instant at or after the given one.
func (s *Subscriptions) from(a Anchors, at Instant) Instant {
	next := Never
	if s.p == nil {
		return next
	}
	for i, offset := range a.offsets() {
		if offset == Never {
			continue
		}
		c := s.p.series[i].begin()
		if at != math.MinInt64 {
			c = s.p.series[i].seek(s.p, keyAt(at, offset), 0)
		}
		if id := c.group(); id != 0 {
			next = min(next, dueFrom(s.p.group(id).key(), offset))
		}
	}
	return next
}

// Count is how many subscriptions fall due from one instant on and before another. It looks at the groups between them.
func (s *Subscriptions) Count(a Anchors, from, to Instant) (n uint64) {
	if s.p == nil {
		return 0
	}
	for i, offset := range a.offsets() {
		if offset == Never {
			continue
		}
		for c := s.p.series[i].seek(s.p, keyAt(from, offset), 0); c.group() != 0; c.next() {
			g := s.p.group(c.group())
			if dueFrom(g.key(), offset) >= to {
				break
			}
			n += uint64(g.count())
		}
	}
	return n
}
