package scheduler

import (
	"io"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
)

// frozenBook is a book as it was at one moment, to be written while its owner goes on. What is large is shared with the
// owner, who copies what it changes: pages of subscriptions, blocks of customers. The rest is taken campaign by campaign,
// a little at a time; one that an event is about to change is taken before it.
type frozenBook struct {
	book      *book
	left      []*entry // not looked at
	campaigns []frozenEntry
	buf       *[largeBlock]byte // customers are read through
}

type frozenEntry struct {
	name           string
	priority       priority
	lateAfter      time.Duration
	anchors        domain.Anchors
	expiredThrough domain.Instant
	own            ownExpiries
	seconds        []uint32
	odd            []domain.Instant
	pending        domain.FrozenSubscriptions
	parked         domain.FrozenSubscriptions
	who            *frozenCustomers // nil if nothing is pending or parked
}

// freeze begins to take the book as it is now. Call some until it is done; until then there is no other freeze. The caller
// owes a thaw when nobody reads any more what was frozen.
func (b *book) freeze() *frozenBook {
	b.customers.freeze()
	b.epoch++
	b.freezing = &frozenBook{book: b, left: b.list, campaigns: make([]frozenEntry, 0, len(b.list)), buf: new([largeBlock]byte)}
	return b.freezing
}

// some goes on for about as long as that, and says whether it is done. The fold stands still meanwhile.
func (f *frozenBook) some(howLong time.Duration) (done bool) {
	const between = 256 // campaigns from one look at the clock to the next: some 0.1 ms
	for began := time.Now(); len(f.left) > 0; {
		for _, e := range f.left[:min(between, len(f.left))] {
			if e.epoch != f.book.epoch {
				f.take(e)
			}
		}
		f.left = f.left[min(between, len(f.left)):]
		if time.Since(began) >= howLong {
			break
		}
	}
	if len(f.left) > 0 {
		return false
	}
	if f.book.freezing == f {
		f.book.freezing = nil
	}
	return true
}

// take copies one campaign that has not been changed since freeze.
func (f *frozenBook) take(e *entry) {
	e.epoch = f.book.epoch
	seconds, odd := e.falls.frozen()
	c := frozenEntry{
		name: e.name, priority: e.priority, lateAfter: e.lateAfter, anchors: e.anchors, expiredThrough: e.expiredThrough,
		own: e.own.frozen(), seconds: seconds, odd: odd,
	}
	if e.who != nil {
		c.pending, c.parked = e.pending.Freeze(), e.parked.Freeze()
		c.who = f.book.customers.view(e.who, f.buf)
	}
	f.campaigns = append(f.campaigns, c)
}

// thaw says that nobody reads any more what one freeze took.
func (b *book) thaw() {
	b.freezing = nil
	b.customers.thaw()
}

// encode writes the book to w.
func (b *book) encode(w io.Writer) error {
	defer b.thaw()
	f := b.freeze()
	f.some(time.Hour)
	return f.encode(w)
}
