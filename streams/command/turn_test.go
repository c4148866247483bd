package command

import (
	"slices"
	"testing"
	"time"
)

// turns is a Lanes whose messages are only counted: nothing is answered, and only the test sweeps.
func turns(t *testing.T) (c *Lanes, send func(n int), sent func(want ...int)) {
	t.Helper()
	n := newNetwork()
	n.always = fate{lost: true}
	c = newLanes(n, Options{inFlight: 3, RetryAfter: time.Hour})
	c.online.Store(true)
	send = func(n int) {
		t.Helper()
		for range n {
			if _, err := c.add(t.Context(), 0, "", claimLine("summer", "id", 0, make(waiter, 1))); err != nil {
				t.Fatal(err)
			}
		}
	}
	sent = func(want ...int) {
		t.Helper()
		if got := n.sizes(); !slices.Equal(got, want) {
			t.Fatalf("messages of %d lines left, expected %d", got, want)
		}
	}
	return c, send, sent
}

// together makes lines wait until all are there, as when the connection returns.
func together(c *Lanes, send func()) {
	c.online.Store(false)
	send()
	c.online.Store(true)
	c.eachRoute((*route).start)
}

// answerOldest ends the wait for the oldest message under way, as its outcomes would.
func answerOldest(t *testing.T, c *Lanes) {
	t.Helper()
	r := c.routes[0].Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	var oldest *batch
	for b := range r.inFlight {
		if oldest == nil || b.attempts[0].token < oldest.attempts[0].token {
			oldest = b
		}
	}
	if oldest == nil {
		t.Fatal("no message is under way")
	}
	for i := range oldest.entries {
		oldest.take(i)
	}
	r.finish(oldest)
	r.pump()
}

func TestFewLinesLeaveAtOnceWhileThereIsRoom(t *testing.T) {
	_, send, sent := turns(t)
	send(3)
	sent(1, 1, 1)
	send(1) // three messages are in flight
	sent(1, 1, 1)
}

// Of many callers those whose turn it is not make one message, not one each.
func TestAMessageBesideOthersCarriesMoreThanThey(t *testing.T) {
	c, send, sent := turns(t)
	together(c, func() { send(10) })
	sent(10)
	send(growthFactor*10 - 1)
	sent(10)
	send(1)
	sent(10, growthFactor*10)
	third := growthFactor * (10 + growthFactor*10)
	send(third - 1)
	sent(10, growthFactor*10)
	send(1)
	sent(10, growthFactor*10, third)
	send(400) // three messages are in flight
	sent(10, growthFactor*10, third)
	answerOldest(t, c)
	sent(10, growthFactor*10, third, 400)
}

// The last outcome that comes back takes the rest along, however little.
func TestWithNothingUnderWayTheRestLeaves(t *testing.T) {
	c, send, sent := turns(t)
	together(c, func() { send(100) })
	send(2)
	sent(100)
	answerOldest(t, c)
	sent(100, 2)
}

// A lost outcome must not delay other lines until its retry.
func TestTheSweepLetsABatchGoThatHasSeenItBefore(t *testing.T) {
	c, send, sent := turns(t)
	together(c, func() { send(100) })
	send(2)
	c.sweep(false)
	sent(100)
	send(1)
	c.sweep(false)
	sent(100, 3)
}

// Messages that are overdue leave their turns to others: as many again for each RetryAfter, not more.
func TestOverdueMessagesLeaveTheirTurns(t *testing.T) {
	c, send, sent := turns(t)
	together(c, func() { send(100) })
	send(200)
	send(600)
	sent(100, 200, 600)
	send(900)
	sent(100, 200, 600)
	c.born = c.born.Add(-c.opts.RetryAfter)
	c.sweep(false) // sends the three again, in any order
	state := func(messages, overdue, lines int) {
		t.Helper()
		if r := c.routes[0].Load(); len(r.inFlight) != messages || r.overdue != overdue || r.linesInFlight != lines {
			t.Fatalf("%d messages are in flight, %d overdue, and %d lines of the others; expected %d, %d, %d",
				len(r.inFlight), r.overdue, r.linesInFlight, messages, overdue, lines)
		}
	}
	state(4, 3, 900)
	for range 3 { // the third finds three messages in flight that are not overdue
		send(5)
		c.sweep(false)
		c.sweep(false)
	}
	state(6, 3, 910)
	c.born = c.born.Add(-c.opts.RetryAfter)
	c.sweep(false)
	state(7, 6, 5)
	for range 6 {
		answerOldest(t, c)
	}
	state(1, 0, 5)
	answerOldest(t, c)
	state(0, 0, 0)
}
