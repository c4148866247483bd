package simtest

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"
)

var (
	oneSeed = flag.Uint64("sim.seed", 0, "run the world of this seed alone (0 = those from 1 to sim.seeds)")
	steps   = flag.Int("sim.steps", 1000, "how many things happen in a world")
	seeds   = flag.Uint64("sim.seeds", 200, "how many worlds are run")
)

// hidden is in how many worlds a planted bug may stay hidden.
const hidden = 1000

// Suite is the tests of one simulation.
type Suite[B any] struct {
	Package string // as go test names it
	New     func(t testing.TB, seed uint64, bug B) Sim
	// Must are things that come about by themselves, and must.
	Must []string
	// Form are the kinds of violations that no customer would notice.
	Form []string
}

// Plant is one broken rule. First is what the simulation may find first; Promises, if there are any, what it must find when
// the form is put aside.
type Plant[B any] struct {
	Name            string
	Bug             B
	First, Promises []string
}

// Simulation runs the worlds of all seeds. None may break a promise, and each trouble must have happened.
func (s Suite[B]) Simulation(t *testing.T) {
	first, last := uint64(1), *seeds
	if *oneSeed != 0 {
		first, last = *oneSeed, *oneSeed
	}
	counts := map[string]int{}
	var none B
	for seed := first; seed <= last; seed++ {
		w := s.New(t, seed, none)
		if found := run(w, *steps); found != nil {
			n := s.shrink(t, seed, found.Kind)
			t.Fatalf("%s\n\nseed %d, step %d: %s\nagain with: go test %s -run TestSimulation -sim.seed=%d -sim.steps=%d",
				strings.Join(w.Kernel().notes, "\n"), seed, w.Kernel().steps, found, s.Package, seed, n)
		}
		for what, n := range w.Kernel().counts {
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
	must := s.Must
	w := s.New(t, 1, none)
	defer w.Close()
	for _, a := range w.Kernel().acts {
		must = append(must, a.name)
	}
	for _, what := range must {
		if counts[what] == 0 {
			t.Errorf("never happened: %s", what)
		}
	}
}

// shrink looks for a number of steps, by halves, after which the healed world still breaks the same promise.
func (s Suite[B]) shrink(t testing.TB, seed uint64, kind string) int {
	var none B
	least := *steps
	for n := least / 2; n > 0; n /= 2 {
		if found := run(s.New(t, seed, none), n); found == nil || found.Kind != kind {
			break
		}
		least = n
	}
	return least
}

// Repeats runs worlds twice: the same happens, to the letter.
func (s Suite[B]) Repeats(t *testing.T) {
	var none B
	for seed := uint64(1); seed <= 10; seed++ {
		one, two := s.New(t, seed, none), s.New(t, seed, none)
		run(one, *steps)
		run(two, *steps)
		if a, b := one.Kernel(), two.Kernel(); len(a.notes) == 0 || !slices.Equal(a.notes, b.notes) || !maps.Equal(a.counts, b.counts) {
			t.Fatalf("seed %d does not repeat itself", seed)
		}
	}
}

// Finds breaks one rule at a time. The simulation must find each, as one of the things that the rule is there to prevent.
func (s Suite[B]) Finds(t *testing.T, plants []Plant[B]) {
	for _, p := range plants {
		t.Run(p.Name, func(t *testing.T) {
			s.hunt(t, p.Bug, nil, p.First)
			if p.Promises == nil {
				return
			}
			aside := map[string]bool{}
			for _, kind := range s.Form {
				aside[kind] = !slices.Contains(p.Promises, kind)
			}
			s.hunt(t, p.Bug, aside, p.Promises)
		})
	}
}

// hunt runs worlds until one breaks a promise that is not put aside, which must be an expected one.
func (s Suite[B]) hunt(t *testing.T, bug B, aside map[string]bool, expected []string) {
	t.Helper()
	for seed := uint64(1); seed <= hidden; seed++ {
		w := s.New(t, seed, bug)
		w.Kernel().Aside = aside
		found := run(w, *steps)
		if found == nil {
			continue
		}
		t.Logf("seed %d, step %d: %s", seed, w.Kernel().steps, strings.SplitN(found.String(), "\n", 2)[0])
		if !slices.Contains(expected, found.Kind) {
			t.Errorf("found %s, expected one of %q", found, expected)
		}
		return
	}
	t.Errorf("not found in %d worlds", hidden)
}
