package simtest

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// counter is a world in which a promise is broken at the fortieth packet, if the bug is planted.
type counter struct {
	*World
	arrived int
}

func newCounter(_ testing.TB, seed uint64, bug bool) Sim {
	c := &counter{World: New(seed)}
	c.Act("send", 2, func() bool {
		c.Send("packet", func() {
			if c.arrived++; c.arrived >= 40 && bug {
				c.Violate("too many", "%d", c.arrived)
			}
		})
		return true
	})
	c.Act("arrive", 2, c.Arrive)
	c.Act("lose", c.Sometimes(1), c.Lose)
	c.Act("double", c.Sometimes(1), c.Double)
	return c
}

func (c *counter) Look()  {}
func (c *counter) Close() {}
func (c *counter) Heal() {
	for c.InFlight() > 0 {
		c.ArriveNext()
	}
}

func TestSuite(t *testing.T) {
	s := Suite[bool]{Package: "./streams/simtest", New: newCounter}
	s.Simulation(t)
	s.Repeats(t)
	s.Finds(t, []Plant[bool]{{Name: "counted", Bug: true, First: []string{"too many"}}})
	s.New = func(t testing.TB, seed uint64, _ bool) Sim { return newCounter(t, seed, true) }
	if n := s.shrink(t, 1, "too many"); n < 40 || n > 200 {
		t.Errorf("shrunk to %d steps", n)
	}
	w := newCounter(t, 1, true)
	if w.Kernel().Aside = map[string]bool{"too many": true}; run(w, 1000) != nil {
		t.Error("what is put aside is found")
	}
}

func TestAStreamHasAFence(t *testing.T) {
	var s Stream
	first := eventlog.Attempt{Header: nats.Header{}, ID: "a"}
	s.Write("x", first, New(1).Now, true)
	for _, c := range []struct {
		a               eventlog.Attempt
		number, follows bool
	}{
		{first, false, true},
		{eventlog.Attempt{Expected: 1, After: "a"}, true, true},
		{eventlog.Attempt{Expected: 1, After: "b"}, true, false},
	} {
		if number, follows := s.Fence(c.a); number != c.number || follows != c.follows {
			t.Errorf("%+v: %t, %t", c.a, number, follows)
		}
	}
	backup := s.Copy()
	s.Write("x", eventlog.Attempt{Expected: 1}, New(1).Now, false)
	if s.Cut(s.Synced); s.Last != 1 || s.Epoch != 1 {
		t.Errorf("it ends at %d", s.Last)
	}
	s.Trim(2)
	if _, err := s.Get(1); err == nil || s.First() != 2 {
		t.Errorf("it starts at %d", s.First())
	}
	if s.Restore(backup); s.First() != 1 || s.Epoch != 2 {
		t.Errorf("restored, it starts at %d", s.First())
	}
}
