package scheduler

import (
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/simtest"
)

// The simulation tries a lane and its schedulers in a world made of chance: no server, no goroutine, no real time, one
// seed.
//
//	people ─────┐                                             ┌── events ────> judge: never early, none left
//	            ├──> commands ──> domain.Lane (the real one) ──┤
//	requests ───────┘                                             └──> fold ──> timers, planner, fan (the real ones)
//	   ^   network: packets in any order, lost, late, twice                     │       └── published ──> judge: who fired, once, in order
//	   └────────────────────────────────────────────────────────────────────────┘
//
// In each step chance picks one thing that happens: a packet arrives, vanishes or is doubled; people do something; a
// scheduler does the next thing it can do, is stopped in its tracks, woken, killed, started from a snapshot; a clock is set,
// by seconds or hours, forwards or back. There are two schedulers for the one lane, and what stops them from publishing
// a customer twice is the fence of the reminder stream. At the end the world is healed, and nothing may be left that is due.
//
//	go test ./streams/scheduler -run TestSimulation -sim.seed=17 -sim.steps=1000 -v
//
// What proves that the judge can see is [TestPlantedBugs]: worlds in which one rule is broken.
var simSuite = simtest.Suite[simBug]{
	Package: "./streams/scheduler", New: newSimWorld,
	Must: []string{
		"reminders fired", "reminders dropped", "coupons expired", "request repeated", "reminder stream refused a write",
		"scheduler lost the reminder stream", "scheduler started with a snapshot", "fan-out resumed within a step", "a message publishes of several steps",
		"a firing was late, for its scheduler was down", "reminder stream refused what followed a refused message",
	},
}

// TestSimulation runs lane and schedulers through many worlds. None may break a promise.
func TestSimulation(t *testing.T) { simSuite.Simulation(t) }

// TestASeedDeterminesAll runs worlds twice: the same happens, to the letter.
func TestASeedDeterminesAll(t *testing.T) { simSuite.Repeats(t) }

// TestPlantedBugs breaks one rule at a time. The simulation must find each, and as one of the things that the rule is
// there to prevent.
func TestPlantedBugs(t *testing.T) {
	simSuite.Finds(t, []simtest.Plant[simBug]{
		{Name: "a planner that forgets what it requested", Bug: simBug{forgets: true}, First: []string{simLeft}},
		{Name: "a planner that requests again at once", Bug: simBug{hasty: true}, First: []string{simTwice}},
		{Name: "a planner that requests all at once", Bug: simBug{floods: true}, First: []string{simBounds}},
		{Name: "a planner that wakes up late", Bug: simBug{oversleeps: true}, First: []string{simAsleep}},
		{Name: "a planner that does not see its clock run back", Bug: simBug{blind: true}, First: []string{simLeft}},
		{Name: "a fan-out that does not pass over what was published", Bug: simBug{publishesAgain: true}, First: []string{simPublished}},
		{Name: "a snapshot taken while the fan-out is not done", Bug: simBug{unsettled: true}, First: []string{simPublished, simLeft}},
		{Name: "a scheduler that goes on one message after its snapshot", Bug: simBug{skips: true}, First: []string{simFits, simPublished, simLeft}},
		{Name: "a reminder stream without a fence", Bug: simBug{noFence: true}, First: []string{simPublished}},
		{Name: "a fan-out that takes another's message for its own", Bug: simBug{adopts: true}, First: []string{simPublished, simLeft}},
		{Name: "a fan-out that publishes again without reading what was stored", Bug: simBug{unresolved: true}, First: []string{simPublished, simStalls}},
		{Name: "a fan-out with several messages on their way that do not name each other", Bug: simBug{gallops: true}, First: []string{simPublished}},
		{Name: "a lane that believes the scheduler's clock", Bug: simBug{believes: true}, First: []string{simEarly}},
	})
}
