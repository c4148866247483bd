package scheduler

import (
	"cmp"

	"github.com/tidwall/btree"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
)

// class is what due work costs: an expiry is a line, whatever falls; reminders are a line for each customer. They do not
// wait for each other.
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
	// ranked is who is asked first whether it may go.
	ranked = [timers.Priorities]timers.Priority{timers.High, timers.Normal, timers.Low}
	// rounds is what weight 1 is given in each round. Small, so that a round is soon over; an ask may cost more, and then
	// its priority sits out until it is paid.
	rounds = [classes]int{expiry: 20, reminder: 5_000}
)

// job is what is due in a campaign of one class, and waits for its next request.
type job struct {
	campaign string
	at       domain.Instant // since when it is due; of coupons, the first
	class    class
	priority timers.Priority
	hopeless bool // the lane will drop it
	waits    bool // in the dispatcher
	served   int  // what it has had, counted from what others of its priority had when it began to wait
	plan     *plan
}

// compareWaiting puts what will be dropped behind what can still be of use, and then who has had more behind who has had
// less.
func compareWaiting(a, b *job) int {
	switch {
	case a.hopeless == b.hopeless:
		return cmp.Or(cmp.Compare(a.served, b.served), cmp.Compare(a.at, b.at), cmp.Compare(a.campaign, b.campaign))
	case a.hopeless:
		return 1
	}
	return -1
}

// dispatcher holds what is due and not asked for, and says whose turn it is. It is pure.
//
// The rule, in each class by itself: a priority that has credit goes, the higher one first, and pays what its ask costs
// (an expiry 1, reminders their customers). When none that waits has any, a round begins: high is given eight parts,
// normal three, low one. So where all wait they get 8 : 3 : 1, whoever waits gets its part of every round, and who waits
// alone gets everything at once. Within a priority campaigns share alike: who has had least goes first, then what became due
// first, and what the lane will drop goes last. So a campaign waits for one request of each other at most, however large.
type dispatcher struct {
	lines [classes][timers.Priorities]struct {
		jobs   *btree.BTreeG[*job]
		credit int // below zero after a request that cost more than there was
		served int // what the job that went last had had before
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

// put lets a job wait for what is due since that instant, or changes what it waits for. Nobody else changes its fields.
func (d *dispatcher) put(j *job, at domain.Instant, hopeless bool, of timers.Priority) {
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

// next is the job whose turn it is, nil if none waits. It stays until it is dropped.
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

// idle: who does not wait saves nothing up, and when nobody does, nobody owes anything.
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
