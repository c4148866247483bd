package lease

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func TestMain(m *testing.M) {
	streamtest.VerifyTestMain(m)
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// Servers that join and leave cleanly cost no time: nothing here waits.
func TestServersJoinAndLeave(t *testing.T) {
	inBubble(t, keys, func(t *testing.T, o *office) {
		a := o.start("a")
		o.spread("a")
		b := o.start("b")
		o.spread("a", "b")
		c := o.start("c")
		o.spread("a", "b", "c")
		status := o.inspect()
		if !slices.Equal(status.Servers, []string{"a", "b", "c"}) {
			t.Errorf("servers %q", status.Servers)
		}
		for _, h := range status.Holders {
			if h.Server == "" || h.Since.IsZero() || h.Revision == 0 {
				t.Errorf("holder %+v", h)
			}
		}
		a.stop()
		o.spread("b", "c")
		b.stop()
		o.spread("c")
		if o.twice {
			t.Error("a lease went to the next server before the work of the last had returned")
		}
		c.stop()
		if status := o.inspect(); len(status.Servers) > 0 || slices.ContainsFunc(status.Holders, func(h Holder) bool { return h.Server != "" }) {
			t.Errorf("after the last: %+v", status)
		}
	})
}

// A server that is silent, dead or cut off, loses its leases to the others after 3 to 5 seconds. Cut off, it goes on until it
// can see that.
func TestTakeoverOfTheSilent(t *testing.T) {
	inBubble(t, keys, func(t *testing.T, o *office) {
		silent := o.start("silent")
		o.start("next")
		pass(time.Minute)
		o.spread("silent", "next")
		o.causes = map[string][]error{} // what one gave to the other
		silent.cut(true)
		pass(2900 * time.Millisecond)
		o.spread("silent", "next")
		pass(2200 * time.Millisecond)
		for key := range keys {
			if at := o.at(key); !slices.Contains(at, "next") {
				t.Errorf("after 5.1 s key %d is worked on by %s", key, at)
			}
		}
		if n := len(o.causes["silent"]); n > 0 {
			t.Error("work was cancelled although no other owner was seen")
		}
		silent.cut(false)
		pass(TTL)
		o.spread("next", "silent")
		for _, cause := range o.causes["silent"] {
			if !errors.Is(cause, ErrLost) && !errors.Is(cause, ErrReleased) {
				t.Errorf("work was cancelled for: %v", cause)
			}
		}
	})
}

// Started again under its old name, a server does not wait for its dead predecessor's leases to run out.
func TestRestartTakesOverAtOnce(t *testing.T) {
	inBubble(t, keys, func(t *testing.T, o *office) {
		for key := range keys {
			o.by(leaseKey("lane", key), "a", "dead")
		}
		o.start("a")
		o.spread("a")
	})
}

// A lease is not taken from a server of another name, not even without an announcement of that one, until it was silent for a
// TTL. One that another server has taken by force is let go.
func TestHeldLeaseIsRespected(t *testing.T) {
	inBubble(t, keys, func(t *testing.T, o *office) {
		o.by(leaseKey("lane", 2), "other", "x")
		o.start("a")
		pass(3 * time.Second)
		if got := o.String(); got != "[[a] [a] [] [a]]" {
			t.Fatalf("work is at %s", got)
		}
		o.gone(leaseKey("lane", 2))
		synctest.Wait()
		o.spread("a")
		o.by(leaseKey("lane", 2), "other", "x")
		synctest.Wait()
		if got := o.String(); got != "[[a] [a] [] [a]]" || o.inspect().Holders[2].Server != "other" {
			t.Errorf("after it was taken: %s, %+v", got, o.inspect())
		}
		pass(TTL + time.Second)
		o.spread("a")
	})
}

// The keys of a dead server that nats-server never removes, as after a crash at the wrong moment, keep no lease from the
// living, and are not reported for ever.
func TestKeysWhoseTTLWasForgotten(t *testing.T) {
	inBubble(t, keys, func(t *testing.T, o *office) {
		o.bucket.forgets = true
		o.by(serverKey("lane", "dead"), "dead", "dead")
		for key := range keys {
			o.by(leaseKey("lane", key), "dead", "dead")
		}
		if s := o.inspect(); len(s.Servers) != 1 || s.Holders[0].Server != "dead" {
			t.Fatalf("a server is not seen: %+v", s)
		}
		pass(abandoned + time.Second)
		if s := o.inspect(); len(s.Servers) != 0 || s.Holders[0].Server != "" {
			t.Errorf("seen although no owner has written for long: %+v", s)
		}
		o.start("living")
		pass(TTL + time.Second)
		o.spread("living")
	})
}

// Work that ends by itself is started again, after pauses that double up to 15 s and start over after a minute of work. The
// server keeps the lease: what stops a lane would stop it anywhere.
func TestEndedWorkIsStartedAgain(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, o *office) {
		var runs []time.Duration
		started := time.Now()
		s := o.startOn(o.bucket.site(), "a", Options{}, func(ctx context.Context, _ int) error {
			runs = append(runs, time.Since(started).Round(time.Millisecond))
			if len(runs) == 10 {
				select {
				case <-time.After(backoffReset):
				case <-ctx.Done():
				}
			}
			return errors.New("lane stopped")
		})
		o.start("b")
		pass(150 * time.Second)
		s.stop()
		if got := fmt.Sprint(runs); got != "[0s 200ms 600ms 1.4s 3s 6.2s 12.6s 25.4s 40.4s 55.4s 1m55.6s 1m56s 1m56.8s 1m58.4s 2m1.6s 2m8s 2m20.8s]" {
			t.Errorf("it ran at %s", got)
		}
	})
}

