// Package testsignal lets a test wait for a fact inside a goroutine by name, instead of polling for its effects. The design
// is that of rivershared/testsignal of River.
//
//	type signals struct{ Stored testsignal.Signal[uint64] }   a field of what runs; the zero value does nothing
//	o.signals.Stored.Send(seq)                                in the product, where the fact becomes true
//	o.signals.Stored.Watch(); …; seq := o.signals.Stored.Wait(t)   in the test, Watch before the goroutine starts
//
// Owner: a signal belongs to the struct that sends it. What a crash does: nothing is stored.
package testsignal

import (
	"fmt"
	"time"
)

const (
	// kept is how many values that no test has received yet a signal holds.
	kept = 1 << 10
	// patience is far beyond what a busy machine needs; only a fact that never comes true takes so long.
	patience = 3 * time.Minute
)

// Signal carries a value each time when a fact becomes true. The zero Signal is not watched: Send does nothing and costs
// one comparison.
type Signal[T any] struct{ values chan T }

// TB is the part of testing.TB that Wait needs: the product does not link package testing.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Watch makes Send keep its values for Wait. Call it before the sender's goroutine starts.
func (s *Signal[T]) Watch() { s.values = make(chan T, kept) }

// Send reports that the fact became true. It never blocks: while 1,024 values wait, further ones are dropped.
func (s *Signal[T]) Send(value T) {
	if s.values == nil {
		return
	}
	select {
	case s.values <- value:
	default:
	}
}

// Wait returns the next value, in the order in which they were sent, and fails the test after three minutes.
func (s *Signal[T]) Wait(t TB) T {
	t.Helper()
	return s.WaitFor(t, func(T) bool { return true })
}

// WaitFor drops values until one is accepted, and returns it.
func (s *Signal[T]) WaitFor(t TB, accept func(T) bool) (value T) {
	t.Helper()
	if s.values == nil {
		t.Fatalf("the signal is not watched: call Watch before the sender starts")
	}
	var last string
	for end := time.After(patience); ; {
		select {
		case value = <-s.values:
			if accept(value) {
				return value
			}
			last = fmt.Sprintf("; the last value was %v", value)
		case <-end:
			t.Fatalf("waited %s in vain for a signal%s", patience, last)
			return value
		}
	}
}
