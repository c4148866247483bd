// Package wall returns the time of day and detects that the machine's clock was set ahead.
//
// A clock that is set ahead by mistake (a typo, a wrong hardware clock) would expire coupons and drop reminders too early,
// which cannot be undone. So the wall clock is compared with one that cannot be set: on Linux CLOCK_BOOTTIME, which also
// counts while the machine is suspended. A step ahead by more than the tolerance holds the time: [Clock.Now] continues from
// before the step, at the pace of the steady clock, until the wall clock is corrected, an operator accepts it, or the
// tolerance is raised.
//
// A virtual machine that its host pauses cannot count the pause. Its wall clock is then rightly set ahead afterwards, which
// looks the same from inside. In that case the tolerance must be longer than the longest pause.
//
// Steps within the tolerance, and steps back, are followed. A process that starts has nothing to compare with and trusts the
// wall clock.
package wall

import (
	"sync"
	"time"
)

// DefaultTolerance is how far ahead the wall clock may be set in one step.
const DefaultTolerance = 5 * time.Second

// Options of a Clock.
type Options struct {
	// Tolerance returns how far ahead the wall clock may be set in one step. It is called whenever a step was seen. Nil is
	// DefaultTolerance.
	Tolerance func() time.Duration
	// Accepted returns the time, by a clock that is right, at which an operator last confirmed the wall clock; zero is never. A
	// step that was noticed before that time, by the wall clock as it is set now, is followed. A later one is not, nor is any
	// while that time is ahead of the wall clock: then one of the two clocks is wrong. It is called whenever a step was seen.
	// Nil is never.
	Accepted func() time.Time
	// Wall is the clock that can be set. Defaults to time.Now.
	Wall func() time.Time
	// Steady is the clock that cannot: how long the machine has been up. Defaults to CLOCK_BOOTTIME.
	Steady func() time.Duration
}

// Clock may be used by many goroutines.
type Clock struct {
	o Options

	mu   sync.Mutex // guards the fields below
	wall time.Time  // the last trusted reading
	at   time.Duration
	seen time.Time     // the wall clock's own reading when the present step was first seen
	step time.Duration // by which the wall clock is ahead of the trusted time; 0 = it is trusted
}

// New returns a clock that trusts the wall clock as it is now.
func New(o Options) *Clock {
	if o.Tolerance == nil {
		o.Tolerance = func() time.Duration { return DefaultTolerance }
	}
	if o.Accepted == nil {
		o.Accepted = func() time.Time { return time.Time{} }
	}
	if o.Wall == nil {
		o.Wall = time.Now
	}
	if o.Steady == nil {
		o.Steady = steady
	}
	return &Clock{o: o, wall: o.Wall(), at: o.Steady()}
}

// Now returns the time of day: the wall clock's, or what it would be if it had not been set ahead.
func (c *Clock) Now() time.Time {
	now, _ := c.look()
	return now
}

// Step returns by how much the wall clock is ahead of Now, 0 if it is trusted.
func (c *Clock) Step() time.Duration {
	_, step := c.look()
	return step
}

// smallest is the step below which the process's own monotonic clock suffices as proof that there was none. It saves a
// system call per call of look.
const smallest = time.Second

func (c *Clock) look() (now time.Time, step time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now = c.o.Wall()
	went := now.Round(0).Sub(c.wall.Round(0)) // by the wall clocks
	if mono := now.Sub(c.wall); c.step == 0 && monotonic(now) && (went-mono).Abs() < smallest {
		c.wall, c.at = now, c.at+mono
		return now, 0
	}
	at := c.o.Steady()
	step, tolerance := went-(at-c.at), c.o.Tolerance()
	if step > tolerance {
		if c.step == 0 || (step-c.step).Abs() > tolerance {
			c.seen = now
		}
		c.step = step
	}
	if step > tolerance && !c.accepted(now) {
		return now.Round(0).Add(-step), step
	}
	c.wall, c.at, c.step = now, at, 0
	return now, 0
}

// acceptedAhead is how far Options.Accepted may be ahead of the wall clock: it was read from another clock.
const acceptedAhead = time.Minute

// accepted reports whether an operator has confirmed the wall clock as it is now.
func (c *Clock) accepted(now time.Time) bool {
	at := c.o.Accepted().Round(0)
	return !at.Before(c.seen.Round(0)) && !at.After(now.Round(0).Add(acceptedAhead))
}

// monotonic reports whether a time carries a reading of the process's monotonic clock.
func monotonic(t time.Time) bool { return t != t.Round(0) }
