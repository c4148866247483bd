package main

import (
	"errors"
	"strings"
	"testing"
)

func TestWrongAnswersAreFound(t *testing.T) {
	hot := newPlan(workload{campaigns: 1}, "hot", 4, 1)
	storm := newPlan(workload{campaigns: 1, share: 2}, "storm", 4, 1) // two coupons for four
	w := func(c string) answer { return answer{verdict: won, code: c} }
	no := answer{verdict: refused}
	for _, c := range []struct {
		name    string
		p       *plan
		answers []answer
		wrong   string // "" = all is well
	}{
		{"all have one", hot, []answer{w("a"), w("b"), w("c"), w("d")}, ""},
		{"a run that ended early", hot, []answer{w("a"), {}, w("c"), {}}, ""},
		{"one code twice", hot, []answer{w("a"), w("b"), w("a"), w("d")}, "given out twice"},
		{"no code", hot, []answer{w(""), w("b"), w("c"), w("d")}, "without a code"},
		{"an error", hot, []answer{w("a"), failure(errors.New("broke")), w("c"), w("d")}, "operation 1: broke"},
		{"refused for nothing", hot, []answer{w("a"), no, w("c"), w("d")}, "only 3 of 4"},
		{"sold out", storm, []answer{no, w("a"), w("b"), no}, ""},
		{"sold too many", storm, []answer{w("a"), w("b"), w("c"), no}, "there are 2"},
		{"refused too early", storm, []answer{w("a"), no, no, no}, "only 1 of 2"},
	} {
		_, err := tallyOf(c.p, c.answers)
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.wrong)
		}
	}
}

func TestPlansAreTheSameForAll(t *testing.T) {
	w := workload{campaigns: 100}
	a, b := newPlan(w, "x", 5000, 7), newPlan(w, "x", 5000, 7)
	seen := make([]int, 100)
	for i := range a.n {
		if a.campaign(i) != b.campaign(i) || a.customer(i) != b.customer(i) {
			t.Fatalf("operation %d differs", i)
		}
		seen[a.index(i)]++
	}
	for c, n := range seen {
		if a.codes[c] != max(1, n) {
			t.Errorf("campaign %d has %d coupons for %d customers", c, a.codes[c], n)
		}
	}
	if seen[0] < 500 || seen[0] > 3000 || seen[0] <= seen[50] {
		t.Errorf("not Zipf: %v", seen)
	}
	if a.customer(1) == a.customer(2) {
		t.Error("a customer claims twice")
	}
}

func TestCodesAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for c := range 50 {
		for n := range 200 {
			v := code(c, n)
			if seen[v] || len(v) != len("XXXX-XXXX-XXXX") || v[4] != '-' || v[9] != '-' {
				t.Fatalf("campaign %d, number %d: %s", c, n, v)
			}
			seen[v] = true
		}
	}
}
