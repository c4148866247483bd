package sim

import (
	"slices"
	"strings"
	"testing"
)

// withinSeeds is how many worlds a planted bug may stay hidden in.
const withinSeeds = 400

// TestPlantedBugs breaks one rule of the protocol at a time. The simulation must find each, and as one of the things
// that the rule is there to prevent: first whatever shows first, then, with the invariants put aside that no customer
// would notice (how the log is written, that a lane stops), a promise to people that is broken.
func TestPlantedBugs(t *testing.T) {
	for _, c := range []struct {
		name string
		bug  bug
		// first is what shows first, promises is what shows when form is put aside.
		first, promises []string
	}{
		{
			"no fence: the event store takes whatever it is given", bug{noFence: true},
			[]string{contiguous, oneHolder, monotone, sameAnswer, inTheLog, byTheWriter},
			[]string{oneHolder, sameAnswer, inTheLog, noEffect},
		},
		{
			"answers leave before the ack", bug{answerEarly: true},
			[]string{inTheLog, byTheWriter},
			[]string{inTheLog, sameAnswer, noEffect},
		},
		{
			"a repeat is answered without a step, by a process that believes to own the lane", bug{freeRepeats: true},
			[]string{inTheLog, byTheWriter},
			[]string{inTheLog, sameAnswer},
		},
		{
			"the covered range is ignored: an owner goes on at an acknowledged position", bug{ackPosition: true},
			[]string{contiguous},
			[]string{noEffect, stops}, // the next load of the log refuses the overlap
		},
		{
			"the covered range is ignored, and the steps pretend that it is not", bug{quietRepeats: true},
			[]string{noEffect, byTheWriter, inTheLog, sameAnswer},
			[]string{noEffect, inTheLog, sameAnswer},
		},
		{
			"the clock is not clamped", bug{wildClock: true},
			[]string{monotone},
			[]string{notTooLate},
		},
		{
			"a second write is in flight behind the first", bug{pipelined: true},
			[]string{contiguous, oneHolder, stuck},
			[]string{oneHolder, sameAnswer, inTheLog, noEffect},
		},
		{
			"a snapshot is not held against the log", bug{anySnapshot: true},
			[]string{oneHolder, contiguous, theFold, inTheLog},
			[]string{oneHolder, theFold, inTheLog},
		},
		{
			"the command stream is not held against the events", bug{anyCommands: true},
			[]string{stuck, noEffect},
			[]string{stuck, noEffect},
		},
		{
			"a lane that is only behind stops", bug{hasty: true},
			[]string{stops},
			[]string{stops},
		},
		{
			"bounds are believed although no leader gave them, at the first look", bug{anyFollower: true, firstLook: true},
			[]string{stops},
			[]string{stops},
		},
		{
			"a contradiction is believed when it is seen first", bug{firstLook: true},
			[]string{stops},
			[]string{stops},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			hunt(t, c.bug, nil, c.first)
			aside := map[string]bool{}
			for _, kind := range []string{contiguous, monotone, byTheWriter, stops, stuck} {
				aside[kind] = !slices.Contains(c.promises, kind)
			}
			hunt(t, c.bug, aside, c.promises)
		})
	}
}

// hunt runs worlds until one breaks an invariant that is not put aside, which must be an expected one.
func hunt(t *testing.T, b bug, aside map[string]bool, expected []string) {
	t.Helper()
	for seed := uint64(1); seed <= withinSeeds; seed++ {
		w := newWorld(seed, b)
		w.judge.aside = aside
		found := w.run(*steps)
		if found == nil {
			continue
		}
		t.Logf("%s: %s", w, strings.SplitN(found.text, "\n", 2)[0])
		if !slices.Contains(expected, found.kind) {
			t.Errorf("%s: found %s, expected one of %q", w, found, expected)
		}
		return
	}
	t.Errorf("not found in %d worlds", withinSeeds)
}
