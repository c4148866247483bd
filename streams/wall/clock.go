// Package wall returns the time of day, and detects that the machine's clock was set ahead.
//
//	Clock ◄── Machine   the time of day and its timers, as package time has them
//	      ◄── Guard     the same, held while the machine's clock is set ahead
//
// A clock that is set ahead by mistake (a typo, a wrong hardware clock) would expire coupons and drop reminders too early,
// which cannot be undone. So the wall clock is compared with one that cannot be set: on Linux CLOCK_BOOTTIME, which also
// counts while the machine is suspended. A step ahead by more than the tolerance holds the time: [Guard.Now] continues from
// before the step, at the pace of the steady clock, until the wall clock is corrected, an operator accepts it, or the
// tolerance is raised.
//
// A virtual machine that its host pauses cannot count the pause. Its wall clock is then rightly set ahead afterwards, which
// looks the same from inside. In that case the tolerance must be longer than the longest pause.
//
// Steps within the tolerance, and steps back, are followed. A process that starts has nothing to compare with and trusts the
// wall clock.
//
// Nothing is stored, and nothing crashes here.
package wall

import (
	"sync"
	"time"
)

// Clock is the only source of time of what waits, ages or stamps in this program. A test replaces it, or runs in a bubble
// of testing/synctest, where Machine is fake by itself.
type Clock interface {
	// Now returns the time of day.
	Now() time.Time
	// After returns a channel that receives once when d has passed.
	After(d time.Duration) <-chan time.Time
}

// Machine is the machine's clock.
var Machine Clock = machine{}

type machine struct{}

func (machine) Now() time.Time                         { return time.Now() }
func (machine) After(d time.Duration) <-chan time.Time { return time.After(d) }

// DefaultTolerance is how far ahead the wall clock may be set in one step.
const DefaultTolerance = 5 * time.Second

// Options of a Guard.
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

// Guard is a [Clock] that detects when the wall clock was set ahead. It may be used by many goroutines.
type Guard struct {
	o Options

	mu   sync.Mutex // guards the fields below
	wall time.Time  // the last trusted reading
	at   time.Duration
	seen time.Time     // the wall clock's own reading when the present step was first seen
	step time.Duration // by which the wall clock is ahead of the trusted time; 0 = it is trusted
}

// New returns a clock that trusts the wall clock as it is now.
func New(o Options) *Guard {
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
	return &Guard{o: o, wall: o.Wall(), at: o.Steady()}
}

// Now returns the time of day: the wall clock's, or what it would be if it had not been set ahead.
func (g *Guard) Now() time.Time {
	now, _ := g.look()
	return now
}

// After returns a channel that receives once when d has passed by the machine's steady clock: a step of the wall clock
// does not change how long a wait is.
func (g *Guard) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Step returns by how much the wall clock is ahead of Now, 0 if it is trusted.
func (g *Guard) Step() time.Duration {
	_, step := g.look()
	return step
}

// smallest is the step below which the process's own monotonic clock suffices as proof that there was none. It saves a
// system call per call of look.
const smallest = time.Second

func (g *Guard) look() (now time.Time, step time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now = g.o.Wall()
	went := now.Round(0).Sub(g.wall.Round(0)) // by the wall clocks
	if mono := now.Sub(g.wall); g.step == 0 && monotonic(now) && (went-mono).Abs() < smallest {
		g.wall, g.at = now, g.at+mono
		return now, 0
	}
	at := g.o.Steady()
	step, tolerance := went-(at-g.at), g.o.Tolerance()
	if step > tolerance {
		if g.step == 0 || (step-g.step).Abs() > tolerance {
			g.seen = now
		}
		g.step = step
	}
	if step > tolerance && !g.accepted(now) {
		return now.Round(0).Add(-step), step
	}
	g.wall, g.at, g.step = now, at, 0
	return now, 0
}

// acceptedAhead is how far Options.Accepted may be ahead of the wall clock: it was read from another clock.
const acceptedAhead = time.Minute

// accepted reports whether an operator has confirmed the wall clock as it is now.
func (g *Guard) accepted(now time.Time) bool {
	at := g.o.Accepted().Round(0)
	return !at.Before(g.seen.Round(0)) && !at.After(now.Round(0).Add(acceptedAhead))
}

// monotonic reports whether a time carries a reading of the process's monotonic clock.
func monotonic(t time.Time) bool { return t != t.Round(0) }
