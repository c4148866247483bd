package timers

import (
	"io"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
)

// frozenBook is a book as it was at one moment, to be written while its owner goes on. What is large is shared with the
// owner, who copies what it changes: pages of subscriptions, blocks of customers. The rest is taken campaign by campaign,
// a little at a time; one that an event is about to change is taken before it.
type Frozen struct {
	book      *Timers
	left      []*Campaign // not looked at
	campaigns []frozenCampaign
	buf       *[largeBlock]byte // customers are read through
}

type frozenCampaign struct {
	name           string
	priority       Priority
	lateAfter      time.Duration
	anchors        domain.Anchors
	expiredThrough domain.Instant
	own            ownExpiries
	seconds        []uint32
	fractional     []domain.Instant
	pending        domain.FrozenSubscriptions
	restorable     domain.FrozenSubscriptions
	customers      *frozenCustomers // nil if nothing is pending or restorable
}

// freeze begins to take the book as it is now. Call some until it is done; until then there is no other freeze. The caller
// owes a thaw when nobody reads any more what was frozen.
func (b *Timers) Freeze() *Frozen {
	b.customers.freeze()
	b.epoch++
	b.freezing = &Frozen{book: b, left: b.list, campaigns: make([]frozenCampaign, 0, len(b.list)), buf: new([largeBlock]byte)}
	return b.freezing
}

// some goes on for about as long as that, and says whether it is done. The fold stands still meanwhile.
func (f *Frozen) Continue(howLong time.Duration) (done bool) {
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
func (f *Frozen) take(e *Campaign) {
	e.epoch = f.book.epoch
	seconds, fractional := e.instants.frozen()
	c := frozenCampaign{
		name: e.Name, priority: e.Priority, lateAfter: e.LateAfter, anchors: e.Anchors, expiredThrough: e.expiredThrough,
		own: e.own.frozen(), seconds: seconds, fractional: fractional,
	}
	if e.customers != nil {
		c.pending, c.restorable = e.pending.Freeze(), e.restorable.Freeze()
		c.customers = f.book.customers.view(e.customers, f.buf)
	}
	f.campaigns = append(f.campaigns, c)
}

// thaw says that nobody reads any more what one freeze took.
func (b *Timers) Thaw() {
	b.freezing = nil
	b.customers.thaw()
}

// encode writes the book to w.
func (b *Timers) Write(w io.Writer) error {
	defer b.Thaw()
	f := b.Freeze()
	f.Continue(time.Hour)
	return f.Write(w)
}
