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

import "time"

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

// After returns a channel that receives once when d has passed by the machine's steady clock: a step of the wall clock
// does not change how long a wait is.
func (g *Guard) After(d time.Duration) <-chan time.Time { return time.After(d) }
