package domain

import (
	"container/heap"
	"iter"
	"maps"
	"slices"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// irregularPageSize is how many coupons, with an irregular expiry or without, share a page.
const irregularPageSize = 1024

// irregularExpiries are the expiries that do not fit a coupon's record, by coupon. They are in pages, so that freezing them costs a
// pointer per page, and a write after that copies one page. The zero value is empty.
type irregularExpiries struct {
	pages map[uint32]*irregularPage // by n / irregularPageSize
	count int
	epoch uint32 // incremented by freeze: pages of an older one are read by a snapshot
}

type irregularPage struct {
	epoch uint32
	at    map[uint32]wire.Instant // by n
}

func (o *irregularExpiries) len() int { return o.count }

// get is 0 where there is none.
func (o *irregularExpiries) get(n uint32) wire.Instant {
	if page := o.pages[n/irregularPageSize]; page != nil {
		return page.at[n]
	}
	return 0
}

func (o *irregularExpiries) set(n uint32, at wire.Instant) {
	page := o.writable(n)
	if page == nil {
		if o.pages == nil {
			o.pages = make(map[uint32]*irregularPage)
		}
		page = &irregularPage{epoch: o.epoch, at: make(map[uint32]wire.Instant)}
		o.pages[n/irregularPageSize] = page
	}
	had := len(page.at)
	page.at[n] = at
	o.count += len(page.at) - had
}

func (o *irregularExpiries) delete(n uint32) {
	page := o.writable(n)
	if page == nil {
		return
	}
	had := len(page.at)
	delete(page.at, n)
	o.count += len(page.at) - had
	if len(page.at) == 0 {
		delete(o.pages, n/irregularPageSize)
	}
}

// writable is the page of coupon n, nil if there is none; a copy of it takes its place if it was frozen.
func (o *irregularExpiries) writable(n uint32) *irregularPage {
	page := o.pages[n/irregularPageSize]
	if page != nil && page.epoch != o.epoch {
		page = &irregularPage{epoch: o.epoch, at: maps.Clone(page.at)}
		o.pages[n/irregularPageSize] = page
	}
	return page
}

// freeze returns them as they are now, for another goroutine to read.
func (o *irregularExpiries) freeze() irregularExpiries {
	frozen := irregularExpiries{pages: maps.Clone(o.pages), count: o.count}
	o.epoch++
	return frozen
}

// sorted goes through them in the order of coupons.
func (o *irregularExpiries) sorted() iter.Seq2[uint32, wire.Instant] {
	return func(yield func(uint32, wire.Instant) bool) {
		for _, p := range slices.Sorted(maps.Keys(o.pages)) {
			page := o.pages[p].at
			for _, n := range slices.Sorted(maps.Keys(page)) {
				if !yield(n, page[n]) {
					return
				}
			}
		}
	}
}

// dueCounts counts the live coupons that expire at each instant. Its size follows the number of instants, not of coupons.
type dueCounts struct {
	counts map[wire.Instant]int64
	order  instants
}

// add changes the number of coupons expiring at the given instant.
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

// through removes every instant up to and including at and returns how many coupons expired.
func (d *dueCounts) through(at wire.Instant) (expired int64) {
	for len(d.order) > 0 && d.order[0] <= at {
		first := heap.Pop(&d.order).(wire.Instant)
		expired += d.counts[first]
		delete(d.counts, first)
	}
	return expired
}

// reset empties it.
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
