package timers

import (
	"cmp"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/priority"
)

// Campaign is what the timers know of one campaign. Only Fold writes the exported fields.
type Campaign struct {
	Name      string
	Anchors   reminder.Anchors
	Priority  priority.Priority // which campaign goes first when more is due than can be requested
	LateAfter time.Duration     // reminders later than this are dropped; 0 = no such limit

	expiredThrough wire.Instant           // coupons that expire up to it have been announced
	own            ownExpiries            // which coupons have an expiry of their own
	instants       instants               // those expiries after expiredThrough
	newest         wire.Instant           // put into instants last: nearly always the next one too
	pending        reminder.Subscriptions // reminders
	restorable     reminder.Subscriptions // that redemptions cancelled: their rollback sets them again, without the customer
	customers      *customerList          // of those that are pending or restorable; nil if none are
	epoch          uint32                 // of the last freeze that it is part of, or that it came too late for
	wake           wire.Instant           // nothing becomes due before it; 0 = the planner has to find out
}

// Wake is the instant at which the planner has to look at the campaign: nothing becomes due before it. 0 after a change that
// may have moved what is due.
func (e *Campaign) Wake() wire.Instant { return e.wake }

// dueInstants is the number of instants at which coupons of the campaign are still to expire.
func (e *Campaign) dueInstants() int {
	n := e.instants.n
	if e.end() != wire.Never {
		n++
	}
	return n
}

// end is when coupons without an expiry of their own expire, Never if they do not or did.
func (e *Campaign) end() wire.Instant {
	if e.Anchors.Expires > e.expiredThrough {
		return e.Anchors.Expires
	}
	return wire.Never
}

// FirstExpiry is the earliest instant after what has been announced at which coupons expire, Never if there is none.
func (e *Campaign) FirstExpiry() wire.Instant { return min(e.instants.after(0), e.end()) }

// ExpiryAfter is the earliest instant after now at which coupons expire, Never if there is none.
func (e *Campaign) ExpiryAfter(now wire.Instant) wire.Instant {
	next := e.instants.after(now)
	if end := e.end(); end > now {
		next = min(next, end)
	}
	return next
}

// LastExpiry is the latest instant at or before now, after what has been announced, at which coupons expire; 0 if none.
func (e *Campaign) LastExpiry(now wire.Instant) wire.Instant {
	last := e.instants.upTo(now)
	if end := e.end(); end <= now {
		last = max(last, end)
	}
	return last
}

// Key is what reminders of a campaign have in common that are due together: instant and kind.
type Key struct {
	At   wire.Instant
	Kind string
}

// Compare orders keys by instant, then kind: opens first.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.At, other.At), cmp.Compare(other.Kind, k.Kind))
}

func (e *Campaign) Pending() int { return e.pending.Len() }

// remembers reports whether the customer of reminder r is kept.
func (e *Campaign) remembers(r uint64) bool { return e.pending.Has(r) || e.restorable.Has(r) }

// FirstDue is the earliest instant at which a reminder is due, Never if none is pending.
func (e *Campaign) FirstDue() wire.Instant { return e.pending.Next(e.Anchors) }

// DueAfter is the earliest instant after now at which a reminder is due, Never if none is.
func (e *Campaign) DueAfter(now wire.Instant) wire.Instant {
	return e.pending.NextAfter(e.Anchors, now)
}

// Following is the key of the first reminders after k. Its instant is Never if there are none.
func (e *Campaign) Following(k Key) Key {
	if k.Kind == wire.KindOpens && e.isDue(wire.KindExpires, k.At) {
		return Key{k.At, wire.KindExpires}
	}
	at := e.DueAfter(k.At)
	if at == wire.Never || e.isDue(wire.KindOpens, at) {
		return Key{at, wire.KindOpens}
	}
	return Key{at, wire.KindExpires}
}

// isDue reports whether a reminder of that kind is due at that instant.
func (e *Campaign) isDue(kind string, at wire.Instant) bool {
	return e.pending.Chunk(kind, at, 0, 1, e.Anchors).Subscriptions > 0
}

// At counts the pending reminders of a set.
func (e *Campaign) At(set wire.DueSet) reminder.DueReminders { return e.pending.At(set, e.Anchors) }

// Chunk is the first reminders of a key with a number higher than after, at most that many; more reports whether others
// follow.
func (e *Campaign) Chunk(k Key, after uint64, most int) (c reminder.DueReminders, more bool) {
	c = e.pending.Chunk(k.Kind, k.At, after, most, e.Anchors)
	more = c.Subscriptions > 0 && e.pending.Chunk(k.Kind, k.At, c.LastR, 1, e.Anchors).Subscriptions > 0
	return c, more
}

// Whole is all reminders of a key, if no others of the campaign are pending. It takes no step for each.
func (e *Campaign) Whole(k Key) (c reminder.DueReminders, ok bool) {
	c = e.At(wire.DueSet{Kind: k.Kind, DueAt: k.At, ThroughR: reminder.MaxReminder})
	return c, c.Subscriptions > 0 && c.Subscriptions == uint64(e.pending.Len())
}

// Count is the number of reminders that are due after from, up to until. It takes a step for each instant between them.
func (e *Campaign) Count(from, until wire.Instant) int {
	return int(e.pending.Count(e.Anchors, from+1, until+1))
}
