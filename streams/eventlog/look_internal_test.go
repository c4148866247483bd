package eventlog

import (
	"errors"
	"testing"
)

// A consumer that delivers nothing is replaced after the second look that finds messages missing. Its successors may be
// placed on the same replica: each look replaces them, until one delivers.
func TestLooksReplaceSuccessorsToo(t *testing.T) {
	f := &Feed{last: 3}
	l := f.newLooks(t.Context())
	defer l.end()
	missing := look{last: 3, bounds: Bounds{Last: 5, Replicated: true}}
	for i, step := range []struct {
		found   look
		last    uint64 // delivered when the response arrives
		replace bool
	}{
		{missing, 3, false}, // it may be on its way
		{missing, 3, true},
		{missing, 3, true},
		{look{last: 3, err: errors.New("no response")}, 3, false},
		{missing, 3, true},
		{missing, 5, false}, // delivered meanwhile
		{look{last: 5, bounds: Bounds{Last: 6, Replicated: true}}, 5, false},
		{look{last: 5, bounds: Bounds{Last: 6, Replicated: true}}, 5, true},
	} {
		f.last = step.last
		if err := l.judge(step.found); (err != nil) != step.replace {
			t.Fatalf("look %d: error %v, want one: %v", i, err, step.replace)
		}
	}
	if l.every >= l.base {
		t.Errorf("a replicated stream is compared every %s, a single copy every %s", l.every, l.base)
	}
}
