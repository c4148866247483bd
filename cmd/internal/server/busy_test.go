package server

import (
	"testing"
	"time"
)

func TestPressure(t *testing.T) {
	now, count, loading := time.Unix(1000, 0), uint64(0), false
	p := &pressure{processed: func() uint64 { return count }, loading: func() bool { return loading }, now: func() time.Time { return now }}
	for i, step := range []struct {
		after    time.Duration
		commands uint64
		busy     bool
	}{
		{0, 1_000_000, false},                   // counted before anybody asked
		{busyOver, busyFrom / 20, false},        // half of it
		{busyOver, busyFrom / 10, true},         // just as many
		{busyOver / 2, 0, true},                 // judged a moment ago
		{busyOver / 2, 0, false},                // nothing for a whole interval
		{time.Minute, busyFrom * 60, true},      // nobody asked for a minute
		{busyOver, 0, false},                    // it is over
		{10 * busyOver, busyFrom/10 + 1, false}, // the same number, in more time
	} {
		now, count = now.Add(step.after), count+step.commands
		if got := p.Busy(); got != step.busy {
			t.Errorf("step %d: busy %v, want %v", i, got, step.busy)
		}
	}
	if loading = true; !p.Busy() {
		t.Error("a lane that loads does not count")
	}
	if loading = false; p.Busy() {
		t.Error("a lane that has loaded counts")
	}
}
