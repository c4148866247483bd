package scheduler

import (
	"math"
	"slices"

	reminders "github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
)

// plan is what is due in one campaign: what is requested next, and what is in flight.
//
//	due instants:  answered (gone) │ in flight: queue │ cursor ──> head, waits in the dispatcher │ …
//	               hopeless ones are passed over; a second cursor follows for them when nothing else is left
type plan struct {
	campaign *timers.Campaign
	anchors  reminders.Anchors  // as of the last review
	since    wire.Instant       // something has been known to be due
	jobs     [classes]job       // in the dispatcher
	queues   [classes][]request // in flight: one expire at most; remind_due by instant, kind and number

	cursor     timers.Key // the last that was passed: all up to it is in flight, answered or hopeless
	lateCursor timers.Key // the last hopeless one that was passed
	deferred   bool       // hopeless ones lie between the two
	head       timers.Key // what is requested next; at is Never if nothing is
	late       bool       // the head is hopeless

	counted wire.Instant // left counts what is due up to it
	left    int          // customers that are due and not requested, about
}

// maxDeferred bounds how many instants one advance passes over one by one. After them it goes on where nothing is late.
const maxDeferred = 100

// before is before everything that can be due.
var before = timers.Key{At: math.MinInt64}

func newPlan(e *timers.Campaign, now wire.Instant) *plan {
	pl := &plan{campaign: e, anchors: e.Anchors, since: now, head: timers.Key{At: wire.Never}}
	for c := range classes {
		pl.jobs[c] = job{campaign: e.Name, class: c, plan: pl}
	}
	pl.rewind()
	return pl
}

// rewind lets the cursor start again. What is in flight is not requested again.
func (pl *plan) rewind() {
	pl.cursor, pl.lateCursor, pl.deferred = before, before, false
	pl.counted, pl.left = math.MinInt64, 0
	for i := range pl.queues[reminder] {
		pl.left -= pl.queues[reminder][i].cost
	}
}

// count adds what has become due since it was last called.
func (pl *plan) count(now wire.Instant) {
	if now > pl.counted {
		pl.left += pl.campaign.Count(pl.counted, now)
		pl.counted = now
	}
}

// advance finds the head: the first after the cursor that is of use, else the first of those passed over. What is due
// from fresh on is of use. It returns how many instants it looked at.
func (pl *plan) advance(now, fresh wire.Instant, hopeless func(timers.Key) bool) (examined int) {
	pl.late = false
	for {
		pl.head = pl.campaign.Following(pl.cursor)
		if pl.head.At > now {
			break
		}
		if examined++; pl.head.At >= fresh || !hopeless(pl.head) {
			return examined
		}
		pl.deferred, pl.cursor = true, pl.head
		if examined == maxDeferred {
			pl.cursor = timers.Key{At: fresh - 1, Kind: wire.KindExpires}
		}
	}
	if pl.deferred {
		if pl.head = pl.campaign.Following(pl.lateCursor); pl.head.Compare(pl.cursor) <= 0 {
			pl.late = true
			return examined + 1
		}
		pl.deferred, pl.lateCursor = false, before
	}
	pl.head = timers.Key{At: wire.Never}
	return examined
}

// pass moves the cursor over the head.
func (pl *plan) pass() {
	if pl.late {
		pl.lateCursor = pl.head
	} else {
		pl.cursor = pl.head
	}
}

// settled reports whether nothing is due any more of what the request is for.
func (pl *plan) settled(c class, q *request) bool {
	if c == expiry {
		return pl.campaign.FirstExpiry() > q.through
	}
	first, _ := pl.campaign.Chunk(q.Key, 0, 1)
	return first.Subscriptions == 0 || first.FromR > q.throughR
}

// dueSince is the earliest instant that the request is for.
func (pl *plan) dueSince(c class, q *request) wire.Instant {
	if c == expiry {
		return pl.campaign.FirstExpiry()
	}
	return q.At
}

// patience is how long a request waits for its answer.
func (pl *plan) patience(c class, q *request, now wire.Instant) wire.Instant {
	if now-pl.dueSince(c, q) < freshFor {
		return firstRetry
	}
	return lastRetry
}

// find is the index in the queue of the first request for that key, or of where it would be.
func (pl *plan) find(c class, k timers.Key) int {
	i, _ := slices.BinarySearchFunc(pl.queues[c], k, func(q request, k timers.Key) int { return q.Compare(k) })
	return i
}

// requestedR is the highest number that is in flight for that key, 0 if none is.
func (pl *plan) requestedR(k timers.Key) (r uint64) {
	queue := pl.queues[reminder]
	for i := pl.find(reminder, k); i < len(queue) && queue[i].Key == k; i++ {
		r = queue[i].throughR
	}
	return r
}

// add puts a request into the queue, after those for the same key.
func (pl *plan) add(c class, q request) {
	queue := pl.queues[c]
	i := len(queue) // nearly always
	for i > 0 && queue[i-1].Compare(q.Key) > 0 {
		i--
	}
	pl.queues[c] = slices.Insert(queue, i, q)
}

// remove takes requests out of the queue: as a rule the first.
func (pl *plan) remove(c class, from, to int) {
	if from == 0 {
		pl.queues[c] = pl.queues[c][to:]
	} else {
		pl.queues[c] = slices.Delete(pl.queues[c], from, to)
	}
	if len(pl.queues[c]) == 0 {
		pl.queues[c] = nil
	}
}