// Run ends although nothing can be released.
func TestAStopWithoutABucket(t *testing.T) {
	inBubble(t, keys, func(t *testing.T, o *office) {
		a := o.start("a")
		o.spread("a")
		a.cut(true)
		started := time.Now()
		a.stop()
		if took := time.Since(started); took > TTL {
			t.Errorf("the stop took %s", took)
		}
	})
}

// While the bucket does not answer, as in an election there, no server gives up or takes a lease, also if that lasts until all
// keys have expired.
func TestASilentBucketMovesNothing(t *testing.T) {
	for _, long := range []time.Duration{9 * time.Second, 20 * time.Second, time.Minute} {
		for first := time.Minute; first < 84*time.Second; first += 3 * time.Second { // the bucket is read again every 24 s
			t.Run(fmt.Sprint(long, " after ", first), func(t *testing.T) {
				inBubble(t, keys, func(t *testing.T, o *office) {
					a, b := o.start("a"), o.start("b")
					o.spread("a", "b")
					o.causes = map[string][]error{} // what a gave to b
					pass(first)
					a.cut(true)
					b.cut(true)
					pass(long)
					a.cut(false)
					pass(500 * time.Millisecond) // one server is back before the other
					b.cut(false)
					pass(time.Minute)
					o.spread("a", "b")
					o.undisturbed()
				})
			})
		}
	}
}

// All leases of a server with 64 lanes vanish at once, from a bucket whose writes take 20 ms. Its work goes on throughout, and
// all leases are soon written again.
func TestManyLeasesVanishAtOnce(t *testing.T) {
	inBubble(t, 64, func(t *testing.T, o *office) {
		one := o.start("one")
		one.slow.Store(int64(20 * time.Millisecond))
		pass(time.Minute)
		o.spread("one")
		for key := range o.keys {
			o.gone(leaseKey("lane", key))
		}
		pass(200 * time.Millisecond)
		for _, h := range o.inspect().Holders {
			if h.Server != "one" {
				t.Errorf("holder %+v", h)
			}
		}
		o.undisturbed()
	})
}

// Answers of the bucket are lost: renewals that were stored are recognized, and a lease that was acquired without an answer
// is worked on or given back.
func TestLostAnswers(t *testing.T) {
	inBubble(t, keys, func(t *testing.T, o *office) {
		a := o.start("a")
		a.deaf.Store(true)
		pass(time.Minute)
		a.deaf.Store(false)
		pass(time.Minute)
		o.spread("a")
		o.undisturbed()
		b := o.bucket.site()
		b.deaf.Store(true)
		o.startOn(b, "b", Options{}, o.work("b"))
		pass(time.Minute)
		b.deaf.Store(false)
		pass(time.Minute)
		load := map[string]int{}
		for _, h := range o.inspect().Holders {
			load[h.Server]++
		}
		if load["a"] != keys/2 || load["b"] != keys/2 {
			t.Errorf("holders %v", load)
		}
	})
}

// A server whose view has stopped takes nothing from one that still writes: every takeover compares revisions.
func TestAStaleViewTakesNothing(t *testing.T) {
	inBubble(t, keys, func(t *testing.T, o *office) {
		o.start("a")
		b := o.start("b")
		pass(time.Minute)
		o.causes = map[string][]error{} // what a gave to b
		b.freeze()
		pass(time.Minute)
		o.spread("a", "b")
		o.undisturbed()
	})
}

// A lease that is given up while its renewal is under way goes to the next server as soon as that has ended.
func TestALeaseIsGivenUpDuringItsRenewal(t *testing.T) {
	for joins := 30 * time.Second; joins < 38*time.Second; joins += 250 * time.Millisecond { // they are renewed every 8 s
		inBubble(t, keys, func(t *testing.T, o *office) {
			a := o.start("a")
			a.slow.Store(int64(500 * time.Millisecond))
			pass(joins)
			o.start("b")
			pass(1500 * time.Millisecond)
			o.spread("a", "b")
		})
	}
}

