package scheduler

import (
	"cmp"

	"github.com/tidwall/btree"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
)

// class is a kind of due work by its cost: an expiry is one line, however many coupons expire; reminders are a line for each
// customer. The classes do not delay each other.
type class uint8

const (
	expiry class = iota
	reminder
	classes
)

func (c class) String() string { return [classes]string{"expiry", "reminder"}[c] }

var (
	// weights are the shares of the priorities where all of them wait.
	weights = [timers.Priorities]int{timers.High: 8, timers.Normal: 3, timers.Low: 1}
	// ranked is the order in which priorities with credit go.
	ranked = [timers.Priorities]timers.Priority{timers.High, timers.Normal, timers.Low}
	// rounds is the credit of weight 1 in each round. Small, so that a round is soon over; a request may cost more, and then
	// its priority waits until it is paid.
	rounds = [classes]int{expiry: 20, reminder: 5_000}
)

// job is what is due in a campaign of one class, and waits for its next request.
type job struct {
	campaign string
	at       wire.Instant // since when it is due; of coupons, the first
	class    class
	priority timers.Priority
	hopeless bool // the lane will drop it
	waits    bool // in the dispatcher
	served   int  // cost of its requests, counted from that of others of its priority when it began to wait
	plan     *plan
}

// compareWaiting puts what will be dropped last, and before that orders by what each has had.
func compareWaiting(a, b *job) int {
	switch {
	case a.hopeless == b.hopeless:
		return cmp.Or(cmp.Compare(a.served, b.served), cmp.Compare(a.at, b.at), cmp.Compare(a.campaign, b.campaign))
	case a.hopeless:
		return 1
	}
	return -1
}

// dispatcher orders what is due and not requested. It is pure.
//
// The rule, in each class by itself: a priority that has credit goes, the higher one first, and pays what its request costs
// (an expiry 1, reminders their customers). When none that waits has any, a round begins: high gets eight parts, normal
// three, low one. So where all wait they get 8 : 3 : 1, each gets its part of every round, and without competition one gets
// everything at once. Within a priority campaigns share alike: the one that has had least goes first, then what became due
// first, and what the lane will drop goes last. So a campaign waits for one request of each other at most, however large.
type dispatcher struct {
	lines [classes][timers.Priorities]struct {
		jobs   *btree.BTreeG[*job]
		credit int // below zero after a request that cost more than there was
		served int // of the job that went last, before its request
	}
}

func newDispatcher() *dispatcher {
	d := new(dispatcher)
	for c := range d.lines {
		for p := range d.lines[c] {
			d.lines[c][p].jobs = btree.NewBTreeGOptions(func(a, b *job) bool { return compareWaiting(a, b) < 0 }, btree.Options{NoLocks: true})
		}
	}
	return d
}

// put lets a job wait for what is due since that instant, or changes what it waits for. Only put, drop and pay change a job
// that waits.
func (d *dispatcher) put(j *job, at wire.Instant, hopeless bool, of timers.Priority) {
	if j.waits && j.priority != of {
		d.drop(j)
	}
	line := &d.lines[j.class][of]
	if j.waits {
		line.jobs.Delete(j)
	} else if j.served < line.served || j.priority != of {
		j.served = line.served
	}
	j.at, j.hopeless, j.priority, j.waits = at, hopeless, of, true
	line.jobs.Set(j)
}

// drop takes a job out, if it is there.
func (d *dispatcher) drop(j *job) {
	if !j.waits {
		return
	}
	j.waits = false
	d.lines[j.class][j.priority].jobs.Delete(j)
	d.idle(j.class, j.priority)
}

// next is the job that goes next, nil if none waits. It stays until it is dropped.
func (d *dispatcher) next(c class) *job {
	lines := &d.lines[c]
	for {
		waiting := false
		for _, p := range ranked {
			if first, ok := lines[p].jobs.Min(); ok {
				if lines[p].credit > 0 {
					return first
				}
				waiting = true
			}
		}
		if !waiting {
			return nil
		}
		for p := range lines {
			if lines[p].jobs.Len() > 0 {
				lines[p].credit += weights[p] * rounds[c]
			}
		}
	}
}

// pay takes what a request for the job, which waits, costs.
func (d *dispatcher) pay(j *job, cost int) {
	line := &d.lines[j.class][j.priority]
	line.credit -= cost
	line.served = max(line.served, j.served)
	line.jobs.Delete(j)
	j.served += cost
	line.jobs.Set(j)
}

// idle: a priority that does not wait saves no credit, and when none waits no debt is left.
func (d *dispatcher) idle(c class, p timers.Priority) {
	lines := &d.lines[c]
	if lines[p].jobs.Len() > 0 {
		return
	}
	lines[p].credit = min(lines[p].credit, 0)
	for q := range lines {
		if lines[q].jobs.Len() > 0 {
			return
		}
	}
	for q := range lines {
		lines[q].credit = 0
	}
}
