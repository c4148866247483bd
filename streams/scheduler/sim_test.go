package scheduler

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"
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
// anybody twice is the fence of the reminder stream. At the end the world is healed, and nothing may be left that is due.
//
//	go test ./streams/scheduler -run TestSimulation -sim.seed=17 -sim.steps=1000 -v
//
// What proves that the judge can see is [TestPlantedBugs]: worlds in which one rule is broken.
var (
	simSeed  = flag.Uint64("sim.seed", 0, "run this seed alone (0 = many)")
	simSteps = flag.Int("sim.steps", 800, "how many things happen in a run")
	simSeeds = flag.Int("sim.seeds", 200, "how many seeds are run, from 1")
)

// TestSimulation runs lane and schedulers through some hundred worlds. None may break a promise.
func TestSimulation(t *testing.T) {
	first, last := uint64(1), uint64(*simSeeds)
	if *simSeed != 0 {
		first, last = *simSeed, *simSeed
	}
	counts := map[string]int{}
	for seed := first; seed <= last; seed++ {
		w := newSimWorld(t, seed, simBug{})
		if found := w.run(*simSteps); found != nil {
			t.Fatalf("%s\n%s\nagain with: go test ./streams/scheduler -run TestSimulation -sim.seed=%d -sim.steps=%d", strings.Join(w.notes[max(0, len(w.notes)-200):], "\n"), found, seed, *simSteps)
		}
		for what, n := range w.counts {
			counts[what] += n
		}
	}
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%8d × %s", counts[what], what)
	}
	if *simSeed != 0 {
		return
	}
	// A simulation in which trouble does not happen shows nothing.
	for _, d := range newSimWorld(t, 1, simBug{}).doings {
		if counts[d.name] == 0 {
			t.Errorf("never happened: %s", d.name)
		}
	}
	for _, what := range simMust {
		if counts[what] == 0 {
			t.Errorf("never came about: %s", what)
		}
	}
}

// TestASeedDeterminesAll runs a world twice: the same happens, to the letter.
func TestASeedDeterminesAll(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		a, b := newSimWorld(t, seed, simBug{}), newSimWorld(t, seed, simBug{})
		a.run(*simSteps)
		b.run(*simSteps)
		if len(a.notes) == 0 || !slices.Equal(a.notes, b.notes) || !maps.Equal(a.counts, b.counts) {
			t.Fatalf("seed %d does not repeat itself", seed)
		}
	}
}

// TestPlantedBugs breaks one rule at a time. The simulation must find each, and as one of the things that the rule is
// there to prevent.
func TestPlantedBugs(t *testing.T) {
	for _, c := range []struct {
		name  string
		bug   simBug
		finds []string
	}{
		{"a planner that forgets what it requested", simBug{forgets: true}, []string{simLeft}},
		{"a planner that requests again at once", simBug{hasty: true}, []string{simTwice}},
		{"a planner that does not see its clock run back", simBug{blind: true}, []string{simLeft}},
		{"a fan-out that does not pass over what was published", simBug{publishesAgain: true}, []string{simPublished}},
		{"a snapshot taken while the fan-out is not done", simBug{unsettled: true}, []string{simPublished, simLeft}},
		{"a scheduler that goes on one message behind its snapshot", simBug{skips: true}, []string{simFits, simPublished, simLeft}},
		{"a reminder stream without a fence", simBug{noFence: true}, []string{simPublished}},
		{"a fan-out that takes another's message for its own", simBug{adopts: true}, []string{simPublished, simLeft}},
		{"a fan-out that publishes again without reading what was stored", simBug{unresolved: true}, []string{simPublished, simStalls}},
		{"a fan-out with several messages on their way that do not name each other", simBug{gallops: true}, []string{simPublished}},
		{"a lane that believes the scheduler's clock", simBug{believes: true}, []string{simEarly}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := uint64(1); seed <= 1000; seed++ {
				w := newSimWorld(t, seed, c.bug)
				found := w.run(*simSteps)
				if found == nil {
					continue
				}
				t.Logf("seed %d: %s", seed, found)
				if !slices.Contains(c.finds, found.kind) {
					t.Errorf("expected one of %q", c.finds)
				}
				return
			}
			t.Error("not found")
		})
	}
}
