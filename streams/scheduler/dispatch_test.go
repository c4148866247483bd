package scheduler

import (
	"slices"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/priority"
)

// take lets the next job of the class go, for that cost.
func (d *dispatcher) take(c class, cost int) *job {
	j := d.next(c)
	if j != nil {
		d.pay(j, cost)
		d.drop(j)
	}
	return j
}

// wait lets a job wait as it is.
func (d *dispatcher) wait(j *job) { d.put(j, j.at, j.hopeless, j.priority) }

// Within a priority the earliest goes first; alone, all go at once; the classes know nothing of each other.
func TestDispatchOrder(t *testing.T) {
	d := newDispatcher()
	var want []wire.Instant
	for i := range 1000 {
		at := wire.Instant((i*7919)%1000 + 1)
		d.wait(&job{campaign: "c", at: at, class: reminder, priority: priority.Low})
		want = append(want, at)
	}
	d.wait(&job{campaign: "e", at: 5000, class: expiry, priority: priority.Low})
	slices.Sort(want)
	for _, at := range want {
		if j := d.take(reminder, maxChunk); j == nil || j.at != at {
			t.Fatalf("%+v goes, expected the one due at %d", j, at)
		}
	}
	if d.next(reminder) != nil {
		t.Error("something waits")
	}
	if j := d.take(expiry, 1); j == nil || j.campaign != "e" {
		t.Errorf("%+v goes, expected the expiry", j)
	}
}
