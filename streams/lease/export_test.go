package lease

import "time"

// Abandoned is the age at which Inspect and Locked ignore a key.
const Abandoned = abandoned

// SetClock replaces the clock of Inspect and Locked.
func SetClock(clock func() time.Time) { now = clock }
