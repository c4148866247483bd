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

// ContradictionPauses lets tests wait less long between looks at a contradiction.
func ContradictionPauses(t testing.TB, pauses ...time.Duration) {
	during(t, &checkPauses, func(bool) []time.Duration { return pauses })
}

// EndlessWalks has no walk over the campaigns come to an end.
func EndlessWalks(t testing.TB) { during(t, &sliceIndex, 0) }

// Watched returns the lane's signals. Call it before the lane runs.
func (l *Lane) Watched() *signals {
	l.signals.Reported.Watch()
	l.signals.Configured.Watch()
	l.signals.Confirmed.Watch()
	l.signals.Purged.Watch()
	l.signals.Saved.Watch()
	return &l.signals
}

// Signals returns the signals of a lane that is watched.
func (l *Lane) Signals() *signals { return &l.signals }
