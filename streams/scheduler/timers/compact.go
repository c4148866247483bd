package timers

import (
	"fmt"
	"slices"
	"sort"
)

// compactFrom is how many unused bytes are worth a pass: 16 MiB.
const compactFrom = 16 << 20

const (
	// compactSteps is how many blocks are examined with one event, at most.
	compactSteps = 64
	// mergeMax is how many blocks are merged at once, at most.
	mergeMax = 8
)

// compacting is one pass over all blocks. Of coupons that are redeemed before they expire nine reminders of ten are cancelled,
// and the tenth would keep the block of all; and after a great firing a few blocks would keep a large file.
//
//	neighbours with few pending ones each  ──> one block
//	a block near the file's end            ──> a free slot before it; what lies after the last one is cut off
//
// Each event that is folded does a little of it, so nothing ever waits for a pass.
type compacting struct {
	left    []*Campaign // campaigns not examined; the last is next
	next    uint32      // number in that from which blocks are not examined
	beyond  uint32      // blocks from that slot on move to the front, if there is room
	highest uint32      // end of all slots that stay, in units
	cutOff  [2][]uint32 // free slots from beyond on: not to be used again
}

// sparse reports whether a pass is worth it: much has gone since the last, and half of the bytes of the blocks, or half of
// the file, is unused.
func (c *customers) sparse() bool {
	least := c.compactFrom
	if least == 0 {
		least = compactFrom
	}
	if c.known.of(c.gone) < float64(max(least, c.stored/4)) {
		return false
	}
	return float64(c.stored) > 2*c.known.of(c.live) || int(c.end)*smallBlock > 2*c.stored
}

// compact does the next piece of a pass, or begins one if it is worth it.
func (b *Timers) compact() error {
	c := &b.customers
	if c.compacting == nil {
		if !c.sparse() {
			return nil
		}
		t := &compacting{beyond: uint32(c.stored/smallBlock) + units(large)*mergeMax, left: make([]*Campaign, 0, len(b.list))}
		for _, e := range b.list {
			if e.customers != nil {
				t.left = append(t.left, e)
			}
		}
		for class := range c.free { // so that the lowest are taken first
			slices.SortFunc(c.free[class], func(x, y uint32) int { return int(int64(y) - int64(x)) })
		}
		c.compacting, c.highest, c.gone = t, 0, 0
	}
	t := c.compacting
	for range compactSteps {
		if len(t.left) == 0 {
			c.compacted()
			return nil
		}
		e, i := t.left[len(t.left)-1], 0
		if e.customers != nil {
			i = sort.Search(len(e.customers.blocks), func(i int) bool { return e.customers.blocks[i].first >= t.next })
		}
		if e.customers == nil || i == len(e.customers.blocks) {
			t.left, t.next = t.left[:len(t.left)-1], 0
			continue
		}
		t.next = e.customers.blocks[i].first + 1
		worked, err := c.compactAt(e.customers, i, e.remembers)
		if worked || err != nil {
			return err
		}
	}
	return nil
}

// compactAt puts block i of a list together with those after it, or moves it, if that is worth it.
func (c *customers) compactAt(l *customerList, i int, pending func(r uint64) bool) (worked bool, err error) {
	size, live, together := 0, 0, 0
	for _, b := range l.blocks[i:min(i+mergeMax, len(l.blocks))] {
		if c.known.of(live+int(b.live)) > largeBlock*3/4 {
			break
		}
		size, live, together = size+blockSizes[b.class], live+int(b.live), together+1
	}
	class := uint8(large)
	if c.known.of(live) < smallBlock*3/4 {
		class = small
	}
	b := &l.blocks[i]
	free := c.free[b.class]
	switch {
	case together > 0 && 2*blockSizes[class] <= size:
		return c.merge(l, i, i+together, class, pending)
	case b.slot >= c.compacting.beyond && len(free) > 0 && free[len(free)-1] < c.compacting.beyond:
		return c.merge(l, i, i+1, b.class, pending)
	}
	c.compacting.stays(b)
	return false, nil
}

func (t *compacting) stays(b *customerBlock) { t.highest = max(t.highest, b.slot+units(b.class)) }

// together writes what is pending in blocks from to before through of a list into one. Where it does not fit, because
// these customers are longer than others, all stays.
func (c *customers) merge(l *customerList, from, through int, class uint8, pending func(r uint64) bool) (worked bool, err error) {
	one := customerList{}
	for i := range l.blocks[from:through] {
		b := &l.blocks[from+i]
		data, err := c.read(b)
		if err != nil {
			return false, err
		}
		scan := customerScan{data: data, next: uint64(b.first)}
		found := 0
		for r, customer, ok := scan.one(); ok; r, customer, ok = scan.one() {
			if !pending(r) {
				continue
			}
			one.tail = append(appendHead(one.tail, &one, uint32(r), len(customer)), customer...)
			if one.live == 0 {
				one.first = uint32(r)
			}
			one.last = uint32(r)
			one.live++
			found++
		}
		if found != int(b.live) {
			return false, fmt.Errorf("%d customers in a block of %d pending reminders: %w", found, b.live, errNoCustomer)
		}
	}
	if len(one.tail) > blockSizes[class] {
		c.compacting.stays(&l.blocks[from])
		return true, nil
	}
	b, err := c.write(one.tail, one.first, one.live, class)
	if err != nil {
		return false, err
	}
	for i := range l.blocks[from:through] {
		c.live -= int(l.blocks[from+i].live)
		c.release(&l.blocks[from+i])
	}
	l.blocks = slices.Replace(l.blocks, from, through, b)
	c.compacting.next = b.first + 1
	return true, nil
}

// compacted ends a pass: small slots that lie side by side become large ones again, and the file ends where the last block
// does.
func (c *customers) compacted() {
	end := max(c.compacting.highest, c.highest)
	for class, slots := range c.compacting.cutOff {
		c.free[class] = append(c.free[class], slots...)
	}
	c.compacting = nil
	if c.views > 0 {
		return // a view may read what lies after the end; the next pass truncates
	}
	end = (end + units(large) - 1) / units(large) * units(large)
	slices.Sort(c.free[small])
	var rest []uint32
	for slots := c.free[small]; len(slots) > 0; {
		n, whole := 1, int(units(large))
		if slots[0]%units(large) == 0 && len(slots) >= whole && slots[whole-1] == slots[0]+units(large)-1 {
			n = whole
			c.free[large] = append(c.free[large], slots[0])
		} else {
			rest = append(rest, slots[0])
		}
		slots = slots[n:]
	}
	c.free[small] = rest
	for class := range c.free {
		c.free[class] = slices.Clip(slices.DeleteFunc(c.free[class], func(slot uint32) bool { return slot >= end }))
	}
	if c.end = min(c.end, end); c.file != nil {
		c.file.Truncate(int64(c.end) * smallBlock) // if that fails the file is larger than it need be
	}
}
