package push

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/priority"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

const (
	high   = priority.High
	normal = priority.Normal
	low    = priority.Low
)

// gated is a gate in a bubble of synctest, with workers that call a gateway.
type gated struct {
	*gate
	t     *testing.T
	back  time.Time   // calls are answered from then on; zero = never
	calls []time.Time // when calls were made, probes among them
}

func newGated(t *testing.T, workers int) *gated {
	o, err := Options{Name: "x", Workers: workers, Pause: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)}.withDefaults()
	streamtest.Must(t, err)
	g := &gated{gate: newGate(&o), t: t}
	t.Cleanup(g.end)
	return g
}

// call waits for a call, and makes it.
func (g *gated) call(c class, fresh bool, f gatewayState, retryAfter time.Duration) {
	t := g.enter(g.t.Context(), c, fresh)
	if t == nil {
		return // the test is over
	}
	g.mu.Lock()
	g.calls = append(g.calls, time.Now())
	if !g.back.IsZero() && !time.Now().Before(g.back) {
		f = answered
	}
	g.mu.Unlock()
	g.leave(t, f, retryAfter)
}

// made returns the number of calls.
func (g *gated) made() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.calls)
}

func (g *gated) away() bool { _, _, open, _ := g.state(); return open }

// While a gateway is away for an hour it gets a probe now and then, one at a time; the first that is answered lets all others
// go. It is away by what one call found, or where all calls fail for a while.
func TestTheGateOpensForProbes(t *testing.T) {
	for name, f := range map[string]gatewayState{"it cannot be reached": away, "every call fails": failed} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGated(t, 4)
				started := time.Now()
				g.back = started.Add(time.Hour)
				ended := make(chan struct{}, 10)
				for range cap(ended) {
					go func() {
						for time.Now().Before(g.back) {
							g.call(normal, false, f, 0)
							<-time.After(100 * time.Millisecond) // the next message
						}
						ended <- struct{}{}
					}()
				}
				<-time.After(11 * time.Second)
				if !g.away() {
					t.Error("the breaker is not open")
				}
				before := g.made()
				<-time.After(time.Until(g.back))
				if probes := g.made() - before; probes < 40 || probes > 100 {
					t.Errorf("%d calls within the hour", probes)
				}
				for range cap(ended) {
					<-ended
				}
				if f == away && g.calls[4].Sub(started) < time.Second {
					t.Error("the first probe was not after a pause")
				}
				if took := time.Since(g.back); took > 2*pauseMost || g.away() {
					t.Errorf("all went on after %s, open: %t", took, g.away())
				}
			})
		})
	}
}

// A gateway that fails some calls only is not away, and one that fails briefly is not either.
func TestTheGateStaysClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, 1)
		for range 3 * tripAfter { // all within less than tripPauses pauses
			g.call(normal, true, failed, 0)
		}
		for range 100 {
			g.call(normal, true, answered, 0)
			<-time.After(time.Second)
			for range tripAfter - 1 {
				g.call(normal, true, failed, 0)
				<-time.After(2 * time.Second)
			}
		}
		if g.away() || g.answered() != 100 {
			t.Errorf("open after %d answers", g.answered())
		}
	})
}

// A call for a campaign that has not failed is the probe after the first pause, however long the pauses have become.
func TestAFreshCampaignIsProbedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, 1)
		for !g.away() {
			g.call(again, false, failed, 0)
			<-time.After(2 * time.Second)
		}
		for range 8 {
			g.call(again, false, failed, 0)
		}
		started := time.Now()
		g.call(normal, true, answered, 0)
		if took := time.Since(started); took > 2*time.Second || g.away() {
			t.Errorf("the probe was made after %s, open: %t", took, g.away())
		}
	})
}

// No call is made before the Retry-After of the gateway is over, whatever probes would be due.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, 1)
		started := time.Now()
		g.call(normal, true, away, 2*time.Hour)
		if _, _, _, next := g.state(); !next.Equal(started.Add(2 * time.Hour)) {
			t.Errorf("the next probe is after %s", next.Sub(started))
		}
		g.call(normal, true, answered, 0)
		if took := time.Since(started); took != 2*time.Hour || g.away() {
			t.Errorf("the next call was made after %s, open: %t", took, g.away())
		}
	})
}

// Calls are shared by weight among the classes that wait, and in the order of arrival within one.
func TestTheSharesOfClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, 1)
		busy := g.enter(t.Context(), low, true)
		var got [classes]int
		order := make(chan class)
		for c := range classes {
			for range 130 {
				go func() {
					turn := g.enter(t.Context(), c, true)
					order <- c
					g.leave(turn, answered, 0)
				}()
			}
		}
		synctest.Wait()
		if turn, ok := g.try(t.Context(), high, true); turn != nil || ok {
			t.Error("a call is granted while all are taken")
		}
		g.leave(busy, untried, 0)
		for range 13 * 10 {
			got[<-order]++
		}
		if got != [classes]int{80, 30, 10, 10} {
			t.Errorf("shares %v", got)
		}
		for range 13 * 30 {
			<-order
		}
	})
}

// Who gives up waiting takes no call with it, also if it is granted in that moment.
func TestWhoGivesUpTakesNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, 1)
		busy := g.enter(t.Context(), normal, true)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan *turn)
		go func() { ended <- g.enter(ctx, normal, true) }()
		synctest.Wait()
		cancel()
		if turn := <-ended; turn != nil {
			t.Error("a call was granted")
		}
		g.leave(busy, answered, 0)
		if turn, ok := g.try(t.Context(), low, true); turn == nil || !ok {
			t.Error("the call is lost")
		}
	})
}

func TestPauseGrows(t *testing.T) {
	for pause, want := range map[time.Duration]string{
		2 * time.Second: "[2s 6s 18s 54s 1m0s 1m0s]",
		time.Hour:       "[1h0m0s 1h0m0s 1h0m0s 1h0m0s 1h0m0s 1h0m0s]",
	} {
		o := Options{Pause: pause}
		var got []time.Duration
		for tries := range 6 {
			got = append(got, o.pause(tries+1))
		}
		if fmt.Sprint(got) != want {
			t.Errorf("after %s: %v, want %s", pause, got, want)
		}
	}
}

// A process remembers the last messages it finished, and at most twice as many.
func TestTrackerForgetsTheOldest(t *testing.T) {
	d := newTracker()
	at := func(n int) messageID { return messageID{Sequence: uint64(n)} }
	for n := range 2*doneKept + 10 {
		if d.start(at(n)) != unknown || d.start(at(n)) != inFlight {
			t.Fatalf("message %d is not new, then in flight", n)
		}
		d.finish(at(n))
		d.leave(at(n))
	}
	if d.start(at(doneKept)) != finished || d.start(at(2*doneKept+9)) != finished || d.start(at(doneKept-1)) != unknown || len(d.before) != doneKept || d.inFlight() != 1 {
		t.Errorf("it remembers %d and %d of %d, and has %d in flight", len(d.done), len(d.before), doneKept, d.inFlight())
	}
	if d.start(messageID{Sequence: doneKept, Stored: 1}) != unknown {
		t.Error("another message at the same position is taken for the first")
	}
}
