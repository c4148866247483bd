package compare

import (
	"iter"
	"slices"
	"strconv"
	"testing"
)

func TestRowsAreComparedAsTheyAre(t *testing.T) {
	rows := func(list ...string) iter.Seq[string] { return slices.Values(list) }
	log := func(list ...string) func(func(string)) {
		return func(yield func(string)) {
			for _, row := range list {
				yield(row)
			}
		}
	}
	if d := compare("coupon", rows("a", "b", "b"), log("b", "a", "b")); d != nil {
		t.Errorf("the same rows differ: %q", d)
	}
	d := compare("coupon", rows("a", "c", "c"), log("a", "b", "b", "c"))
	if want := []string{"coupon: only in the table: c", "coupon: only in the log: b", "coupon: only in the log: b"}; !slices.Equal(d, want) {
		t.Errorf("%q, want %q", d, want)
	}
	many := func(yield func(string) bool) {
		for i := range 3 * maxShown {
			if !yield(strconv.Itoa(i)) {
				return
			}
		}
	}
	if d := compare("coupon", many, log("1", "2")); len(d) != maxShown+1 || d[maxShown] != "coupon: … and 18 more rows differ" {
		t.Errorf("%q", d)
	}
}
