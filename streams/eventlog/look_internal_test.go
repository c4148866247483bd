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

// A consumer whose queue is full delivers nothing because nobody reads: it is not replaced. The queue of a narrow stream is full
// earlier.
func TestAFullQueueIsNoLag(t *testing.T) {
	for _, s := range []Stream{{}, Stream{}.Narrow()} {
		for bytes, replaced := range map[int]bool{s.feedBytes() - 1: true, s.feedBytes(): false} {
			f := &Feed{stream: s, last: 3, bytes: bytes}
			l := f.newLooks(t.Context())
			missing := look{last: 3, bounds: Bounds{Last: 5}}
			_ = l.judge(missing)
			if err := l.judge(missing); (err != nil) != replaced {
				t.Errorf("with %d of %d bytes: %v, want an error: %t", bytes, s.feedBytes(), err, replaced)
			}
			l.end()
		}
	}
}
