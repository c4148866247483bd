package lease

import "time"

// Abandoned is the age at which Inspect passes over a key.
const Abandoned = abandoned

// SetClock replaces the clock of Inspect.
func SetClock(clock func() time.Time) { now = clock }
