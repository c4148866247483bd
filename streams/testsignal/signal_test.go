package testsignal

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type failing struct{ text string }

func (f *failing) Helper()                           {}
func (f *failing) Fatalf(format string, args ...any) { f.text = fmt.Sprintf(format, args...) }

func TestValuesArriveInOrder(t *testing.T) {
	var s Signal[int]
	s.Send(0) // not watched: nothing happens
	s.Watch()
	go func() {
		for i := range kept * 2 { // some are dropped where nobody waits, none blocks
			s.Send(i)
		}
	}()
	if got := s.Wait(t); got != 0 {
		t.Fatalf("the first value is %d", got)
	}
	if got := s.WaitFor(t, func(i int) bool { return i >= 100 }); got != 100 {
		t.Fatalf("waiting for 100 returned %d", got)
	}
}

func TestAFactThatNeverComesTrueFailsTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Signal[int]
		s.Watch()
		s.Send(7)
		var f failing
		start := time.Now()
		s.WaitFor(&f, func(i int) bool { return i == 8 })
		if !strings.Contains(f.text, "the last value was 7") || time.Since(start) != patience {
			t.Fatalf("after %s: %q", time.Since(start), f.text)
		}
	})
}
