package scheduler

import (
	"cmp"

	"github.com/tidwall/btree"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/priority"
)

// class is a kind of due work by its cost: an expiry is one line, however many coupons expire; reminders are a number for each
// customer. The classes do not delay each other.
type class uint8

const (
	expiry class = iota
	reminder
	classes
)

func (c class) String() string { return [classes]string{"expiry", "reminder"}[c] }

// parts is the credit of weight 1 in each round. Small, so that a round is soon over.
var parts = [classes]int{expiry: 20, reminder: 5_000}

// job is what is due in a campaign of one class, and waits for its next request.
type job struct {
	campaign string
	at       wire.Instant // since when it is due; of coupons, the first
	class    class
	priority priority.Priority
	hopeless bool // the lane will drop it
	waits    bool // in the dispatcher
	served   int  // cost of its requests, counted from that of others of its priority when it started to wait
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
// The priorities share by priority.Shares, in each class by itself; an expiry costs 1, reminders their customers. Within a priority
// campaigns share alike: the one that has had least goes first, then what became due first, and what the lane will drop goes last.
// So a campaign waits for one request of each other at most, however large.
type dispatcher struct {
	shares [classes]priority.Shares
	lines  [classes][priority.Campaigns]struct {
		jobs   *btree.BTreeG[*job]
		served int // of the job that went last, before its request
	}
}

func newDispatcher() *dispatcher {
	d := new(dispatcher)
	for c := range d.lines {
		d.shares[c].Part = parts[c]
		for p := range d.lines[c] {
			d.lines[c][p].jobs = btree.NewBTreeGOptions(func(a, b *job) bool { return compareWaiting(a, b) < 0 }, btree.Options{NoLocks: true})
		}
	}
	return d
}

// put lets a job wait for what is due since that instant, or changes what it waits for. Only put, drop and pay change a job
// that waits.
func (d *dispatcher) put(j *job, at wire.Instant, hopeless bool, of priority.Priority) {
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
}

// next is the job that goes next, nil if none waits. It stays until it is dropped.
func (d *dispatcher) next(c class) *job {
	lines := &d.lines[c]
	p, ok := d.shares[c].Next(func(p priority.Priority) bool { return p < priority.Campaigns && lines[p].jobs.Len() > 0 })
	if !ok {
		return nil
	}
	first, _ := lines[p].jobs.Min()
	return first
}

// lone reports whether one job waits.
func (d *dispatcher) lone(c class) bool {
	n := 0
	for p := range d.lines[c] {
		n += d.lines[c][p].jobs.Len()
	}
	return n == 1
}

// pay takes what a request for the job, which waits, costs.
func (d *dispatcher) pay(j *job, cost int) {
	d.shares[j.class].Pay(j.priority, cost)
	line := &d.lines[j.class][j.priority]
	line.served = max(line.served, j.served)
	line.jobs.Delete(j)
	j.served += cost
	line.jobs.Set(j)
}
