package domain

import (
	"iter"
	"math"
	"slices"
)

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

// Due lists what is due at or before now, by instant, then kind (opens first): per instant and kind how many, the smallest
// number and the highest. It looks only at groups that are due, and no further than it is asked to go. Nothing may be set,
// moved, cancelled or fired until it ends.
func (s *Subscriptions) Due(a Anchors, now Instant) iter.Seq[DueReminders] {
	return func(yield func(DueReminders) bool) {
		p := s.inOrder()
		if p == nil {
			return
		}
		var cursors [numSeries]orderCursor
		offsets := a.offsets()
		for i, offset := range offsets {
			if offset != Never {
				cursors[i] = p.series[i].begin()
			}
		}
		due := func(i series) Instant {
			if id := cursors[i].group(); id != 0 {
				return dueFrom(p.group(id).key(), offsets[i])
			}
			return Never
		}
		for {
			d := DueReminders{Kind: KindOpens, DueAt: due(atOpening)}
			if at := min(due(atEnd), due(atOwn)); at < d.DueAt {
				d = DueReminders{Kind: KindExpires, DueAt: at}
			}
			if d.DueAt > now || d.DueAt == Never {
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

// inOrder is what there is, nil if nothing is, ready to have links put in order.
func (s *Subscriptions) inOrder() *pending {
	if s.p != nil && s.p.astray > 0 {
		return s.own()
	}
	return s.p
}

// groupsAt appends the groups of that kind that fall due exactly at the given instant, their links in order.
func (p *pending) groupsAt(kind string, at Instant, a Anchors, ids []uint32) []uint32 {
	if p == nil || at == Never {
		return ids
	}
	offsets := a.offsets()
	for _, i := range seriesOf(kind) {
		if offsets[i] == Never {
			continue
		}
		for c := p.series[i].seek(p, keyAt(at, offsets[i]), 0); c.group() != 0 && dueFrom(p.group(c.group()).key(), offsets[i]) == at; c.next() {
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
}

// At counts what of that kind is due exactly at the given instant, subscriptions up to throughR.
func (s *Subscriptions) At(kind string, at Instant, throughR uint64, a Anchors) DueReminders {
	d := DueReminders{Kind: kind, DueAt: at}
	var few [4]uint32
	p := s.inOrder()
	for _, id := range p.groupsAt(kind, at, a, few[:0]) {
		p.tally(id, uint32(min(throughR, MaxReminder)), &d)
	}
	return d
}

// Chunk is the first most subscriptions of that kind that are due exactly at the given instant and whose number is higher
// than after: what to ask for next. O(most) if after is 0, pending, or the last that was fired.
func (s *Subscriptions) Chunk(kind string, at Instant, after uint64, most int, a Anchors) DueReminders {
	d := DueReminders{Kind: kind, DueAt: at}
	if after >= MaxReminder {
		return d
	}
	var few [4]uint32
	p := s.inOrder()
	ids := p.groupsAt(kind, at, a, few[:0])
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

// Fire removes what of that kind is due at the given instant, subscriptions fromR to throughR, and appends their numbers,
// rising, to dst. Calling it with what a reminders.due event says makes every folder remove the same.
func (s *Subscriptions) Fire(kind string, at Instant, fromR, throughR uint64, a Anchors, dst []uint64) []uint64 {
	begin := len(dst)
	s.fire(kind, at, fromR, throughR, a, nil, &dst)
	slices.Sort(dst[begin:])
	return dst
}

// fire returns how many it has removed. Without dst nobody asks which.
func (s *Subscriptions) fire(kind string, at Instant, fromR, throughR uint64, a Anchors, notes noteHasher, dst *[]uint64) (fired int) {
	var few [4]uint32
	p := s.inOrder()
	ids := p.groupsAt(kind, at, a, few[:0])
	if len(ids) == 0 || fromR > MaxReminder {
		return 0
	}
	from, through := uint32(fromR), uint32(min(throughR, MaxReminder))
	was := p.live
	if p.isAll(ids, from, through) { // as at the opening of a campaign: nothing is taken out one by one
		if dst != nil {
			p.each(func(r uint32, _ *subscription) bool {
				*dst = append(*dst, uint64(r))
				return true
			})
		}
		s.p = nil
		return int(was)
	}
	p = s.own()
	for _, id := range ids {
		p.fire(id, from, through, notes, dst)
	}
	fired = int(was - p.live)
	s.released()
	return fired
}

// isAll tells whether everything that is pending lies in these groups and between these numbers.
func (p *pending) isAll(ids []uint32, from, through uint32) bool {
	all := uint32(0)
	for _, id := range ids {
		g := p.group(id)
		if g.first < from || p.at(g.first).previous > through {
			return false
		}
		all += g.count()
	}
	return all == p.live
}

// fire removes from a group in order the numbers from to through, several at a time: what they need of memory comes at
// once then.
func (p *pending) fire(id uint32, from, through uint32, notes noteHasher, dst *[]uint64) {
	g := *p.group(id)
	r := g.first
	if r < from {
		r = p.higher(id, from-1)
	}
	if r == 0 || r > through {
		return
	}
	type one struct {
		r   uint32
		key uint64
		ok  bool
	}
	var some [16]one
	first, previous, fired := r, p.at(r).previous, uint32(0)
	for more := true; more; {
		n := 0
		for n < len(some) && more {
			e := p.at(r)
			x := one{r: r}
			if p.keys != nil {
				if x.key, x.ok = p.key(e, notes); x.ok {
					p.touched += p.keys.touch(x.key)
				}
			}
			some[n] = x
			n++
			fired++
			r = e.next
			more = fired < g.count() && r > first && r <= through
		}
		for i := range some[:n] {
			x := &some[i]
			if dst != nil {
				*dst = append(*dst, uint64(x.r))
			}
			if x.ok {
				p.keys.remove(x.key, x.r, p.hashOf(notes))
			}
			p.removeEntry(x.r)
		}
	}
	p.live -= fired
	if fired == g.count() {
		p.dropGroup(id)
		return
	}
	left := p.editGroup(id)
	left.size -= fired
	if first == g.first {
		left.first = r
	}
	p.edit(previous).next = r
	p.edit(r).previous = previous
}
