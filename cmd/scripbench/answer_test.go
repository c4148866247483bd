package main

import (
	"errors"
	"strings"
	"testing"
	"time"
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

// TestHistogram compares with numbers known in advance: 1 to 10,000 ms, from several goroutines' shards.
func TestHistogram(t *testing.T) {
	l := newLatencies()
	for i := 1; i <= 10_000; i++ {
		l.record(i, time.Duration(i)*time.Millisecond)
	}
	near := func(got int64, want time.Duration) bool {
		w := want.Microseconds()
		return got >= w-w/500 && got <= w+w/500 // three digits
	}
	got := l.result()
	if !near(got.P50, 5*time.Second) || !near(got.P99, 9900*time.Millisecond) || !near(got.P999, 9990*time.Millisecond) || !near(got.Max, 10*time.Second) {
		t.Errorf("%+v", got)
	}
	edges := newLatencies()
	edges.record(0, 0)
	edges.record(0, time.Hour)
	if got := edges.result(); got.P50 != leastLatency || !near(got.Max, mostLatency*time.Microsecond) {
		t.Errorf("outside of the bounds: %+v", got)
	}
	many := newLatencies()
	many.recordMany(1, time.Millisecond, 999)
	many.record(2, time.Second)
	if got := many.result(); !near(got.P99, time.Millisecond) || !near(got.Max, time.Second) {
		t.Errorf("a batch counts as often as it has operations: %+v", got)
	}
}
