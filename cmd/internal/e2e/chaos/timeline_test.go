package chaos

import (
	"slices"
	"sync"
	"time"
)

const (
	// usualOver is how long before a fault the usual rate is taken: the median of its seconds.
	usualOver = 8 * time.Second
	// backOver is for how long the rate must be backShare of the usual one, on average, to count as back.
	backOver  = 5 * time.Second
	backShare = 0.9
	// lateAt is when after a fault the rate is looked at whatever it is.
	lateAt = 10 * time.Second
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

// rate is answers per second from a time on.
func (l *timeline) rate(from time.Time, over time.Duration) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, times := range l.times {
		n += first(times, from.Add(over)) - first(times, from)
	}
	return float64(n) / over.Seconds()
}

// usual is the median rate of the seconds before a time.
func (l *timeline) usual(at time.Time) float64 {
	var rates []float64
	for s := time.Second; s <= usualOver; s += time.Second {
		rates = append(rates, l.rate(at.Add(-s), time.Second))
	}
	slices.Sort(rates)
	return rates[len(rates)/2]
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

// back is how long after at the usual rate was there again: from then on backShare of it was reached over backOver. It
// reports false while that is not known.
func (l *timeline) back(at, now time.Time, usual float64) (time.Duration, bool) {
	for after := time.Duration(0); !at.Add(after + backOver).After(now); after += 100 * time.Millisecond {
		if l.rate(at.Add(after), backOver) >= backShare*usual {
			return after, true
		}
	}
	return 0, false
}
