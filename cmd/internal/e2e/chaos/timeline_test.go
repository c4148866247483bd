package chaos

import (
	"slices"
	"sync"
	"time"
)

// timeline is when answers came, by lane.
type timeline struct {
	mu    sync.Mutex
	times [][]time.Time // of each lane, rising
}

func newTimeline(lanes int) *timeline { return &timeline{times: make([][]time.Time, lanes)} }

func (l *timeline) note(lane int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times[lane] = append(l.times[lane], time.Now())
}

// least is how many answers the lane has that has the fewest since a time.
func (l *timeline) least(since time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	least := -1
	for _, times := range l.times {
		if n := len(times) - first(times, since); least < 0 || n < least {
			least = n
		}
	}
	return least
}

// first is the index of the first time that does not lie before at.
func first(times []time.Time, at time.Time) int {
	i, _ := slices.BinarySearchFunc(times, at, time.Time.Compare)
	return i
}

// silence is the longest time between from and to in which one lane, whichever, had no answer.
func (l *timeline) silence(from, to time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest := time.Duration(0)
	for _, times := range l.times {
		last := from
		for _, at := range times[first(times, from):first(times, to)] {
			longest = max(longest, at.Sub(last))
			last = at
		}
		longest = max(longest, to.Sub(last))
	}
	return longest
}
