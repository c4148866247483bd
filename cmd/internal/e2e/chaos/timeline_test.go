package chaos

import (
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

// silence is the longest time between from and to in which one lane, whichever, had no answer.
func (l *timeline) silence(from, to time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest := time.Duration(0)
	for _, times := range l.times {
		last := from
		for _, at := range times {
			if at.After(from) && at.Before(to) {
				longest = max(longest, at.Sub(last))
				last = at
			}
		}
		longest = max(longest, to.Sub(last))
	}
	return longest
}
