package load

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLevel(t *testing.T) {
	synctest.Test(t, testLevel)
}

func testLevel(t *testing.T) {
	m := NewMeter(2)
	for i, step := range []struct {
		after time.Duration
		done  uint64
		want  Level
	}{
		{0, 1_000_000, Idle},                   // counted before the first call
		{busyOver, busyFrom / 20, Idle},        // half of it
		{busyOver, busyFrom / 10, Busy},        // just as many
		{busyOver / 2, 0, Busy},                // measured a moment ago
		{busyOver / 2, 0, Idle},                // nothing for a whole interval
		{time.Minute, busyFrom * 60, Busy},     // no call for a minute
		{busyOver, 0, Idle},                    // it is over
		{10 * busyOver, busyFrom/10 + 1, Idle}, // the same number, in more time
	} {
		time.Sleep(step.after)
		m.Lanes[i%2].Done.Add(step.done)
		if got := m.Level(); got != step.want {
			t.Errorf("step %d: level %v, want %v", i, got, step.want)
		}
	}
	m.Lanes[1].Loading.Store(true)
	if got := m.Level(); got != Busy {
		t.Errorf("level %v while a lane loads", got)
	}
	m.Lanes[0].Bursting.Store(true)
	if got := m.Level(); got != Burst {
		t.Errorf("level %v in a burst", got)
	}
	m.Lanes[0].Bursting.Store(false)
	m.Lanes[1].Loading.Store(false)
	if got := m.Level(); got != Idle {
		t.Errorf("level %v after all", got)
	}
	if got := (*Meter)(nil).Level(); got != Idle {
		t.Errorf("level %v of no meter", got)
	}
}

func TestClients(t *testing.T) {
	synctest.Test(t, testClients)
}

func testClients(t *testing.T) {
	m := NewMeter(2)
	if m.Clients() {
		t.Error("clients before the first command")
	}
	m.Lanes[1].Client.Store(time.Now().UnixNano())
	if time.Sleep(clientWithin - time.Nanosecond); !m.Clients() {
		t.Error("no clients after a command of one")
	}
	if time.Sleep(time.Nanosecond); m.Clients() {
		t.Error("clients a second after the last command")
	}
}
