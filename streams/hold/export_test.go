package hold

import "time"

// Abandoned is the age at which a hold counts as dead whatever the server says.
const Abandoned = abandoned

// SetClock sets the clock by which the age of holds is judged.
func SetClock(clock func() time.Time) { now = clock }
