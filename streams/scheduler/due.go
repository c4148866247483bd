package scheduler

import (
	"iter"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
)

// What the planner needs to know of a campaign's reminders, and no more.

// remembers says whether the customer of reminder r is kept.
func (e *entry) remembers(r uint64) bool { return e.pending.Has(r) || e.parked.Has(r) }

// due lists what is due at or before now, by instant. The reminders must not change until it ends.
func (e *entry) due(now domain.Instant) iter.Seq[domain.DueReminders] {
	return e.pending.Due(e.anchors, now)
}

// firstDue is the earliest instant at which a reminder falls due, Never if none does.
func (e *entry) firstDue() domain.Instant { return e.pending.Next(e.anchors) }

// dueAfter is the earliest instant after now at which a reminder falls due, Never if none does.
func (e *entry) dueAfter(now domain.Instant) domain.Instant {
	return e.pending.NextAfter(e.anchors, now)
}

// chunk is the first subscriptions behind number after, at most that many, of what is due at one instant; more says that
// others follow.
func (e *entry) chunk(kind string, at domain.Instant, after uint64, most int) (c domain.DueReminders, more bool) {
	c = e.pending.Chunk(kind, at, after, most, e.anchors)
	more = c.Subscriptions > 0 && e.pending.Chunk(kind, at, c.LastR, 1, e.anchors).Subscriptions > 0
	return c, more
}

// dueBetween tells how many reminders fall due after from, up to until, and when, by the second.
func (e *entry) dueBetween(from, until domain.Instant, f func(at domain.Instant, n int)) {
	const second = domain.Instant(time.Second / time.Microsecond)
	for at := e.dueAfter(from); at <= until; {
		end := min(from+((at-from-1)/second+1)*second, until) + 1
		f(at, int(e.pending.Count(e.anchors, at, end)))
		at = e.dueAfter(end - 1)
	}
}
