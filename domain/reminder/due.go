package reminder

import (
	"iter"
	"math"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// DueReminders is what is due at one instant in one campaign: the subscriptions FromR to LastR that are pending, of that
// kind and due at that instant. The same are found again when the firing is folded.
type DueReminders struct {
	Kind          string
	DueAt         wire.Instant
	FromR, LastR  uint64
	Subscriptions uint64
	Announces     wire.Instant // the latest instant that one of them announces: of an opening, a campaign's end or a coupon's
}

// Due lists what is due at or before now, by instant, then kind (opens first): per instant and kind how many, the smallest
// number and the highest. It reads only groups that are due, and stops when its caller does. Nothing may be set,
// moved, cancelled or fired until it ends.
func (s *Subscriptions) Due(a Anchors, now wire.Instant) iter.Seq[DueReminders] {
	return func(yield func(DueReminders) bool) {
		p := s.inOrder()
		if p == nil {
			return
		}
		var cursors [numSeries]orderCursor
		offsets := a.offsets()
		for i, offset := range offsets {
			if offset != wire.Never {
				cursors[i] = p.series[i].first()
			}
		}
		due := func(i series) wire.Instant {
			if id := cursors[i].group(); id != 0 {
				return dueFrom(p.group(id).key(), offsets[i])
			}
			return wire.Never
		}
		for {
			d := DueReminders{Kind: wire.KindOpens, DueAt: due(atOpening)}
			if at := min(due(atEnd), due(atOwn)); at < d.DueAt {
				d = DueReminders{Kind: wire.KindExpires, DueAt: at}
			}
			if d.DueAt > now || d.DueAt == wire.Never {
				return
			}
			for _, i := range seriesOf(d.Kind) {
				for ; due(i) == d.DueAt; cursors[i].next() {
					p.tally(cursors[i].group(), MaxReminder, &d)
				}
			}
			if !yield(d) {
				return
			}
		}
	}
}

// inOrder returns what is pending, nil if nothing is, ready for groups to be sorted.
func (s *Subscriptions) inOrder() *pending {
	if s.p != nil && s.p.unsorted > 0 {
		return s.writable()
	}
	return s.p
}

// groupsAt appends the groups of a set, whatever its numbers, their links in order.
func (p *pending) groupsAt(set *wire.DueSet, a Anchors, ids []uint32) []uint32 {
	at := set.DueAt
	if p == nil || at == wire.Never {
		return ids
	}
	offsets := a.offsets()
	for _, i := range seriesOf(set.Kind) {
		if offsets[i] == wire.Never {
			continue
		}
		for c := p.series[i].seek(p, keyAt(at, offsets[i]), 0); c.group() != 0 && dueFrom(p.group(c.group()).key(), offsets[i]) == at; c.next() {
			if set.Passed != 0 && at+p.leads.list[p.group(c.group()).lead].before > set.Passed {
				continue
			}
			p.sort(c.group())
			ids = append(ids, c.group())
		}
	}
	return ids
}

// tally adds to d what a group has up to number through.
func (p *pending) tally(id, through uint32, d *DueReminders) {
	p.sort(id)
	g := p.group(id)
	last, n := p.at(g.first).previous, uint64(g.count())
	switch {
	case g.first > through:
		return
	case last > through:
		n = 0
		for r := g.first; r <= through; r = p.at(r).next {
			last = r
			n++
		}
	}
	if d.FromR == 0 || uint64(g.first) < d.FromR {
		d.FromR = uint64(g.first)
	}
	d.LastR = max(d.LastR, uint64(last))
	d.Subscriptions += n
	d.Announces = max(d.Announces, d.DueAt+p.leads.list[g.lead].before)
}

// At counts a set up to its ThroughR.
func (s *Subscriptions) At(set wire.DueSet, a Anchors) DueReminders {
	d := DueReminders{Kind: set.Kind, DueAt: set.DueAt}
	var few [4]uint32
	p := s.inOrder()
	for _, id := range p.groupsAt(&set, a, few[:0]) {
		p.tally(id, uint32(min(set.ThroughR, MaxReminder)), &d)
	}
	return d
}

// Chunk is the first most subscriptions of that kind that are due exactly at the given instant and whose number is higher
// than after: the next chunk to request. O(most) if after is 0, pending, or the last that was fired.
func (s *Subscriptions) Chunk(kind string, at wire.Instant, after uint64, most int, a Anchors) DueReminders {
	d := DueReminders{Kind: kind, DueAt: at}
	if after >= MaxReminder {
		return d
	}
	var few [4]uint32
	p := s.inOrder()
	ids := p.groupsAt(&wire.DueSet{Kind: kind, DueAt: at}, a, few[:0])
	next := make([]uint32, 0, len(few)) // of each group, 0 = no more
	for _, id := range ids {
		next = append(next, p.higher(id, uint32(after)))
	}
	for ; d.Subscriptions < uint64(max(most, 0)); d.Subscriptions++ {
		best := -1
		for i, r := range next {
			if r != 0 && (best < 0 || r < next[best]) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		r := next[best]
		if d.Subscriptions == 0 {
			d.FromR = uint64(r)
		}
		d.LastR = uint64(r)
		if next[best] = p.at(r).next; next[best] <= r {
			next[best] = 0
		}
	}
	return d
}

// higher is the first of a group in order whose number is higher than after, 0 if there is none.
func (p *pending) higher(id, after uint32) uint32 {
	g := p.group(id)
	r := g.first
	if r > after {
		return r
	}
	if e := p.at(after); e != nil && e.group == id {
		r = after
	}
	for r <= after {
		next := p.at(r).next
		if next <= r {
			return 0
		}
		r = next
	}
	return r
}

// Anchors are the instants of a campaign that reminders depend on; zero where the campaign has none.
type Anchors struct{ Opens, Expires wire.Instant }

// DueAt is when a subscription is due: own is the coupon's own expiry (0 = the campaign's); Never without an anchor.
func DueAt(kind string, before time.Duration, own wire.Instant, a Anchors) wire.Instant {
	l := leadOf(kind == wire.KindExpires, before, own)
	return dueFrom(l.key(own), a.offsets()[l.series])
}

// offsets is what the keys of each series count from; Never where the campaign lacks the anchor, so nothing is due.
func (a Anchors) offsets() (at [numSeries]wire.Instant) {
	at[atOpening], at[atEnd] = a.Opens, a.Expires
	for i := range at[:atOwn] {
		if at[i] == 0 {
			at[i] = wire.Never
		}
	}
	return at
}

// dueFrom is when a group is due.
func dueFrom(key, offset wire.Instant) wire.Instant {
	if key == wire.Never || offset == wire.Never {
		return wire.Never
	}
	return offset + key
}

// keyAt is the least key that is due at the given instant or later.
func keyAt(at, offset wire.Instant) wire.Instant {
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
	if kind == wire.KindExpires {
		return seriesOfExpires
	}
	return seriesOfOpens
}

// Next is the earliest instant at which something is due, Never if nothing does. O(1).
func (s *Subscriptions) Next(a Anchors) wire.Instant { return s.from(a, math.MinInt64) }

// NextAfter is the earliest instant after now at which something is due, Never if nothing does. O(log groups).
func (s *Subscriptions) NextAfter(a Anchors, now wire.Instant) wire.Instant {
	if now == wire.Never {
		return wire.Never
	}
	return s.from(a, now+1)
}

// from is the earliest due instant at or after the given one.
func (s *Subscriptions) from(a Anchors, at wire.Instant) wire.Instant {
	next := wire.Never
	if s.p == nil {
		return next
	}
	for i, offset := range a.offsets() {
		if offset == wire.Never {
			continue
		}
		c := s.p.series[i].first()
		if at != math.MinInt64 {
			c = s.p.series[i].seek(s.p, keyAt(at, offset), 0)
		}
		if id := c.group(); id != 0 {
			next = min(next, dueFrom(s.p.group(id).key(), offset))
		}
	}
	return next
}

// Count is how many subscriptions are due from one instant on and before another. It reads the groups between them.
func (s *Subscriptions) Count(a Anchors, from, to wire.Instant) (n uint64) {
	if s.p == nil {
		return 0
	}
	for i, offset := range a.offsets() {
		if offset == wire.Never {
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
