package reminder

import (
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/table"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// group is what is due together: 20 bytes, the key in two halves so that nothing is lost to alignment.
type group struct {
	low, high uint32
	lead      uint32
	first     uint32 // subscription; of a free one the next free slot in its page + 1
	size      uint32 // how many; 0 = free. With unsorted set, the links are not by number
}

// unsorted is set in the size of a group into which a subscription was moved without a search for its position.
const unsorted = 1 << 31

func (g *group) key() wire.Instant { return wire.Instant(uint64(g.high)<<32 | uint64(g.low)) }
func (g *group) count() uint32     { return g.size &^ unsorted }

// groupsPage is how many groups a page has: 64 × 20 bytes = 1.25 KiB.
const groupsPage = 64

// groupTable holds groups under numbers that do not change, from 1.
type groupTable struct {
	pages []groupPage
	roomy []uint32 // pages with room, each once
}

type groupPage struct {
	records []group
	epoch   uint32
	live    uint8
	free    uint8 // first free slot + 1
	listed  bool  // in roomy
}

func (p *pending) group(id uint32) *group {
	return &p.groups.pages[(id-1)/groupsPage].records[(id-1)%groupsPage]
}

func (p *pending) editGroup(id uint32) *group {
	return &p.writableGroups((id - 1) / groupsPage).records[(id-1)%groupsPage]
}

func (p *pending) writableGroups(k uint32) *groupPage {
	g := &p.groups.pages[k]
	if g.epoch != p.epoch {
		g.epoch = p.epoch
		g.records = append(make([]group, 0, cap(g.records)), g.records...)
	}
	return g
}

// addGroup makes a group and returns its number.
func (p *pending) addGroup(x group) uint32 {
	t := &p.groups
	if len(t.roomy) == 0 {
		t.pages = append(t.pages, groupPage{epoch: p.epoch, listed: true})
		t.roomy = append(t.roomy, uint32(len(t.pages)-1))
	}
	k := t.roomy[len(t.roomy)-1]
	page := p.writableGroups(k)
	i := uint32(len(page.records))
	switch {
	case page.free > 0:
		i = uint32(page.free - 1)
		page.free = uint8(page.records[i].first)
	case len(page.records) == cap(page.records):
		page.records = append(make([]group, 0, max(1, table.GrownSize(cap(page.records), groupsPage))), page.records...)
		fallthrough
	default:
		page.records = page.records[:i+1]
	}
	page.records[i] = x
	if page.live++; page.live == groupsPage {
		page.listed = false
		t.roomy = t.roomy[:len(t.roomy)-1]
	}
	return k*groupsPage + i + 1
}

// dropGroup takes away a group that nothing belongs to any more.
func (p *pending) dropGroup(id uint32) {
	x := *p.group(id)
	p.series[p.leads.list[x.lead].series].remove(p, x.key(), x.lead)
	p.leads.leave(x.lead)
	if p.newest == id {
		p.newest = 0
	}
	if x.size&unsorted != 0 {
		p.unsorted--
	}
	k, i := (id-1)/groupsPage, (id-1)%groupsPage
	page := p.writableGroups(k)
	page.records[i] = group{first: uint32(page.free)}
	page.free = uint8(i + 1)
	if page.live--; page.live == 0 {
		page.records, page.free = nil, 0
	}
	if !page.listed {
		page.listed = true
		p.groups.roomy = append(p.groups.roomy, k)
	}
}

// groupOf is the group of such a subscription, made if there is none. The caller puts the first one in.
func (p *pending) groupOf(l lead, own wire.Instant) uint32 {
	key := l.key(own)
	if p.newest != 0 {
		if g := p.group(p.newest); g.key() == key {
			if x := p.leads.list[g.lead]; x.before == l.before && x.series == l.series {
				return p.newest
			}
		}
	}
	order := &p.series[l.series]
	n, known := p.leads.find(l)
	if known {
		at := order.seek(p, key, n)
		if id := at.group(); id != 0 {
			if g := p.group(id); g.key() == key && g.lead == n {
				p.newest = id
				return id
			}
		}
	} else {
		n = p.leads.add(l)
	}
	p.leads.list[n].groups++
	id := p.addGroup(group{low: uint32(uint64(key)), high: uint32(uint64(key) >> 32), lead: n})
	order.insert(p, id)
	p.newest = id
	return id
}

// expires reports whether a group is of kind expires.
func (p *pending) expires(id uint32) bool { return p.leads.list[p.group(id).lead].series != atOpening }

// ownOf is the own expiry of the coupons of a group, 0 if they inherit the campaign's.
func (p *pending) ownExpiryOf(id uint32) wire.Instant {
	g := p.group(id)
	x := p.leads.list[g.lead]
	switch key := g.key(); {
	case x.series != atOwn:
		return 0
	case key == wire.Never:
		return wire.Never
	default:
		return key + x.before
	}
}

// nearby is how far around a moved subscription a neighbour in its new group is searched.
const nearby = 16

// join links r, which has a record and no group, into one. Numbers rise, so it nearly always comes last. One that is moved
// lands inside: next to a neighbour where all of a campaign are moved one after the other, else at the end, and the group
// is sorted when its order is needed.
func (p *pending) join(id, r uint32) {
	g := p.editGroup(id)
	e := p.edit(r)
	e.group = id
	if g.count() == 0 {
		e.next, e.previous = r, r
		g.first, g.size = r, 1
		return
	}
	g.size++
	after, first := p.at(g.first).previous, g.first
	switch {
	case g.size&unsorted != 0 || r > after:
	case r < first:
		g.first = r
	default:
		lower, ok := p.neighbour(id, r)
		if !ok {
			g.size |= unsorted
			p.unsorted++
			break
		}
		after, first = lower, p.at(lower).next
	}
	e.previous, e.next = after, first
	p.edit(after).next = r
	p.edit(first).previous = r
}

// neighbour is the one that comes before r in a group in order, if it can be found soon.
func (p *pending) neighbour(id, r uint32) (lower uint32, ok bool) {
	for d := uint32(1); d <= nearby; d++ {
		if lower = r - d; d < r {
			if e := p.at(lower); e != nil && e.group == id {
				return lower, true
			}
		}
		if higher := r + d; higher > r {
			if e := p.at(higher); e != nil && e.group == id {
				return e.previous, true
			}
		}
	}
	return 0, false
}

// leave unlinks r from its group.
func (p *pending) leave(r uint32) {
	e := *p.at(r)
	if p.group(e.group).count() == 1 {
		p.dropGroup(e.group)
		return
	}
	g := p.editGroup(e.group)
	g.size--
	if g.first == r {
		g.first = e.next
	}
	p.edit(e.previous).next = e.next
	p.edit(e.next).previous = e.previous
}

// sort puts the links of a group in order.
func (p *pending) sort(id uint32) {
	if p.group(id).size&unsorted == 0 {
		return
	}
	g := p.editGroup(id)
	g.size &^= unsorted
	p.unsorted--
	rs := make([]uint32, 0, g.size)
	for r := g.first; len(rs) < int(g.size); r = p.at(r).next {
		rs = append(rs, r)
	}
	slices.Sort(rs)
	g.first = rs[0]
	for i, r := range rs {
		e := p.edit(r)
		e.previous, e.next = rs[(i+len(rs)-1)%len(rs)], rs[(i+1)%len(rs)]
	}
}

// series is the anchor of a group. The groups of one series have one order of due instants.
type series uint8

const (
	atOpening series = iota // kind opens: the campaign's opening
	atEnd                   // kind expires: the campaign's end
	atOwn                   // kind expires: the coupon's own expiry
	numSeries = 3
	manyLeads = 16
)

// lead is a lead time in a series. Customers choose it, so there are a few, and there may be as many as subscriptions.
type lead struct {
	before wire.Instant // microseconds
	series series
	groups uint32 // that have it; 0 = free
}

func microseconds(d time.Duration) wire.Instant { return wire.Instant(d / time.Microsecond) }

// leadOf is what a subscription's group has for a lead.
func leadOf(expires bool, before time.Duration, own wire.Instant) lead {
	l := lead{before: microseconds(before)}
	switch {
	case expires && own != 0:
		l.series = atOwn
	case expires:
		l.series = atEnd
	}
	return l
}

// key is the place of a group in the order of its series: when it is due, counted from the campaign's anchor if it
// depends on that.
func (l lead) key(own wire.Instant) wire.Instant {
	switch {
	case l.series != atOwn:
		return -l.before
	case own == wire.Never:
		return wire.Never
	}
	return own - l.before
}

// leadTable numbers the leads. What is free is used again.
type leadTable struct {
	list  []lead
	free  []uint32
	known map[lead]uint32 // groups left 0; nil while there are few
}

func (t *leadTable) find(l lead) (i uint32, ok bool) {
	if t.known != nil {
		i, ok = t.known[l]
		return i, ok
	}
	for i, x := range t.list {
		if x.groups > 0 && x.before == l.before && x.series == l.series {
			return uint32(i), true
		}
	}
	return 0, false
}

func (t *leadTable) add(l lead) uint32 {
	i := uint32(len(t.list))
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
		t.list[i] = l
	} else {
		t.list = append(t.list, l)
	}
	if t.known == nil && len(t.list) > manyLeads {
		t.known = make(map[lead]uint32)
		for i, x := range t.list {
			if x.groups > 0 {
				t.known[lead{before: x.before, series: x.series}] = uint32(i)
			}
		}
	}
	if t.known != nil {
		t.known[l] = i
	}
	return i
}

// leave is called when a group with lead i is dropped.
func (t *leadTable) leave(i uint32) {
	x := &t.list[i]
	if x.groups--; x.groups > 0 {
		return
	}
	t.free = append(t.free, i)
	if t.known != nil {
		delete(t.known, lead{before: x.before, series: x.series})
	}
}
