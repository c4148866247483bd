package eventlog

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A consumer that delivers nothing is replaced after the second look that finds messages missing. Its successors may be
// placed on the same replica: each look replaces them, until one delivers, and the next comes later each time.
func TestLooksReplaceSuccessorsToo(t *testing.T) {
	missing := look{last: 3, bounds: Bounds{Last: 5, Replicated: true}}
	lagging := look{last: 5, bounds: Bounds{Last: 6, Replicated: true}}
	synctest.Test(t, func(t *testing.T) {
		f := &Feed{last: 3}
		l := f.newLooks(t.Context())
		defer l.end()
		for i, step := range []struct {
			found   look
			last    uint64 // delivered when the response arrives
			replace bool
			next    time.Duration
		}{
			{look{last: 3, bounds: Bounds{Last: 3}}, 3, false, 5 * time.Second},                   // a single copy
			{look{last: 3, bounds: Bounds{Last: 3, Replicated: true}}, 3, false, 2 * time.Second}, // is compared less often than a replicated one
			{missing, 3, false, 500 * time.Millisecond},                                           // it may be on its way
			{missing, 3, true, time.Second},
			{missing, 3, true, 2 * time.Second},
			{look{last: 3, err: errors.New("no response")}, 3, false, 2 * time.Second},
			{missing, 3, true, 2 * time.Second},
			{missing, 5, false, 2 * time.Second}, // delivered by then
			{lagging, 5, false, 500 * time.Millisecond},
			{lagging, 5, true, time.Second},
		} {
			f.last = step.last
			if err := l.judge(step.found); (err != nil) != step.replace {
				t.Fatalf("look %d: error %v, want one: %v", i, err, step.replace)
			}
			l.schedule()
			started := time.Now()
			<-l.timer.C
			if next := time.Since(started); next != step.next {
				t.Errorf("look %d: the next one comes after %s, want %s", i, next, step.next)
			}
		}
	})
}

// A consumer whose queue is full delivers nothing because there is no reader: it is not replaced. The queue of a narrow stream is full
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
