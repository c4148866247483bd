package command

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func TestMain(m *testing.M) { streamtest.VerifyTestMain(m) }

// rig is a Lanes that runs on a network without a server.
type rig struct {
	*Lanes
	*network
	t    *testing.T
	stop func() // ends Run and waits for it
}

// inBubble runs a test in a bubble of synctest. In the end everything must have been given back.
func inBubble(t *testing.T, opts Options, test func(t *testing.T, r *rig)) {
	t.Helper()
	on(t, newNetwork, opts, test)
}

// on is inBubble on a network of another kind.
func on(t *testing.T, network func() *network, opts Options, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := network()
		r := &rig{Lanes: newLanes(n, opts), network: n, t: t}
		r.stop = streamtest.Background(t, r.Run)
		synctest.Wait()
		test(t, r)
		synctest.Wait()
		r.empty()
	})
}

// pass lets time go by, and everything settle that happens in that time.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
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

// unknown checks that the answer is an unknown result.
func unknown(t testing.TB, err error, id string, cause error) {
	t.Helper()
	var u *UnknownError
	if !errors.As(err, &u) || u.ID != id || !errors.Is(err, cause) {
		t.Errorf("%s ended in %v, expected an unknown result because of: %v", id, err, cause)
	}
}

// unsent checks that the answer is that the line was never sent.
func unsent(t testing.TB, err error, id string, cause error) {
	t.Helper()
	var n *NotSentError
	if !errors.As(err, &n) || n.ID != id || !errors.Is(err, cause) {
		t.Errorf("%s ended in %v, expected that it was not sent because of: %v", id, err, cause)
	}
}

// claim hands in a claim, lets it leave, and returns who waits for it.
func (r *rig) claim(id string, deadline time.Duration) (waiter, Ticket) {
	r.t.Helper()
	w := make(waiter, 2)
	ticket, err := r.add(r.t.Context(), 0, "", claimLine("summer", id, deadline, w))
	if err != nil {
		r.t.Fatalf("claim %s: %v", id, err)
	}
	synctest.Wait()
	return w, ticket
}

// redeem hands in a redemption for the micro service.
func (r *rig) redeem(id string) (waiter, Ticket) {
	r.t.Helper()
	w := make(waiter, 2)
	cmd := wire.Command{Type: wire.Redeem, ID: id, Code: "AAAA-BBBB-CCCC", OrderID: "o"}
	ticket, err := r.add(r.t.Context(), direct("scrip.redeem"), "scrip.redeem", line{id: id, json: cmd.AppendJSON(nil), Call: Call{By: "ann", To: w}})
	if err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
	return w, ticket
}

// claimLine is a claim that waits for so long, 0 = for ever.
func claimLine(campaign, id string, deadline time.Duration, to Receiver) line {
	cmd := wire.Command{Type: wire.Claim, ID: id, Campaign: campaign, CustomerID: "customer of " + id}
	line := line{id: id, json: cmd.AppendJSON(nil), Call: Call{To: to}}
	if deadline > 0 {
		line.Deadline = time.Now().Add(deadline)
	}
	return line
}

// giveUp ends a wait, with the error that its caller gets.
func (r *rig) giveUp(ticket Ticket) error {
	r.t.Helper()
	err, ok := ticket.GiveUp(context.Canceled)
	if !ok {
		r.t.Fatal("what is not answered could not be given up")
	}
	return err
}

// empty checks that everything was given back.
func (r *rig) empty() {
	r.t.Helper()
	if n := r.active.Load(); n != 0 {
		r.t.Errorf("%d batches are under way", n)
	}
	r.eachRoute(func(ro *route) {
		ro.mu.Lock()
		defer ro.mu.Unlock()
		if n := len(ro.attempts) + len(ro.inFlight) + len(ro.full); n != 0 {
			r.t.Errorf("route %d still holds %d attempts, %d messages, %d batches", ro.number, len(ro.attempts), len(ro.inFlight), len(ro.full))
		}
		if !ro.room.TryAcquire(int64(r.opts.maxPending)) {
			r.t.Errorf("route %d did not give all its room back", ro.number)
		} else {
			ro.room.Release(int64(r.opts.maxPending))
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
