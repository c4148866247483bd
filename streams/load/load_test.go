package load

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// calls returns a level so many times, and then Idle.
func calls(n int, level Level) func() Level {
	return func() Level {
		if n--; n < 0 {
			return Idle
		}
		return level
	}
}

const always = 1 << 30

// The pauses after a batch, and before it in a burst, by the simulated time of package synctest.
func TestPauses(t *testing.T) {
	for _, c := range []struct {
		name          string
		level         func() Level
		took          time.Duration
		before, after time.Duration
	}{
		{"four times the work", calls(always, Busy), 5 * time.Millisecond, 0, 20 * time.Millisecond},
		{"not in whole looks", calls(always, Busy), 3 * time.Millisecond, 0, 12 * time.Millisecond},
		{"two seconds at most", calls(always, Busy), 10 * time.Second, 0, 2 * time.Second},
		{"not busy", calls(0, Busy), time.Second, 0, 0},
		{"not busy any more when it is done", calls(2, Busy), time.Second, 0, 0},
		{"ends when the lanes are done", calls(5, Busy), time.Second, 0, 3 * lookEvery}, // two looks before the work
		{"a burst that ends", calls(3, Burst), time.Second, 3 * lookEvery, 0},
		{"a burst that goes on", calls(always, Burst), 5 * time.Millisecond, burstMost, 20 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				throttle := &Throttle{Level: c.level, Times: 4, Longest: 2 * time.Second}
				called := time.Now()
				var started time.Time
				err := throttle.Work(t.Context(), func() error { started = time.Now(); time.Sleep(c.took); return nil })
				before, after := started.Sub(called), time.Since(started)-c.took
				if err != nil || before != c.before || after != c.after {
					t.Errorf("paused %s before and %s after, want %s and %s (%v)", before, after, c.before, c.after, err)
				}
			})
		})
	}
}

func TestSlotIsReleasedAfterEveryBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		throttle := &Throttle{Level: calls(always, Busy), Times: 4, Longest: time.Second}
		started := time.Now()
		if err := throttle.Work(t.Context(), func() error { return broken }); !errors.Is(err, broken) || time.Since(started) > 0 {
			t.Errorf("error %v, paused %s", err, time.Since(started))
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := throttle.Work(ended, func() error { return ended.Err() }); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if len(throttle.slot) > 0 {
			t.Error("the slot was not released")
		}
	})
}

// While the lanes are busy one batch runs at a time, its pause included; a batch that waits starts when they are idle.
func TestOneBatchAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		throttle := &Throttle{Times: 4, Longest: time.Minute, Level: func() Level {
			if time.Since(started) < 7*time.Second {
				return Busy
			}
			return Idle
		}}
		var all sync.WaitGroup
		var mu sync.Mutex
		var starts []time.Duration
		for range 4 {
			all.Go(func() {
				_ = throttle.Work(t.Context(), func() error {
					mu.Lock()
					starts = append(starts, time.Since(started).Round(100*time.Millisecond))
					mu.Unlock()
					time.Sleep(time.Second)
					return nil
				})
			})
		}
		all.Wait()
		if want := []time.Duration{0, 5 * time.Second, 7 * time.Second, 7 * time.Second}; !slices.Equal(starts, want) {
			t.Errorf("batches started after %v, want %v", starts, want)
		}
	})
}

// A caller that starts its next batch at once does not overtake the one that waits.
func TestCallersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		throttle := &Throttle{Times: 4, Longest: time.Second, Level: func() Level { return Busy }}
		var all sync.WaitGroup
		var callers []int // written by the one that has the slot
		for caller := range 2 {
			all.Go(func() {
				for range 5 {
					_ = throttle.Work(t.Context(), func() error {
						callers = append(callers, caller)
						time.Sleep(3 * time.Millisecond) // it is released between two looks of the other
						return nil
					})
				}
			})
		}
		all.Wait()
		for i := range callers[1:] {
			if callers[i] == callers[i+1] {
				t.Fatalf("the callers' batches ran in the order %v", callers)
			}
		}
	})
}

func TestLevel(t *testing.T) { synctest.Test(t, level) }

func level(t *testing.T) {
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

func TestClients(t *testing.T) { synctest.Test(t, clients) }

func clients(t *testing.T) {
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
