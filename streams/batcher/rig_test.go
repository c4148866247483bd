package batcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// rig is a server, the lanes' owner on a connection of its own, and a batcher on another.
type rig struct {
	*Batcher
	server *streamtest.Server
	owner  *streamtest.Owner
	conn   *nats.Conn
	stop   func() // ends Run and waits for it
}

// quick retries soon; faults would otherwise cost a test two seconds each.
var quick = Options{RetryAfter: 100 * time.Millisecond}

func newRig(t *testing.T, opts Options, spec topology.Spec, change ...func(*Batcher)) *rig {
	t.Helper()
	server := streamtest.Start(t)
	if spec.Lanes == 0 {
		spec.Lanes = 2
	}
	owner := streamtest.StartOwner(t, server.Conn(t), spec)
	conn := server.Conn(t)
	c := New(conn, opts)
	for _, f := range change {
		f(c)
	}
	stop := streamtest.Background(t, c.Run)
	streamtest.Eventually(t, "the batcher is online", c.online.Load)
	return &rig{Batcher: c, server: server, owner: owner, conn: conn, stop: stop}
}

// waiter is a receiver to wait on. Its channel has room for a second answer, so that one would be noticed.
type waiter chan answer

type answer struct {
	wire.Outcome
	err error
}

func (w waiter) Answer(line []byte, err error) {
	a := answer{err: err}
	if err == nil {
		a.Outcome, a.err = wire.ParseOutcome(line)
	}
	w <- a
}

// claim hands in a claim and returns who waits for it.
func (r *rig) claim(t testing.TB, campaign, id string, deadline time.Time) (waiter, Ticket) {
	t.Helper()
	w := make(waiter, 2)
	ticket, err := r.Send(t.Context(), r.laneOf(campaign), claimLine(campaign, id, deadline, w))
	if err != nil {
		t.Fatalf("claim %s: %v", id, err)
	}
	return w, ticket
}

func claimLine(campaign, id string, deadline time.Time, to Receiver) Line {
	cmd := wire.Command{Type: wire.Claim, ID: id, Campaign: campaign, CustomerID: "customer of " + id}
	return Line{ID: id, JSON: cmd.AppendJSON(nil), Deadline: deadline, To: to}
}

func (r *rig) laneOf(campaign string) int { return topology.LaneOf(campaign, r.owner.Log.Lanes) }

func (w waiter) get(t testing.TB) answer {
	t.Helper()
	select {
	case a := <-w:
		return a
	case <-time.After(3 * time.Minute):
		t.Fatal("no answer in three minutes")
		return answer{}
	}
}

// claimed checks that the answer is the claim's own.
func (a answer) claimed(t testing.TB, id string) {
	t.Helper()
	if a.err != nil || a.Status != wire.StatusClaimed || a.ID != id || a.CustomerID != "customer of "+id {
		t.Fatalf("claim %s was answered %+v", id, a)
	}
}

// empty checks that everything was given back.
func (r *rig) empty(t testing.TB) {
	t.Helper()
	streamtest.Eventually(t, "nothing is under way", func() bool { return r.active.Load() == 0 })
	r.eachRoute(func(ro *route) {
		ro.mu.Lock()
		defer ro.mu.Unlock()
		if n := len(ro.attempts) + len(ro.inFlight) + len(ro.full); n != 0 {
			t.Errorf("route %d still holds %d attempts, %d messages, %d batches", ro.number, len(ro.attempts), len(ro.inFlight), len(ro.full))
		}
		if !ro.room.TryAcquire(int64(r.opts.MaxPending)) {
			t.Errorf("route %d did not give all its room back", ro.number)
		} else {
			ro.room.Release(int64(r.opts.MaxPending))
		}
	})
}

func ids(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return out
}
