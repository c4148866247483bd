package sim

import (
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/simtest"
)

var suite = simtest.Suite[bug]{
	Package: "./streams/lane/sim", New: newWorld,
	Form: []string{contiguous, monotone, byTheWriter, stops, stuck},
}

// TestSimulation runs the real protocol through many worlds. None may break a promise.
func TestSimulation(t *testing.T) { suite.Simulation(t) }

// TestASeedSaysEverything runs worlds twice: the same happens, to the letter.
func TestASeedSaysEverything(t *testing.T) { suite.Repeats(t) }

// TestPlantedBugs breaks one rule of the protocol at a time. The simulation must find each, and as one of the things
// that the rule is there to prevent: first whatever shows first, then, with the form put aside that no customer would
// notice (how the log is written, that a lane stops), a promise to people that is broken.
func TestPlantedBugs(t *testing.T) {
	suite.Finds(t, []simtest.Plant[bug]{
		{
			Name: "no fence: the event store takes whatever it is given", Bug: bug{noFence: true},
			First:    []string{contiguous, oneHolder, monotone, sameAnswer, inTheLog, byTheWriter},
			Promises: []string{oneHolder, sameAnswer, inTheLog, noEffect},
		},
		{
			Name: "answers leave before the ack", Bug: bug{answerEarly: true},
			First:    []string{inTheLog, byTheWriter},
			Promises: []string{inTheLog, sameAnswer, noEffect},
		},
		{
			Name: "a repeat is answered without a step, by a process that believes to own the lane", Bug: bug{freeRepeats: true},
			First:    []string{inTheLog, byTheWriter},
			Promises: []string{inTheLog, sameAnswer},
		},
		{
			Name: "the covered range is ignored: an owner goes on at an acknowledged position", Bug: bug{ackPosition: true},
			First:    []string{contiguous},
			Promises: []string{noEffect, stops}, // the next load of the log refuses the overlap
		},
		{
			Name: "the covered range is ignored, and the steps pretend that it is not", Bug: bug{quietRepeats: true},
			First:    []string{noEffect, byTheWriter, inTheLog, sameAnswer},
			Promises: []string{noEffect, inTheLog, sameAnswer},
		},
		{
			Name: "the clock is not clamped", Bug: bug{wildClock: true},
			First:    []string{monotone},
			Promises: []string{promises},
		},
		{
			Name: "a second write is in flight after the first", Bug: bug{pipelined: true},
			First:    []string{contiguous, oneHolder, stuck},
			Promises: []string{oneHolder, sameAnswer, inTheLog, noEffect},
		},
		{
			Name: "a snapshot is not held against the log", Bug: bug{anySnapshot: true},
			First:    []string{oneHolder, contiguous, theFold, inTheLog},
			Promises: []string{oneHolder, theFold, inTheLog},
		},
		{
			Name: "the command stream is not held against the events", Bug: bug{anyCommands: true},
			First:    []string{stuck, noEffect},
			Promises: []string{stuck, noEffect},
		},
		{
			Name: "a lane that only lags stops", Bug: bug{hasty: true},
			First:    []string{stops},
			Promises: []string{stops},
		},
		{
			Name: "bounds are believed although no leader gave them, at the first look", Bug: bug{anyFollower: true, firstLook: true},
			First:    []string{stops},
			Promises: []string{stops},
		},
		{
			Name: "a contradiction is believed when it is seen first", Bug: bug{firstLook: true},
			First:    []string{stops},
			Promises: []string{stops},
		},
	})
}
