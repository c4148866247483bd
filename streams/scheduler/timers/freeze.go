package timers

import (
	"time"

	"github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/priority"
)

// Frozen are timers as they were at one moment, to be written while their owner goes on. What is large is shared with the
// owner: pages of subscriptions, which it copies when it changes them, and segments. The rest is copied campaign by campaign,
// a little at a time; a campaign that an event is about to change is copied before it.
type Frozen struct {
	timers    *Timers
	left      []*Campaign // not copied
	campaigns []frozenCampaign
	buf       *[largeBlock]byte // customers are read through
}

type frozenCampaign struct {
	name           string
	priority       priority.Priority
	lateAfter      time.Duration
	anchors        reminder.Anchors
	expiredThrough wire.Instant
	own            ownExpiries
	seconds        []uint32
	fractional     []wire.Instant
	pending        reminder.FrozenSubscriptions
	restorable     reminder.FrozenSubscriptions
	customers      frozenCustomers
}

// Freeze starts to copy the timers as they are now. Continue must be called until it is done; until then there is no other
// freeze. Thaw must be called when the result is not read any more.
func (b *Timers) Freeze() *Frozen {
	b.customers.freeze()
	b.epoch++
	b.freezing = &Frozen{timers: b, left: b.list, campaigns: make([]frozenCampaign, 0, len(b.list)), buf: new([largeBlock]byte)}
	return b.freezing
}

// Continue copies for about as long as that, and reports whether all is copied. Nothing may be folded during it.
func (f *Frozen) Continue(howLong time.Duration) (done bool) {
	const between = 256 // campaigns between two reads of the clock: some 0.1 ms
	for started := time.Now(); len(f.left) > 0; {
		for _, e := range f.left[:min(between, len(f.left))] {
			if e.epoch != f.timers.epoch {
				f.take(e)
			}
		}
		f.left = f.left[min(between, len(f.left)):]
		if time.Since(started) >= howLong {
			break
		}
	}
	if len(f.left) > 0 {
		return false
	}
	if f.timers.freezing == f {
		f.timers.freezing = nil
	}
	return true
}

// take copies one campaign that has not been changed since freeze.
func (f *Frozen) take(e *Campaign) {
	e.epoch = f.timers.epoch
	seconds, fractional := e.instants.frozen()
	c := frozenCampaign{
		name: e.Name, priority: e.Priority, lateAfter: e.LateAfter, anchors: e.Anchors, expiredThrough: e.expiredThrough,
		own: e.own.frozen(), seconds: seconds, fractional: fractional,
	}
	if e.customers != nil {
		c.pending, c.restorable = e.pending.Freeze(), e.restorable.Freeze()
		c.customers = e.customers.frozen(f.buf)
	}
	f.campaigns = append(f.campaigns, c)
}

// Thaw releases the result of one Freeze.
func (b *Timers) Thaw() {
	b.freezing = nil
	b.customers.thaw()
}
