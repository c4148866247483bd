package scheduler

import (
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
)

// What the planner needs to know of a campaign's reminders, and no more.

// remembers says whether the customer of reminder r is kept.
func (e *entry) remembers(r uint64) bool { return e.pending.Has(r) || e.parked.Has(r) }

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

// dueBehind is the first of what falls due behind k, by instant and kind; its instant is Never if nothing does.
func (e *entry) dueBehind(k key) key {
	if k.kind == domain.KindOpens && e.isDue(domain.KindExpires, k.at) {
		return key{k.at, domain.KindExpires}
	}
	at := e.dueAfter(k.at)
	if at == domain.Never || e.isDue(domain.KindOpens, at) {
		return key{at, domain.KindOpens}
	}
	return key{at, domain.KindExpires}
}

// isDue reports whether a reminder of that kind falls due at that instant.
func (e *entry) isDue(kind string, at domain.Instant) bool {
	return e.pending.Chunk(kind, at, 0, 1, e.anchors).Subscriptions > 0
}

// dueIn is how many reminders fall due after from, up to until. It takes a step for each instant between them.
func (e *entry) dueIn(from, until domain.Instant) int {
	return int(e.pending.Count(e.anchors, from+1, until+1))
}

// announces is the latest instant that one of the reminders of that kind announces which fall due at that instant.
func (e *entry) announces(k key) domain.Instant {
	return e.pending.At(domain.DueSet{Kind: k.kind, DueAt: k.at, ThroughR: domain.MaxReminder}, e.anchors).Announces
}

// dueBetween tells how many reminders fall due after from, up to until, and when, by the second.
func (e *entry) dueBetween(from, until domain.Instant, f func(at domain.Instant, n int)) {
	const second = domain.Instant(time.Second / time.Microsecond)
	for at := e.dueAfter(from); at <= until; {
		end := min(from+((at-from-1)/second+1)*second, until) + 1
		f(at, e.dueIn(at-1, end-1))
		at = e.dueAfter(end - 1)
	}
}
