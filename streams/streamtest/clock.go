package streamtest

import (
	"slices"
	"sync"
	"time"
)

// Clock is a clock that a test moves. It is safe for concurrent use.
type Clock struct {
	mu    sync.Mutex
	now   time.Time
	waits []clockWait
}

type clockWait struct {
	at time.Time
	c  chan time.Time
}

// NewClock returns a clock that shows the machine's time and stands still.
func NewClock() *Clock { return ClockAt(time.Now()) }

// ClockAt returns a clock that shows a time and stands still.
func ClockAt(t time.Time) *Clock { return &Clock{now: t} }

// Now returns the time that it shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After returns a channel that receives once the clock was moved by d.
func (c *Clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := clockWait{c.now.Add(d), make(chan time.Time, 1)}
	if d <= 0 {
		w.c <- c.now
	} else {
		c.waits = append(c.waits, w)
	}
	return w.c
}

// Move moves it ahead.
func (c *Clock) Move(d time.Duration) { c.Set(c.Now().Add(d)) }

// Set moves it to a time; one that has passed changes nothing.
func (c *Clock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.Before(c.now) {
		return
	}
	c.now = t
	c.waits = slices.DeleteFunc(c.waits, func(w clockWait) bool {
		if w.at.After(t) {
			return false
		}
		w.c <- t
		return true
	})
}

// Hurried is the machine's clock, but waits are that many times as short.
type Hurried int64

// Now returns the machine's time.
func (h Hurried) Now() time.Time { return time.Now() }

// After returns a channel that receives after a fraction of d.
func (h Hurried) After(d time.Duration) <-chan time.Time { return time.After(d / time.Duration(h)) }
