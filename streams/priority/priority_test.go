package priority

import (
	"testing"

	"pgregory.net/rapid"
)

const most = 25_000 // what one costs at most

func shares(t *rapid.T) *Shares {
	return &Shares{Part: rapid.SampledFrom([]int{1, 20, 5_000}).Draw(t, "part")}
}

// While all of them wait, the priorities get 8 : 3 : 1 at any moment, whatever each costs: no one is ever further from its share
// than one round and one cost.
func TestShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shares(t)
		var served [All]int
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			p, ok := s.Next(func(p Priority) bool { return p < Campaigns })
			if !ok {
				t.Fatal("none goes, though all wait")
			}
			cost := rapid.IntRange(1, most).Draw(t, "cost")
			s.Pay(p, cost)
			served[p] += cost
			for p := range Campaigns {
				for q := range Campaigns {
					ahead := float64(served[p])/float64(weights[p]) - float64(served[q])/float64(weights[q])
					if bound := float64(s.Part) + most/float64(weights[p]); ahead > bound {
						t.Fatalf("after %v, %s is %g ahead of %s for its weight, more than %g", served, p, ahead, q, bound)
					}
				}
			}
		}
	})
}

// What waits goes before the others have gone on for much, whatever arrives and is paid, and a higher one that comes later waits no
// longer than the round. With none waiting, no credit and no debt is left.
func TestNothingStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shares(t)
		var waits, others [All]int // others: what went since p did, while p waited
		for range rapid.IntRange(1, 500).Draw(t, "steps") {
			for p := range All {
				if rapid.IntRange(0, 2).Draw(t, "arrives") == 0 {
					waits[p]++
				}
			}
			cost := rapid.IntRange(1, most).Draw(t, "cost")
			next, ok := s.Next(func(p Priority) bool { return waits[p] > 0 })
			if !ok {
				if waits != [All]int{} || s.credit != [All]int{} {
					t.Fatalf("none goes, though %v wait, with credit %v", waits, s.credit)
				}
				continue
			}
			s.Pay(next, cost)
			waits[next]--
			for p := range All {
				if p == next || waits[p] == 0 {
					others[p] = 0
				} else {
					others[p] += cost
				}
				// What it owes for one is paid by its part of so many rounds, and then there is the one in which it goes.
				needs := most/(weights[p]*s.Part) + 2
				if bound := needs*(13-weights[p])*s.Part + 3*most; others[p] > bound {
					t.Fatalf("%s waits while others go for %d, more than %d", p, others[p], bound)
				}
			}
		}
	})
}

// Where all wait the higher goes first; alone, one goes each time; a name is read as it is written, and no campaign has the priority of what failed before.
func TestHigherGoesFirst(t *testing.T) {
	s := &Shares{Part: 5_000}
	for want := range Campaigns {
		if p, _ := s.Next(func(Priority) bool { return true }); p != want {
			t.Errorf("%s goes before %s", p, want)
		}
		s.Pay(want, 8*s.Part)
	}
	s = &Shares{Part: 1}
	for range 100 {
		if p, ok := s.Next(func(p Priority) bool { return p == Low }); p != Low || !ok {
			t.Fatalf("%s goes", p)
		}
		s.Pay(Low, most)
	}
	for p := range All {
		if got, ok := Parse(p.String()); got != p || !ok {
			t.Errorf("%s is read as %s, %t", p, got, ok)
		}
	}
	if Of("") != Normal || Of("again") != Normal || Of("high") != High {
		t.Error("a setting is read as another priority")
	}
}
