package domain

import (
	"slices"
	"sort"
)

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
	b.dueAt(kind, at, a, func(g reminderGroup, rs []uint64) { b.count(g, rs, throughR, &d) })
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
	b.dueAt(kind, at, a, func(g reminderGroup, rs []uint64) {
		for _, r := range rs {
			if s, ok := b.pending[r]; ok && s.group == g && r >= fromR && r <= throughR {
				fired = append(fired, Fired[C]{r, s.customer})
				b.forget(r, s)
			}
		}
		b.trim(g)
	})
	slices.SortFunc(fired, func(x, y Fired[C]) int {
		if x.R < y.R {
			return -1
		}
		return 1
	})
	return fired
}
