package domain

import (
	"iter"
	"maps"
	"slices"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// oddPage is how many coupons, with an odd expiry or without, share a page.
const oddPage = 1024

// oddExpiries are the expiries that do not fit a coupon's record, by coupon. They lie in pages, so that freezing them costs a
// pointer per page, and a write after that copies one page. The zero value is empty.
type oddExpiries struct {
	pages map[uint32]*oddExpiryPage // by n / oddPage
	count int
	epoch uint32 // raised by freeze: pages of an older one are read by somebody
}

type oddExpiryPage struct {
	epoch uint32
	at    map[uint32]wire.Instant // by n
}

func (o *oddExpiries) len() int { return o.count }

// get is 0 where there is none.
func (o *oddExpiries) get(n uint32) wire.Instant {
	if page := o.pages[n/oddPage]; page != nil {
		return page.at[n]
	}
	return 0
}

func (o *oddExpiries) set(n uint32, at wire.Instant) {
	page := o.writable(n)
	if page == nil {
		if o.pages == nil {
			o.pages = make(map[uint32]*oddExpiryPage)
		}
		page = &oddExpiryPage{epoch: o.epoch, at: make(map[uint32]wire.Instant)}
		o.pages[n/oddPage] = page
	}
	had := len(page.at)
	page.at[n] = at
	o.count += len(page.at) - had
}

func (o *oddExpiries) delete(n uint32) {
	page := o.writable(n)
	if page == nil {
		return
	}
	had := len(page.at)
	delete(page.at, n)
	o.count += len(page.at) - had
	if len(page.at) == 0 {
		delete(o.pages, n/oddPage)
	}
}

// writable is the page of coupon n, nil if there is none; a copy of it takes its place if it was frozen.
func (o *oddExpiries) writable(n uint32) *oddExpiryPage {
	page := o.pages[n/oddPage]
	if page != nil && page.epoch != o.epoch {
		page = &oddExpiryPage{epoch: o.epoch, at: maps.Clone(page.at)}
		o.pages[n/oddPage] = page
	}
	return page
}

// freeze returns them as they are now, for another goroutine to read.
func (o *oddExpiries) freeze() oddExpiries {
	frozen := oddExpiries{pages: maps.Clone(o.pages), count: o.count}
	o.epoch++
	return frozen
}

// sorted goes through them in the order of coupons.
func (o *oddExpiries) sorted() iter.Seq2[uint32, wire.Instant] {
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
