package push

import "time"

// Clock measures pauses, ages and the time until a Retry-After is over. Tests use one that they move.
type Clock interface {
	Now() time.Time
	// After returns a channel that receives once when d has passed.
	After(d time.Duration) <-chan time.Time
}

// Machine is the machine's clock.
var Machine Clock = machine{}

type machine struct{}

func (machine) Now() time.Time                         { return time.Now() }
func (machine) After(d time.Duration) <-chan time.Time { return time.After(d) }

// recheck is how long a message that is not due yet stays with NATS at most before it is looked at again. NATS measures by
// the machine's clock, so under another one the looks are frequent.
func (o *Options) recheck() time.Duration {
	if _, real := o.Clock.(machine); real {
		return time.Hour
	}
	return 20 * time.Millisecond
}
