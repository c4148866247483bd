package sim

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"
)

var (
	oneSeed = flag.Uint64("sim.seed", 0, "run this seed alone (0 = a few hundred)")
	steps   = flag.Int("sim.steps", 1000, "how many things happen in a run")
	seeds   = flag.Int("sim.seeds", 400, "how many seeds are run, from 1")
)

// TestSimulation runs the real protocol through a few hundred worlds. None may break a promise.
func TestSimulation(t *testing.T) {
	first, last := uint64(1), uint64(*seeds)
	if *oneSeed != 0 {
		first, last = *oneSeed, *oneSeed
	}
	counts := map[string]int{}
	for seed := first; seed <= last; seed++ {
		w := newWorld(seed, bug{})
		if found := w.run(*steps); found != nil {
			t.Fatalf("%s\n\n%s\n%s\nagain with: go test ./streams/lane/sim -run TestSimulation -sim.seed=%d -sim.steps=%d", strings.Join(w.notes, "\n"), w, found, seed, *steps)
		}
		for what, n := range w.counts {
			counts[what] += n
		}
	}
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%8d × %s", counts[what], what)
	}
	if *oneSeed != 0 {
		return
	}
	// A simulation in which trouble does not happen shows nothing.
	for _, d := range newWorld(1, bug{}).doings {
		if counts[d.name] == 0 {
			t.Errorf("never happened: %s", d.name)
		}
	}
}

// TestASeedSaysEverything runs a world twice: the same happens, to the letter.
func TestASeedSaysEverything(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		a, b := newWorld(seed, bug{}), newWorld(seed, bug{})
		a.run(*steps)
		b.run(*steps)
		if len(a.notes) == 0 || !slices.Equal(a.notes, b.notes) || !maps.Equal(a.counts, b.counts) {
			t.Fatalf("seed %d does not repeat itself", seed)
		}
	}
}
