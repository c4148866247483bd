package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// hold is the network's state in which messages arrive and no outcome comes back until release.
var hold = fate{hold: true}

// What is under way is fixed while outcomes are held back, so the rest must leave together: at once where a message is
// full, else when its turn comes.
func TestLinesThatWaitLeaveTogether(t *testing.T) {
	inBubble(t, Options{inFlight: 2, RetryAfter: time.Hour}, func(t *testing.T, r *rig) {
		r.always = hold
		var waiters []waiter
		all := ids("waiting", 2502)
		for _, id := range all {
			w, _ := r.claim(id, 0)
			waiters = append(waiters, w)
		}
		if got := r.sizes(); !slices.Equal(got, []int{1, 1, 1000, 1000}) {
			t.Errorf("while nothing is answered messages of %d lines are sent", got)
		}
		r.release()
		for i, w := range waiters {
			w.get(t).claimed(t, all[i])
		}
		if got := r.sizes(); !slices.Equal(got, []int{1, 1, 1000, 1000, 500}) {
			t.Errorf("messages of %d lines were sent", got)
		}
	})
}

// A message is shorter than the server takes, and than a step of a lane does.
func TestAMessageStaysWithinItsLimits(t *testing.T) {
	for payload, most := range map[int64]int{8 << 20: wire.MaxMessage, 64 << 10: 63 << 10} {
		small := func() *network {
			n := newNetwork()
			n.payload, n.always = payload, hold
			return n
		}
		on(t, small, Options{inFlight: 1, RetryAfter: time.Hour}, func(t *testing.T, r *rig) {
			codes := strings.Split(strings.Repeat("ABCDEFGHIJKLMNO,", 800)+"LAST-0001", ",")
			var waiters []waiter
			for _, id := range ids("import", 100) {
				w := make(waiter, 2)
				cmd := wire.Command{Type: wire.ImportCodes, ID: id, Campaign: "summer", Codes: codes}
				if _, err := r.add(t.Context(), 0, "", line{id: id, json: cmd.AppendJSON(nil), Call: Call{To: w}}); err != nil {
					t.Fatal(err)
				}
				waiters = append(waiters, w)
			}
			r.release()
			for _, w := range waiters {
				if a := w.get(t); a.err != nil || a.Status != wire.StatusImported {
					t.Fatalf("import answered %+v", a)
				}
			}
			biggest := 0
			for _, m := range r.sent {
				biggest = max(biggest, len(m.Data))
			}
			if biggest > most || biggest < most/2 {
				t.Errorf("the biggest message had %d bytes; at most %d are allowed", biggest, most)
			}
		})
	}
}

// The lines of a message have one person.
func TestLinesOfTwoPeopleLeaveApart(t *testing.T) {
	inBubble(t, Options{inFlight: 1, RetryAfter: time.Hour}, func(t *testing.T, r *rig) {
		r.always = hold
		for _, by := range []string{"", "ann", "ann", "bob", ""} {
			line := claimLine("summer", "of "+by+fmt.Sprint(len(r.sizes())), 0, make(waiter, 2))
			line.By = by
			if _, err := r.add(t.Context(), 0, "", line); err != nil {
				t.Fatal(err)
			}
		}
		r.release()
		pass(time.Second)
		var by []string
		for _, m := range r.sent {
			by = append(by, m.Header.Get("Scrip-By"))
		}
		if !slices.Equal(by, []string{"", "ann", "bob", ""}) {
			t.Errorf("messages of %q", by)
		}
	})
}

func TestRoomIsBounded(t *testing.T) {
	const room = 64
	inBubble(t, Options{maxPending: room, RetryAfter: time.Hour}, func(t *testing.T, r *rig) {
		r.always = hold
		var waiters []waiter
		all := ids("room", room)
		for _, id := range all {
			w, _ := r.claim(id, 0)
			waiters = append(waiters, w)
		}
		over := claimLine("summer", "over", 0, make(waiter, 1))
		hasty := over
		hasty.NoWait = true
		_, err := r.add(t.Context(), 0, "", hasty)
		unsent(t, err, "over", ErrFull)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = r.add(ctx, 0, "", over)
		unsent(t, err, "over", context.Canceled)
		if _, err := r.add(t.Context(), 1, "", claimLine("summer", "elsewhere", 0, make(waiter, 1))); err != nil {
			t.Errorf("another lane: %v", err)
		}
		for _, lane := range []int{-1, firstDirect + directRoutes} {
			if _, err := r.add(t.Context(), lane, "", over); err == nil || !strings.Contains(err.Error(), "does not exist") {
				t.Errorf("lane %d: %v", lane, err)
			}
		}
		r.release()
		for i, w := range waiters {
			w.get(t).claimed(t, all[i])
		}
		w, _ := r.claim("after", 0)
		w.get(t).claimed(t, "after")
	})
}