// Confirm decides by the bucket and not by the view.
func TestConfirm(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, o *office) {
		work := make(chan context.Context, 1)
		at := o.bucket.site()
		s := o.startOn(at, "a", Options{}, func(ctx context.Context, key int) error {
			work <- ctx
			<-ctx.Done()
			return nil
		})
		ctx := context.WithoutCancel(<-work)
		if err := s.Confirm(ctx, 0); err != nil {
			t.Errorf("of its own lease: %v", err)
		}
		o.by(leaseKey("lane", 0), "b", "other")
		if err := s.Confirm(ctx, 0); !errors.Is(err, ErrLost) {
			t.Errorf("of another's lease: %v", err)
		}
		o.gone(leaseKey("lane", 0))
		if err := s.Confirm(ctx, 0); !errors.Is(err, ErrLost) {
			t.Errorf("of a free lease: %v", err)
		}
		at.cut(true)
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := s.Confirm(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without an answer: %v", err)
		}
	})
}

// Two servers with the same name, the later one from a copy of the other's data directory: that one gives up, saying why.
func TestTheLaterOfTwinsGivesUp(t *testing.T) {
	inBubble(t, keys, func(t *testing.T, o *office) {
		first := o.start("same")
		first.slow.Store(int64(time.Millisecond)) // they take each other's leases until then
		pass(time.Minute)
		second := o.start("same")
		second.slow.Store(int64(time.Millisecond))
		pass(TTL)
		select {
		case err := <-second.ended:
			if !errors.Is(err, ErrTwin) {
				t.Errorf("the later twin ended with %v", err)
			}
			second.cancel = nil
		default:
			t.Error("the later twin goes on")
		}
		select {
		case err := <-first.ended:
			t.Errorf("the earlier twin ended with %v", err)
		default:
		}
	})
}

// node is a connection that leads to the bucket after it has moved.
type node struct {
	at    *site
	moves atomic.Int32
}

func (n *node) IsConnected() bool { return true }
func (n *node) Servers() []string { return []string{"cut off", "other"} }

func (n *node) ForceReconnect() error {
	n.moves.Add(1)
	n.at.cut(false)
	return nil
}

// A manager leaves a node that answers pings and reaches no stream, as one that is cut off from the other nodes.
func TestAManagerLeavesANodeWithoutTheBucket(t *testing.T) {
	inBubble(t, keys, func(t *testing.T, o *office) {
		n := &node{at: o.bucket.site()}
		n.at.cut(true)
		o.startOn(n.at, "a", Options{Mover: natsx.NewMover(n)}, o.work("a"))
		pass(time.Minute)
		if h := o.inspect().Holders[0]; h.Server != "a" || n.moves.Load() != 1 {
			t.Errorf("holder %+v after %d moves", h, n.moves.Load())
		}
	})
}

func TestNewRefuses(t *testing.T) {
	for _, tc := range []struct {
		group  string
		keys   int
		server string
		want   string
	}{
		{"a.b", 1, "s", "group"}, {"", 1, "s", "group"}, {"g", 0, "s", "keys"},
		{"g", 1, "a b", "server name"}, {"g", 1, "*", "server name"},
	} {
		if _, err := New(nil, tc.group, tc.keys, tc.server, Options{}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

func names(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("server-%d", i))
	}
	return out
}

func TestSpreadIsEvenAndStable(t *testing.T) {
	for _, keys := range []int{1, 2, 3, 4, 16, 64} {
		for n := 1; n <= 9; n++ {
			servers := names(n)
			got := spread(servers, keys)
			load := map[string]int{}
			for _, s := range got {
				load[s]++
			}
			for _, s := range servers {
				if load[s] < keys/n || load[s] > (keys+n-1)/n {
					t.Errorf("%d keys on %d servers: %s has %d", keys, n, s, load[s])
				}
			}
			slices.Reverse(servers)
			if !slices.Equal(got, spread(servers, keys)) {
				t.Errorf("%d keys on %d servers: the order of the names matters", keys, n)
			}
		}
	}
	if got := spread(nil, 2); !slices.Equal(got, []string{"", ""}) {
		t.Errorf("no servers: %q", got)
	}
}

// A joining server takes its share, and little else moves.
func TestSpreadMovesLittle(t *testing.T) {
	const keys = 64
	for n := 1; n <= 8; n++ {
		before, after := spread(names(n), keys), spread(names(n+1), keys)
		moved := 0
		for k := range keys {
			if before[k] != after[k] {
				moved++
			}
		}
		if least := keys / (n + 1); moved > 2*least+2 {
			t.Errorf("from %d to %d servers %d of %d keys move, %d would do", n, n+1, moved, keys, least)
		}
	}
}
