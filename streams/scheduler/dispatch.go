package scheduler

import (
	"cmp"

	"github.com/tidwall/btree"

	"github.com/seed-4a2410e3/scrip/domain"
)

// priority is a campaign's. The zero one is normal: what has never been set.
type priority uint8

const (
	normal priority = iota
	high
	low
	priorities
)

func (p priority) String() string {
	return [priorities]string{domain.PriorityNormal, domain.PriorityHigh, domain.PriorityLow}[p]
}

// priorityOf reads a campaign's setting.
func priorityOf(setting string) priority {
	switch setting {
	case domain.PriorityHigh:
		return high
	case domain.PriorityLow:
		return low
	}
	return normal
}

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
	weights = [priorities]int{high: 8, normal: 3, low: 1}
	// ranked is who is asked first whether it may go.
	ranked = [priorities]priority{high, normal, low}
	// rounds is what weight 1 is given in each round. Small, so that a round is soon over; an ask may cost more, and then
	// its priority sits out until it is paid.
	rounds = [classes]int{expiry: 20, reminder: 5_000}
)

// job is one thing that is due in a campaign: coupons that fall (kind empty) or the reminders of a kind at an instant.
type job struct {
	campaign, kind string
	at             domain.Instant // since when it is due; of coupons, the first
	class          class
	priority       priority
	hopeless       bool // the lane will drop it
	waits          bool // in the dispatcher
}

func compareJobs(a, b *job) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.campaign, b.campaign), cmp.Compare(a.kind, b.kind))
}

// compareWaiting puts what will be dropped behind what can still be of use.
func compareWaiting(a, b *job) int {
	switch {
	case a.hopeless == b.hopeless:
		return compareJobs(a, b)
	case a.hopeless:
		return 1
	}
	return -1
}

// jobs are in an order: that in which they became due, or that in which they go.
type jobs = *btree.BTreeG[*job]

func newJobs(compare func(a, b *job) int) jobs {
	return btree.NewBTreeGOptions(func(a, b *job) bool { return compare(a, b) < 0 }, btree.Options{NoLocks: true})
}

// dispatcher holds what is due and not asked for, and says whose turn it is. It is pure.
//
// The rule, in each class by itself: a priority that has credit goes, the higher one first, and pays what its ask costs
// (an expiry 1, reminders their customers). When none that waits has any, a round begins: high is given eight parts,
// normal three, low one. So where all wait they get 8 : 3 : 1, whoever waits gets its part of every round, and who waits
// alone gets everything at once. Within a priority, what became due first goes first, and what the lane will drop last.
type dispatcher struct {
	lines [classes][priorities]struct {
		jobs   jobs
		credit int // below zero after an ask that cost more than there was
	}
}

func newDispatcher() *dispatcher {
	d := new(dispatcher)
	for c := range d.lines {
		for p := range d.lines[c] {
			d.lines[c][p].jobs = newJobs(compareWaiting)
		}
	}
	return d
}

// put lets a job wait. Its fields must not change while it does.
func (d *dispatcher) put(j *job) {
	j.waits = true
	d.lines[j.class][j.priority].jobs.Set(j)
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

// pay takes what an ask for the job costs.
func (d *dispatcher) pay(j *job, cost int) {
	d.lines[j.class][j.priority].credit -= cost
}

// idle: who does not wait saves nothing up, and when nobody does, nobody owes anything.
func (d *dispatcher) idle(c class, p priority) {
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
