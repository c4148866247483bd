package reminder

import (
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Fire removes a set and appends its numbers, rising, to dst. If it is called with the set of a reminders.due event
// ([Event.DueSet]) every fold removes the same.
func (s *Subscriptions) Fire(set wire.DueSet, a Anchors, dst []uint64) []uint64 {
	had := len(dst)
	s.FireNoted(set, a, nil, &dst)
	slices.Sort(dst[had:])
	return dst
}

// Leads returns how long before what they announce the reminders of a set are due: for all of them, or by number where that
// differs, as with coupons that were extended to the instants of others.
func (s *Subscriptions) Leads(set wire.DueSet, a Anchors) (all time.Duration, each map[uint64]time.Duration) {
	var few [4]uint32
	p := s.inOrder()
	ids := p.groupsAt(&set, a, few[:0])
	lead := func(id uint32) time.Duration {
		return time.Duration(p.leads.list[p.group(id).lead].before) * time.Microsecond
	}
	if len(ids) == 0 {
		return 0, nil
	}
	all = lead(ids[0])
	if !slices.ContainsFunc(ids, func(id uint32) bool { return lead(id) != all }) {
		return all, nil
	}
	each = make(map[uint64]time.Duration)
	for _, id := range ids {
		for r := p.higher(id, uint32(min(max(set.FromR, 1)-1, MaxReminder))); r != 0 && uint64(r) <= set.ThroughR; r = p.higher(id, r) {
			each[uint64(r)] = lead(id)
		}
	}
	return 0, each
}

// FireThrough removes all that is due at or before the given instant and appends its numbers to dst, which may be nil.
func (s *Subscriptions) FireThrough(through wire.Instant, a Anchors, dst *[]uint64) {
	if s.Next(a) > through {
		return
	}
	for _, d := range slices.Collect(s.Due(a, through)) {
		s.FireNoted(wire.DueSet{Kind: d.Kind, DueAt: d.DueAt, ThroughR: MaxReminder}, a, nil, dst)
	}
}

// FireNoted removes a set and returns how many it removed. It appends their numbers to dst unless that is nil.
func (s *Subscriptions) FireNoted(set wire.DueSet, a Anchors, notes Notes, dst *[]uint64) (fired int) {
	var few [4]uint32
	p := s.inOrder()
	ids := p.groupsAt(&set, a, few[:0])
	if len(ids) == 0 || set.FromR > MaxReminder {
		return 0
	}
	from, through := uint32(set.FromR), uint32(min(set.ThroughR, MaxReminder))
	was := p.live
	if p.isAll(ids, from, through) { // as at the opening of a campaign: no entry is removed by itself
		if dst != nil {
			p.each(func(r uint32, _ *subscription) bool {
				*dst = append(*dst, uint64(r))
				return true
			})
		}
		s.p = nil
		return int(was)
	}
	p = s.writable()
	for _, id := range ids {
		p.fire(id, from, through, notes, dst)
	}
	fired = int(was - p.live)
	s.released()
	return fired
}

// isAll reports whether all pending subscriptions are in these groups and between these numbers.
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

// fire removes from a group in order the numbers from to through, several at a time, so that
// their reads of memory overlap.
func (p *pending) fire(id uint32, from, through uint32, notes Notes, dst *[]uint64) {
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
					p.prefetched += p.keys.Prefetch(x.key)
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
				p.keys.Remove(x.key, x.r, p.hashOf(notes))
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
