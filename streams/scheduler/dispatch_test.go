package scheduler

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
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

func sumOf(list [timers.Priorities]int) (sum int) {
	for _, n := range list {
		sum += n
	}
	return sum
}

// While all of them wait, the priorities get 8 : 3 : 1 at any moment, whatever their requests cost: no one is ever further
// from its share than one round and one request.
func TestSharesOfPriorities(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDispatcher()
		c := rapid.SampledFrom([]class{expiry, reminder}).Draw(t, "class")
		most := rapid.SampledFrom([]int{1, 50, rounds[c], maxChunk}).Draw(t, "most")
		serial := 0
		var served, waits [timers.Priorities]int
		steps := rapid.IntRange(1, 400).Draw(t, "steps")
		for range steps {
			for p := range timers.Priorities {
				for waits[p] < 2 || waits[p] < 4 && rapid.Bool().Draw(t, "more") {
					serial++
					d.wait(&job{campaign: fmt.Sprint(serial), at: wire.Instant(rapid.IntRange(1, 100).Draw(t, "at")), class: c, priority: p})
					waits[p]++
				}
			}
			cost := rapid.IntRange(1, most).Draw(t, "cost")
			j := d.take(c, cost)
			served[j.priority] += cost
			waits[j.priority]--
			// Each gets weight × round in every round, has spent all but at most that, and at most one request more.
			for p := range timers.Priorities {
				for q := range timers.Priorities {
					ahead := float64(served[p])/float64(weights[p]) - float64(served[q])/float64(weights[q])
					if bound := float64(rounds[c]) + float64(most)/float64(weights[p]); ahead > bound {
						t.Fatalf("after %v, %s is %g ahead of %s for its weight, more than %g", served, p, ahead, q, bound)
					}
				}
			}
		}
	})
}

// What waits goes before the others have gone on for much: whatever arrives, leaves and is paid.
func TestNothingStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDispatcher()
		most := rapid.SampledFrom([]int{50, 1000, maxChunk}).Draw(t, "most")
		serial := 0
		var waits [timers.Priorities]int
		var others [timers.Priorities]int // served since p was, while p waited
		for range rapid.IntRange(1, 500).Draw(t, "steps") {
			for p := range timers.Priorities {
				if rapid.IntRange(0, 2).Draw(t, "arrives") == 0 {
					serial++
					d.wait(&job{campaign: fmt.Sprint(serial), at: wire.Instant(serial), class: reminder, priority: p})
					waits[p]++
				}
			}
			cost := rapid.IntRange(1, most).Draw(t, "cost")
			j := d.take(reminder, cost)
			if j == nil {
				if waits != [timers.Priorities]int{} {
					t.Fatalf("none goes, though %v wait", waits)
				}
				continue
			}
			waits[j.priority]--
			for p := range timers.Priorities {
				if p == j.priority || waits[p] == 0 {
					others[p] = 0
				} else {
					others[p] += cost
				}
				// What it owes for one request is paid by its part of so many rounds, and then there is the one in which it goes.
				needs := most/(weights[p]*rounds[reminder]) + 2
				if bound := needs*(sumOf(weights)-weights[p])*rounds[reminder] + 2*most; others[p] > bound {
					t.Fatalf("%s waits while others go for %d, more than %d", p, others[p], bound)
				}
			}
		}
	})
}

// Within a priority the earliest goes first; alone, all go at once; the classes know nothing of each other.
func TestDispatchOrder(t *testing.T) {
	d := newDispatcher()
	var want []wire.Instant
	for i := range 1000 {
		at := wire.Instant((i*7919)%1000 + 1)
		d.wait(&job{campaign: "c", at: at, class: reminder, priority: timers.Low})
		want = append(want, at)
	}
	d.wait(&job{campaign: "e", at: 5000, class: expiry, priority: timers.Low})
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
	for c := range d.lines {
		for p, line := range d.lines[c] {
			if line.credit != 0 {
				t.Errorf("with none waiting, %s %s has %d", class(c), timers.Priority(p), line.credit)
			}
		}
	}
}

// Higher goes first where credit is equal, and a higher one that comes later waits no longer than the round.
func TestHigherGoesFirst(t *testing.T) {
	d := newDispatcher()
	for p := range timers.Priorities {
		d.wait(&job{campaign: p.String(), at: 1, class: reminder, priority: p})
	}
	for _, want := range []timers.Priority{timers.High, timers.Normal, timers.Low} {
		if j := d.take(reminder, 10); j.priority != want {
			t.Errorf("%s goes before %s", j.priority, want)
		}
	}
	for i := range 100_000 {
		d.wait(&job{campaign: fmt.Sprint(i), at: 1, class: reminder, priority: timers.Low})
	}
	d.take(reminder, 100)
	d.wait(&job{campaign: "late", at: 2, class: reminder, priority: timers.High})
	spent := 0
	for j := d.take(reminder, 100); j.priority != timers.High; j = d.take(reminder, 100) {
		spent += 100
	}
	if spent > rounds[reminder] {
		t.Errorf("a high one waited for %d customers of low ones", spent)
	}
}
