package domain

import (
	"encoding/binary"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Reminders in a snapshot: the pending ones, then those that redemptions cancelled. A list has their number, then for each by
// rising number three varints, 3 to 5 bytes together: the difference of its number to the one before, its lead, and the
// difference of its n (kind expires: coupon; opens: the act that set it) to the one before. A lead is its index among the
// leads of the list so far. An index that is one too high is a new lead, which follows: kind, and lead time in microseconds.
// Whether a coupon has an expiry of its own is stored with the coupon.

// reminderLead is what many pending reminders have in common.
type reminderLead struct {
	kind   string
	before time.Duration
}

func (w *snapshotWriter) reminders(f reminder.FrozenSubscriptions) (err error) {
	w.u32(uint32(f.Len()))
	numbers := make(map[reminderLead]uint64)
	var last, lastN uint64
	var lead reminderLead
	which := uint64(0)
	f.All(func(r uint64, kind string, before time.Duration, n uint32, _ wire.Instant) {
		if err != nil {
			return
		}
		w.buf = binary.AppendUvarint(w.buf, r-last)
		if is := (reminderLead{kind, before}); is != lead {
			var known bool
			if which, known = numbers[is]; !known {
				which = uint64(len(numbers))
				numbers[is] = which
				w.buf = binary.AppendUvarint(w.buf, which)
				w.buf = append(w.buf, kindByte(kind))
				w.buf = binary.AppendUvarint(w.buf, uint64(before/time.Microsecond))
			} else {
				w.buf = binary.AppendUvarint(w.buf, which)
			}
			lead = is
		} else {
			w.buf = binary.AppendUvarint(w.buf, which)
		}
		w.buf = binary.AppendVarint(w.buf, int64(n)-int64(lastN))
		last, lastN = r, uint64(n)
		err = w.flushFull()
	})
	return err
}

func kindByte(kind string) byte {
	if kind == wire.KindExpires {
		return 1
	}
	return 0
}

// reminders reads a list of subscriptions.
func (r *snapshotReader) reminders(c *campaign, into func() *reminder.Subscriptions) {
	count := r.u32()
	if count == 0 || r.err != nil {
		return
	}
	number := uint64(0)
	list := into()
	ok, twice := list.RestoreNoted(func(yield func(reminder.Subscription) bool) {
		var leads []reminderLead
		n := int64(0)
		for ; count > 0; count-- {
			number += r.uvarint()
			which := r.uvarint()
			if which == uint64(len(leads)) {
				lead := reminderLead{wire.KindOpens, 0}
				if r.u8() == 1 {
					lead.kind = wire.KindExpires
				}
				before := r.uvarint()
				if before > uint64(wire.MaxBefore/time.Microsecond) {
					r.fail("campaign %s: lead time of reminder %d", c.name, number)
				}
				lead.before = time.Duration(before) * time.Microsecond
				leads = append(leads, lead)
			}
			n += r.varint()
			if r.err == nil && (which >= uint64(len(leads)) || number > c.lastReminder || !c.canBeReminded(leads[which].kind, n)) {
				r.fail("campaign %s: reminder %d", c.name, number)
			}
			if r.err != nil {
				return
			}
			x := reminder.Subscription{R: number, Kind: leads[which].kind, Before: leads[which].before, N: uint32(n)}
			if x.Kind == wire.KindExpires {
				x.Own = c.ownExpiry(x.N)
			}
			if !yield(x) {
				return
			}
		}
	}, c)
	if !ok || twice || list == &c.sparse.parked && list.HasOpening() {
		r.fail("campaign %s: reminder %d", c.name, number)
	}
}

// canBeReminded reports whether a reminder of that kind can belong to coupon n (expires), or have been set by act n (opens).
func (c *campaign) canBeReminded(kind string, n int64) bool {
	if kind == wire.KindExpires {
		return n >= 1 && n <= int64(c.claimed())
	}
	return n >= 1 && n <= int64(c.acts.Len()) && c.acts.At(uint32(n-1)).kind == wire.Remind
}
