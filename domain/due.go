package domain

import (
	"container/heap"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// dueCounts knows how many live coupons fall at each instant. Its size follows the number of instants, never the number
// of coupons.
type dueCounts struct {
	counts map[wire.Instant]int64
	order  instants
}

// add changes the number of coupons falling at the given instant.
func (d *dueCounts) add(at wire.Instant, delta int64) {
	if d.counts == nil {
		d.counts = make(map[wire.Instant]int64)
	}
	count, known := d.counts[at]
	if !known {
		heap.Push(&d.order, at)
	}
	d.counts[at] = count + delta
}

// through removes every instant up to and including at and returns how many coupons fell.
func (d *dueCounts) through(at wire.Instant) (fell int64) {
	for len(d.order) > 0 && d.order[0] <= at {
		first := heap.Pop(&d.order).(wire.Instant)
		fell += d.counts[first]
		delete(d.counts, first)
	}
	return fell
}

// reset forgets everything.
func (d *dueCounts) reset() { *d = dueCounts{} }

// instants is a min-heap for container/heap.
type instants []wire.Instant

func (h instants) Len() int           { return len(h) }
func (h instants) Less(i, j int) bool { return h[i] < h[j] }
func (h instants) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *instants) Push(x any)        { *h = append(*h, x.(wire.Instant)) }
func (h *instants) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