func TestAStopAnswersEveryoneWhoWaits(t *testing.T) {
	inBubble(t, Options{inFlight: 1, RetryAfter: time.Hour}, func(t *testing.T, r *rig) {
		r.always = fate{silent: true}
		sent, _ := r.claim("sent", 0)
		queued, _ := r.claim("queued", 0)
		r.stop()
		unknown(t, sent.get(t).err, "sent", ErrClosed)
		unsent(t, queued.get(t).err, "queued", ErrClosed)
		for lane := range 2 { // one with a route, and one without
			_, err := r.add(t.Context(), lane, "", claimLine("summer", "late", 0, sent))
			unsent(t, err, "late", ErrClosed)
		}
	})
}

func TestGivingUp(t *testing.T) {
	inBubble(t, Options{inFlight: 1, RetryAfter: time.Hour}, func(t *testing.T, r *rig) {
		r.always = hold
		sent, sentTicket := r.claim("sent", 0)
		_, queuedTicket := r.claim("queued", 0)
		kept, _ := r.claim("kept", 0)
		unsent(t, r.giveUp(queuedTicket), "queued", context.Canceled)
		unknown(t, r.giveUp(sentTicket), "sent", context.Canceled)
		r.release()
		kept.get(t).claimed(t, "kept")
		if len(sent) != 0 || slices.Contains(r.read(), "queued") && r.sizes()[1] == 1 {
			t.Errorf("who gave up was answered: %t; read: %s", len(sent) > 0, r.read())
		}
	})
}

// Of a message with lines that some gave up, only the others are sent again, and each gets its own answer.
func TestOnlyWhatStillWaitsIsSentAgain(t *testing.T) {
	inBubble(t, Options{inFlight: 1}, func(t *testing.T, r *rig) {
		r.fates = []fate{hold, {silent: true}}
		first, _ := r.claim("first", 0)
		all := ids("many", 9)
		var waiters []waiter
		var tickets []Ticket
		for _, id := range all {
			w, ticket := r.claim(id, 0)
			waiters, tickets = append(waiters, w), append(tickets, ticket)
		}
		r.release()
		first.get(t).claimed(t, "first")
		for i := 0; i < 9; i += 2 {
			unknown(t, r.giveUp(tickets[i]), all[i], context.Canceled)
		}
		for i := 1; i < 9; i += 2 {
			a := waiters[i].get(t)
			if a.claimed(t, all[i]); !a.Repeat {
				t.Errorf("%s was decided twice", all[i])
			}
		}
		read := r.read()
		if last := read[len(read)-4:]; !slices.Equal(last, []string{all[1], all[3], all[5], all[7]}) {
			t.Errorf("sent again: %s", last)
		}
	})
}

// As many messages as may be in flight never get an outcome, however often they are sent again. Later lines of the lane are
// answered.
func TestMessagesWithoutAnswerHoldUpNoOthers(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, r *rig) {
		r.lose = "customer of lost"
		var tickets []Ticket
		for _, id := range ids("lost", r.opts.inFlight) {
			_, ticket := r.claim(id, 0)
			tickets = append(tickets, ticket)
		}
		w, _ := r.claim("later", 0)
		if n := len(r.sizes()); n != r.opts.inFlight {
			t.Errorf("%d messages are in flight", n)
		}
		pass(r.opts.RetryAfter + 2*sweepEvery)
		if len(w) != 1 {
			t.Error("a later line waits for longer than RetryAfter")
		}
		for _, ticket := range tickets {
			if err := r.giveUp(ticket); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}

// A code that has no form of a generated one, and no campaign, goes to a lane like every other wrong code: lanes count refusals.
func TestAMalformedCodeReachesALane(t *testing.T) {
	inBubble(t, Options{Codec: code.New([32]byte{1}), Count: 4, RetryAfter: time.Hour}, func(t *testing.T, r *rig) {
		sent := map[string]bool{}
		for _, typed := range []string{"hello", "SUMMER20", "hello", strings.Repeat("x", wire.MaxCodeInput)} {
			w := make(waiter, 2)
			cmd := wire.Command{Type: wire.Redeem, ID: fmt.Sprint("of ", len(r.sent)), Code: typed, OrderID: "o"}
			if _, err := r.Send(t.Context(), &cmd, Call{To: w}); err != nil {
				t.Fatal(err)
			}
			w.get(t)
			last := r.sent[len(r.sent)-1]
			if !strings.Contains(string(last.Data), `"`+typed+`"`) {
				t.Errorf("%s: sent %s", typed, last.Data)
			}
			sent[typed+" "+last.Subject] = true
		}
		if len(sent) != 3 {
			t.Errorf("one code goes to one lane: %v", sent)
		}
	})
}
