package reminder

import (
	"math/bits"
	"slices"
	"sort"

	"github.com/seed-4a2410e3/scrip/domain/table"
)

// pageNumbers is how many numbers a page is for: 256 × 16 bytes = 4 KiB.
const pageNumbers = 256

// numberedPage is a page that has something pending, in the list of them by rising number.
type numberedPage struct {
	number uint32
	*subscriptionPage
}

// subscriptionPage holds the subscriptions number·256 to number·256 + 255 as far as they are pending: those that have a
// slot are adjacent. When half of the slots are empty, the rest is packed, so that a few that are pending for
// a year among many that were not do not keep the memory of all.
type subscriptionPage struct {
	slots   [pageNumbers / 64]uint64 // which numbers have a slot
	records []subscription           // group 0 = empty
	epoch   uint32
	live    uint16
}

// slot returns the index of a number's record in the page, or where it would be inserted.
func (g *subscriptionPage) slot(r uint32) (i int, has bool) {
	r %= pageNumbers
	word, bit := r/64, uint64(1)<<(r%64)
	has = g.slots[word]&bit != 0
	if len(g.records) == pageNumbers {
		return int(r), has
	}
	for _, w := range g.slots[:word] {
		i += bits.OnesCount64(w)
	}
	return i + bits.OnesCount64(g.slots[word]&(bit-1)), has
}

// pageOf is where the page of number r is or would be in the list. As long as no page is missing it is found at once.
func (p *pending) pageOf(r uint32) (k int, ok bool) {
	number, n := r/pageNumbers, len(p.pages)
	if n == 0 || number < p.pages[0].number {
		return 0, false
	}
	if last := p.pages[n-1].number; number >= last {
		if number == last {
			return n - 1, true
		}
		return n, false
	}
	most := int(min(number-p.pages[0].number, uint32(n-1)))
	if p.pages[most].number == number {
		return most, true
	}
	k = sort.Search(most, func(k int) bool { return p.pages[k].number >= number })
	return k, p.pages[k].number == number
}

// at returns subscription r for reading, nil if it is not pending.
func (p *pending) at(r uint32) *subscription {
	k, ok := p.pageOf(r)
	if !ok {
		return nil
	}
	i, has := p.pages[k].slot(r)
	if !has || p.pages[k].records[i].group == 0 {
		return nil
	}
	return &p.pages[k].records[i]
}

// edit returns subscription r, which is pending, to be written. It is good until the next one is added or removed.
func (p *pending) edit(r uint32) *subscription {
	k, _ := p.pageOf(r)
	g := p.writablePage(k)
	i, _ := g.slot(r)
	return &g.records[i]
}

// writablePage makes a page writable: copied first if a frozen copy has it.
func (p *pending) writablePage(k int) *subscriptionPage {
	g := p.pages[k].subscriptionPage
	if g.epoch != p.epoch {
		own := *g
		own.epoch = p.epoch
		own.records = append(make([]subscription, 0, cap(g.records)), g.records...)
		g = &own
		p.pages[k].subscriptionPage = g
	}
	return g
}

// addEntry gives number r, which is not pending, a record. It is not seen before it has a group.
func (p *pending) addEntry(r, n uint32) {
	k, ok := p.pageOf(r)
	if !ok {
		p.pages = slices.Insert(p.pages, k, numberedPage{r / pageNumbers, &subscriptionPage{epoch: p.epoch}})
	}
	g := p.writablePage(k)
	i, has := g.slot(r)
	if !has {
		if len(g.records) == cap(g.records) {
			g.records = append(make([]subscription, 0, max(1, table.GrownSize(cap(g.records), pageNumbers))), g.records...)
		}
		g.records = slices.Insert(g.records, i, subscription{})
		g.slots[r%pageNumbers/64] |= 1 << (r % 64)
	}
	g.records[i] = subscription{n: n}
	g.live++
}

// removeEntry takes the record of r, which is pending, away.
func (p *pending) removeEntry(r uint32) {
	k, _ := p.pageOf(r)
	g := p.writablePage(k)
	i, _ := g.slot(r)
	g.records[i] = subscription{}
	g.live--
	switch {
	case g.live > 0:
		if int(g.live)*2 <= len(g.records) {
			g.repack()
		}
	case k == 0: // the usual one: numbers rise
		p.pages[0] = numberedPage{}
		p.pages = p.pages[1:]
	default:
		p.pages = slices.Delete(p.pages, k, k+1)
	}
}

// repack moves together what is pending.
func (g *subscriptionPage) repack() {
	records, i := make([]subscription, 0, g.live), 0
	for word, slots := range g.slots {
		for rest := slots; rest != 0; rest &= rest - 1 {
			if g.records[i].group != 0 {
				records = append(records, g.records[i])
			} else {
				g.slots[word] &^= rest & -rest
			}
			i++
		}
	}
	g.records = records
}

// each calls f for what is pending, by rising number, until it returns false.
func (p *pending) each(f func(r uint32, e *subscription) bool) {
	for _, g := range p.pages {
		i := 0
		for word, rest := range g.slots {
			for ; rest != 0; rest &= rest - 1 {
				if e := &g.records[i]; e.group != 0 && !f(g.number*pageNumbers+uint32(word*64+bits.TrailingZeros64(rest)), e) {
					return
				}
				i++
			}
		}
	}
}
