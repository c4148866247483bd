package push

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// A gateway that becomes ten times slower, or fails, gets one call at a time after some calls, and all again when it is as
// before; one that answers at random between 20 and 180 ms gets all the time.
func TestThePaceFollowsTheGateway(t *testing.T) {
	const workers = 16
	p := pace{most: workers, limit: workers}
	now := time.Unix(1_800_000_000, 0)
	run := func(calls int, took func(i int) time.Duration, f gatewayState) int {
		for i := range calls {
			d := took(i)
			began := now
			now = now.Add(d / time.Duration(p.limit)) // as many are in progress as may be
			p.ended(f, began.Add(-d+d/time.Duration(p.limit)), now, 500, true)
		}
		return int(p.limit)
	}
	steady := func(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }
	jittery := func(i int) time.Duration { return time.Duration(20+i*7919%160) * time.Millisecond }
	streamtest.Equal(t, "calls at once to a jittery gateway", run(5_000, jittery, answered), workers)
	streamtest.Equal(t, "calls at once to a gateway ten times slower", run(100, steady(time.Second), answered), 1)
	streamtest.Equal(t, "calls at once when it is fast again", run(1_000, steady(100*time.Millisecond), answered), workers)
	streamtest.Equal(t, "calls at once while all fail", run(100, steady(time.Millisecond), failed), 1)
	streamtest.Equal(t, "calls at once when they are answered again", run(1_000, steady(100*time.Millisecond), answered), workers)
	streamtest.Equal(t, "calls at once when it was slow for very long", run(50_000, steady(400*time.Millisecond), answered), workers)
}

// While a gateway is ten times slower than before, what is high waits for the call in progress and its share of others, however many low
// ones wait.
func TestASlowGatewayDelaysLow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, 8)
		call := func(c class, took time.Duration) {
			turn := g.enter(t.Context(), c, true)
			if turn == nil {
				return
			}
			turn.customers = 500
			<-time.After(took)
			g.leave(turn, answered, 0)
		}
		lows := func(n int, took time.Duration) {
			for range n {
				go call(low, took)
			}
		}
		lows(400, 100*time.Millisecond)
		<-time.After(10 * time.Second)
		lows(1_000, time.Second)
		<-time.After(20 * time.Second)
		if _, limit, _, _ := g.state(); limit > 2 {
			t.Errorf("%d calls at once to a slow gateway", limit)
		}
		started := time.Now()
		call(high, time.Second)
		if took := time.Since(started); took > 3*time.Second {
			t.Errorf("high took %s", took)
		}
		<-time.After(time.Hour) // all others end
	})
}
