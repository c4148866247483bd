package wall

import (
	"testing"
	"time"
)

// clocks are set by tests.
type clocks struct {
	wall      time.Time
	up        time.Duration
	tolerance time.Duration
	accepted  time.Time
}

func newClocks() (*clocks, *Guard) {
	m := &clocks{wall: time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC), up: time.Hour, tolerance: DefaultTolerance}
	return m, New(Options{
		Wall: func() time.Time { return m.wall }, Steady: func() time.Duration { return m.up },
		Tolerance: func() time.Duration { return m.tolerance },
		Accepted:  func() time.Time { return m.accepted },
	})
}

func (m *clocks) pass(d time.Duration) { m.wall, m.up = m.wall.Add(d), m.up+d }
func (m *clocks) set(by time.Duration) { m.wall = m.wall.Add(by) }

func expect(t *testing.T, c *Guard, now time.Time, step time.Duration) {
	t.Helper()
	if got, ahead := c.Now(), c.Step(); !got.Equal(now) || ahead != step {
		t.Fatalf("it is %s, %s ahead; want %s, %s", got, ahead, now, step)
	}
}

func TestAClockSetAheadIsHeld(t *testing.T) {
	m, c := newClocks()
	m.pass(time.Minute)
	expect(t, c, m.wall, 0)
	right := m.wall
	m.set(2*time.Hour + 13*time.Minute)
	expect(t, c, right, 2*time.Hour+13*time.Minute)
	m.pass(10 * time.Minute)
	expect(t, c, right.Add(10*time.Minute), 2*time.Hour+13*time.Minute)
	m.set(time.Hour)
	expect(t, c, right.Add(10*time.Minute), 3*time.Hour+13*time.Minute)
	m.set(-3*time.Hour - 13*time.Minute) // it is corrected
	expect(t, c, m.wall, 0)
	m.set(-time.Hour)
	expect(t, c, m.wall, 0)
}

func TestAStepWithinTheToleranceIsFollowed(t *testing.T) {
	m, c := newClocks()
	for range 10 {
		m.set(DefaultTolerance)
		expect(t, c, m.wall, 0)
	}
	m.set(DefaultTolerance + 1)
	expect(t, c, m.wall.Add(-DefaultTolerance-1), DefaultTolerance+1)
}

func TestARaisedToleranceAcceptsTheClock(t *testing.T) {
	m, c := newClocks()
	m.set(time.Hour)
	expect(t, c, m.wall.Add(-time.Hour), time.Hour)
	m.tolerance = 2 * time.Hour
	expect(t, c, m.wall, 0)
	m.tolerance = DefaultTolerance
	expect(t, c, m.wall, 0)
	m.pass(time.Second)
	expect(t, c, m.wall, 0)
}

// What was accepted is the step that was seen before, not one that comes later, and only if the clock by which it was
// accepted agrees with the one that was set.
func TestAStepThatIsAccepted(t *testing.T) {
	m, c := newClocks()
	right := m.wall
	m.set(time.Hour)
	expect(t, c, right, time.Hour)
	for name, at := range map[string]time.Time{"by a clock that was not set": right, "by one that is further ahead": m.wall.Add(time.Hour)} {
		m.accepted = at
		if c.Step() != time.Hour {
			t.Fatalf("accepted %s", name)
		}
	}
	m.pass(time.Minute)
	m.accepted = m.wall
	expect(t, c, m.wall, 0)
	m.pass(time.Minute)
	expect(t, c, m.wall, 0)

	right = m.wall
	m.set(time.Hour)
	expect(t, c, right, time.Hour)
	m.pass(time.Minute)
	m.accepted = m.wall
	m.set(time.Hour) // once more, after the confirmation
	expect(t, c, right.Add(time.Minute), 2*time.Hour)
	m.pass(time.Minute)
	m.accepted = m.wall
	expect(t, c, m.wall, 0)
}

// While a machine is suspended both clocks go on.
func TestASuspendedMachineIsBelieved(t *testing.T) {
	m, c := newClocks()
	m.pass(12 * time.Hour)
	expect(t, c, m.wall, 0)
}

// The machine's own clocks go at one pace, and a time that was read the short way is a base like any other.
func TestTheRealClock(t *testing.T) {
	ahead := time.Duration(0)
	c := New(Options{Wall: func() time.Time { return time.Now().Add(ahead) }})
	for range 1000 {
		if now := c.Now(); time.Since(now).Abs() > time.Minute || c.Step() != 0 {
			t.Fatalf("it is %s, %s ahead", now, c.Step())
		}
	}
	if !monotonic(c.wall) {
		t.Fatal("the short way was not taken")
	}
	// What time.Now().Add gives moved both its readings; a clock that was set moves the wall's alone.
	c.o.Wall = func() time.Time { return time.Now().Round(0).Add(time.Hour) }
	if step := c.Step(); (step - time.Hour).Abs() > time.Minute {
		t.Fatalf("%s ahead", step)
	}
}

func BenchmarkNow(b *testing.B) {
	c := New(Options{})
	for b.Loop() {
		c.Now()
	}
}
