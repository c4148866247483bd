package lane

import (
	"testing"
	"time"
)

// during sets a variable until the test ends. Call it before a lane is started: cleanups run in reverse order, so the variable
// gets its former value after the lane has stopped.
func during[T any](t testing.TB, variable *T, value T) {
	was := *variable
	*variable = value
	t.Cleanup(func() { *variable = was })
}

// ConsiderEvery lets tests have lanes think of snapshots more often.
func ConsiderEvery(t testing.TB, d time.Duration) { during(t, &considerEvery, d) }

// ContradictionPauses lets tests wait less long between looks at a contradiction.
func ContradictionPauses(t testing.TB, pauses ...time.Duration) {
	during(t, &contradictionPauses, func(bool) []time.Duration { return pauses })
}

// Confirming sets how often owners look for others, and for how long queries are answered after that.
func Confirming(t testing.TB, every, queries time.Duration) {
	during(t, &confirmEvery, every)
	during(t, &queriesFor, queries)
}

// EndlessWalks has no walk over the campaigns come to an end.
func EndlessWalks(t testing.TB) { during(t, &sliceIndex, 0) }
