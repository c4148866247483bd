package lane

import "time"

// ConsiderEvery lets tests have lanes think of snapshots more often. The function takes it back.
func ConsiderEvery(d time.Duration) (back func()) {
	was := considerEvery
	considerEvery = d
	return func() { considerEvery = was }
}

// ContradictionPauses lets tests wait less long between looks at a contradiction. The function takes it back.
func ContradictionPauses(pauses ...time.Duration) (back func()) {
	was := contradictionPauses
	contradictionPauses = func(bool) []time.Duration { return pauses }
	return func() { contradictionPauses = was }
}

// Confirming sets how often owners look for others, and for how long queries are answered after that. The function takes
// it back.
func Confirming(every, queries time.Duration) (back func()) {
	wasEvery, wasQueries := confirmEvery, queriesFor
	confirmEvery, queriesFor = every, queries
	return func() { confirmEvery, queriesFor = wasEvery, wasQueries }
}

// EndlessWalks has no walk over the campaigns come to an end. Call it before a lane is started; the function takes it back.
func EndlessWalks() (back func()) {
	was := sliceIndex
	sliceIndex = 0
	return func() { sliceIndex = was }
}
