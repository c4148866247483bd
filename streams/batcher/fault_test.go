package batcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Every place where a message can be lost, before it took effect and after. The claim must be answered, once, and have
// had one effect.
func TestFaults(t *testing.T) {
	outcomes := func(times ...int) func(*rig) {
		return func(r *rig) {
			var n atomic.Int64
			r.owner.SetFault(func(int, []wire.Command) int {
				if i := int(n.Add(1)) - 1; i < len(times) {
					return times[i]
				}
				return 1
			})
		}
	}
	// first changes the first message only.
	first := func(change func(r *rig, m *nats.Msg) error) func(*rig) {
		return func(r *rig) {
			var n atomic.Int64
			r.publish = func(m *nats.Msg) error {
				if n.Add(1) == 1 {
					return change(r, m)
				}
				return r.conn.PublishMsg(m)
			}
		}
	}
	both := func(fs ...func(*rig)) func(*rig) {
		return func(r *rig) {
			for _, f := range fs {
				f(r)
			}
		}
	}
	lostAck := func(r *rig, m *nats.Msg) error {
		m.Reply = ""
		return r.conn.PublishMsg(m)
	}
	for _, test := range []struct {
		name     string
		fault    func(*rig)
		messages int  // that reach the owner
		repeat   bool // the answer was given before
		late     uint64
	}{
		{name: "MessageLostBeforeTheServer", messages: 1,
			fault: first(func(*rig, *nats.Msg) error { return nil })},
		{name: "PublishFailedWithNothingSent", messages: 1,
			fault: first(func(*rig, *nats.Msg) error { return nats.ErrReconnectBufExceeded })},
		{name: "PublishFailedAfterSending", messages: 1,
			fault: first(func(r *rig, m *nats.Msg) error {
				if err := r.conn.PublishMsg(m); err != nil {
					return err
				}
				return errors.New("write: broken pipe")
			})},
		{name: "PubAckLost", messages: 1, fault: first(lostAck)},
		{name: "OutcomeLost", messages: 2, repeat: true, fault: outcomes(0)},
		{name: "OutcomeLostTwice", messages: 3, repeat: true, fault: outcomes(0, 0)},
		{name: "PubAckAndOutcomeLost", messages: 2, repeat: true, fault: both(first(lostAck), outcomes(0))},
		{name: "OutcomeTwice", messages: 1, late: 1, fault: outcomes(2)},
		{name: "CutAfterSending", messages: 2, repeat: true,
			fault: both(outcomes(0), first(func(r *rig, m *nats.Msg) error {
				if err := r.conn.PublishMsg(m); err != nil {
					return err
				}
				if err := r.conn.Flush(); err != nil {
					return err
				}
				return r.conn.ForceReconnect()
			}))},
		{name: "CutBeforeSending", messages: 1,
			fault: first(func(r *rig, m *nats.Msg) error { return r.conn.ForceReconnect() })},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, quick, topology.Spec{})
			test.fault(r)
			w, _ := r.claim(t, "summer", "the-claim", time.Time{})
			a := w.get(t)
			a.claimed(t, "the-claim")
			if a.Repeat != test.repeat || a.N != 1 {
				t.Errorf("answered %+v, expected coupon 1, repeat %t", a.Outcome, test.repeat)
			}
			if messages, _ := r.owner.Seen(); messages < test.messages || r.owner.Distinct() != 1 {
				t.Errorf("the lane saw %d messages with %d effects, expected at least %d with one", messages, r.owner.Distinct(), test.messages)
			}
			streamtest.Eventually(t, "late outcomes are counted", func() bool { return r.Counters().Late >= test.late })
			r.empty(t)
			if len(w) != 0 {
				t.Error("the claim was answered twice")
			}
		})
	}
}

// After a reconnect lines are sent again at once, not when their retry is due.
func TestAReconnectAsksAgainAtOnce(t *testing.T) {
	r := newRig(t, Options{RetryAfter: time.Hour}, topology.Spec{})
	r.owner.SetFault(func(int, []wire.Command) int { return 0 })
	w, _ := r.claim(t, "summer", "cut", time.Time{})
	streamtest.Eventually(t, "the claim arrived", func() bool { n, _ := r.owner.Seen(); return n == 1 })
	r.owner.SetFault(nil)
	if err := r.conn.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	a := w.get(t)
	a.claimed(t, "cut")
	if !a.Repeat {
		t.Error("the lane decided twice")
	}
	if n := r.Counters().Retries; n != 1 {
		t.Errorf("%d lines were sent again, expected 1", n)
	}
}

func TestARestartedServerLosesNoCaller(t *testing.T) {
	for name, again := range map[string]func(*streamtest.Server, testing.TB){
		"Stopped": (*streamtest.Server).Restart,
		"Away": func(s *streamtest.Server, t testing.TB) {
			s.Shutdown()
			s.Up(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, quick, topology.Spec{})
			const callers = 500
			var n atomic.Int64
			r.owner.SetFault(func(int, []wire.Command) int { return int(n.Add(1)) % 2 }) // every second outcome is lost, too
			all := ids("restart", callers)
			waiters := make([]waiter, callers)
			for i, id := range all {
				waiters[i], _ = r.claim(t, fmt.Sprint("c", i%5), id, time.Time{})
				if i == callers/2 {
					again(r.server, t)
				}
			}
			for i, w := range waiters {
				w.get(t).claimed(t, all[i])
			}
			if r.owner.Distinct() != callers {
				t.Errorf("%d callers had %d effects", callers, r.owner.Distinct())
			}
			r.empty(t)
		})
	}
}

func TestADeadlineEndsInAnUnknownResultNeverInARefusal(t *testing.T) {
	r := newRig(t, quick, topology.Spec{})
	r.owner.SetFault(func(int, []wire.Command) int { return streamtest.HoldBack })
	w, ticket := r.claim(t, "summer", "slow", time.Now().Add(50*time.Millisecond))
	a := w.get(t)
	var unknown *UnknownError
	if !errors.As(a.err, &unknown) || unknown.ID != "slow" || !errors.Is(a.err, ErrDeadline) {
		t.Fatalf("answered %+v, expected an unknown result", a)
	}
	if _, ok := ticket.GiveUp(context.Canceled); ok {
		t.Error("what has been answered could still be given up")
	}
	r.empty(t)
	streamtest.Eventually(t, "the outcome is held", func() bool { return r.owner.Held() > 0 })
	r.owner.SetFault(nil)
	r.owner.Release(t)
	streamtest.Eventually(t, "the late outcome is dropped", func() bool { return r.Counters().Late > 0 })
	again, _ := r.claim(t, "summer", "slow", time.Time{})
	if a := again.get(t); !a.Repeat || a.N != 1 {
		t.Errorf("sent again, the answer is %+v", a)
	}
	if len(w) != 0 {
		t.Error("the late outcome reached who waits no longer")
	}
}

func TestGivingUp(t *testing.T) {
	r := newRig(t, Options{InFlight: 1, RetryAfter: time.Hour}, topology.Spec{})
	r.owner.SetFault(func(int, []wire.Command) int { return streamtest.HoldBack })
	sent, sentTicket := r.claim(t, "summer", "sent", time.Time{})
	streamtest.Eventually(t, "it is held", func() bool { return r.owner.Held() == 1 })
	_, queuedTicket := r.claim(t, "summer", "queued", time.Time{})
	kept, _ := r.claim(t, "summer", "kept", time.Time{})

	var notSent *NotSentError
	if err, ok := queuedTicket.GiveUp(context.Canceled); !ok || !errors.As(err, &notSent) || !errors.Is(err, context.Canceled) {
		t.Errorf("giving up a line that never left: %v, %t", err, ok)
	}
	var unknown *UnknownError
	if err, ok := sentTicket.GiveUp(context.Canceled); !ok || !errors.As(err, &unknown) || unknown.ID != "sent" {
		t.Errorf("giving up a line under way: %v, %t", err, ok)
	}
	r.owner.SetFault(nil)
	r.owner.Release(t)
	kept.get(t).claimed(t, "kept")
	if len(sent) != 0 {
		t.Error("who gave up was answered")
	}
	for _, cmd := range r.owner.Commands() {
		if cmd.ID == "queued" {
			t.Error("a line given up before it left was sent")
		}
	}
	r.empty(t)
}

// Of a message with lines that some gave up, only the others are sent again, and each gets its own answer.
func TestOnlyWhoStillWaitsIsAskedAgain(t *testing.T) {
	r := newRig(t, Options{InFlight: 1, RetryAfter: time.Hour}, topology.Spec{})
	r.owner.SetFault(func(int, []wire.Command) int { return streamtest.HoldBack })
	first, _ := r.claim(t, "summer", "first", time.Time{})
	streamtest.Eventually(t, "the first is held", func() bool { return r.owner.Held() >= 1 })
	all := ids("many", 9)
	var waiters []waiter
	var tickets []Ticket
	for _, id := range all {
		w, ticket := r.claim(t, "summer", id, time.Time{})
		waiters, tickets = append(waiters, w), append(tickets, ticket)
	}
	var lost atomic.Bool
	r.owner.SetFault(func(_ int, cmds []wire.Command) int {
		if len(cmds) == 9 && !lost.Swap(true) {
			return 0
		}
		return 1
	})
	r.owner.Release(t)
	first.get(t).claimed(t, "first")
	streamtest.Eventually(t, "the nine arrived and their outcome was lost", lost.Load)
	for i := 0; i < 9; i += 2 {
		if err, ok := tickets[i].GiveUp(context.Canceled); !ok {
			t.Errorf("%s could not be given up: %v", all[i], err)
		}
	}
	r.sweep(true) // as if RetryAfter were over
	for i := 1; i < 9; i += 2 {
		a := waiters[i].get(t)
		if a.claimed(t, all[i]); !a.Repeat {
			t.Errorf("%s was decided twice", all[i])
		}
	}
	cmds := r.owner.Commands()
	if last := cmds[len(cmds)-4:]; last[0].ID != "many-1" || last[3].ID != "many-7" {
		t.Errorf("sent again: %+v", last)
	}
	r.empty(t)
}

// A full command stream keeps nothing, so the command is refused, and later lines are taken again once there is room.
func TestAFullStreamRefuses(t *testing.T) {
	r := newRig(t, quick, topology.Spec{Lanes: 1, CmdMaxBytes: 2000})
	refused := 0
	for i := 0; refused == 0 && i < 100; i++ {
		id := fmt.Sprint("full-", i)
		w, _ := r.claim(t, "summer", id, time.Time{})
		a := w.get(t)
		if a.err != nil {
			t.Fatal(a.err)
		}
		if a.Refused() {
			if refused++; a.Refusal != wire.NotDurable || a.ID != id || a.Message == "" {
				t.Errorf("refused with %+v", a.Outcome)
			}
		}
	}
	if refused == 0 || r.Counters().NotDurable != 1 {
		t.Fatalf("a stream of 2,000 bytes took a hundred claims; counters %+v", r.Counters())
	}
	if err := purge(t, r.conn, 0); err != nil {
		t.Fatal(err)
	}
	w, _ := r.claim(t, "summer", "after", time.Time{})
	w.get(t).claimed(t, "after")
	r.empty(t)
}

// When the first attempt may have been stored, the refusal of the second does not answer for the first.
func TestAFullStreamAfterALostAckIsNotARefusal(t *testing.T) {
	r := newRig(t, quick, topology.Spec{Lanes: 1, CmdMaxBytes: 500})
	var n atomic.Int64
	r.publish = func(m *nats.Msg) error {
		if n.Add(1) == 1 {
			return nil // as if it had left and its PubAck were lost
		}
		return r.conn.PublishMsg(m)
	}
	// No room from here on: another connection fills the stream.
	other := r.server.Conn(t)
	streamtest.Eventually(t, "the stream is full", func() bool {
		reply, err := other.Request(topology.LaneCmd(0), []byte("{}"), 5*time.Second)
		return err == nil && bytes.Contains(reply.Data, []byte(`"error"`))
	})
	w, ticket := r.claim(t, "summer", "murky", time.Time{})
	// The fourth is sent after the refusal of the second.
	streamtest.Eventually(t, "the request is repeated", func() bool { return n.Load() >= 4 || len(w) > 0 })
	err, ok := ticket.GiveUp(context.Canceled)
	var unknown *UnknownError
	if !ok || !errors.As(err, &unknown) {
		t.Fatalf("given up: %v, %v, expected an unknown result", ok, err)
	}
	r.empty(t)
}

func purge(t testing.TB, nc *nats.Conn, lane int) error {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	stream, err := js.Stream(t.Context(), topology.CmdStream(lane))
	if err != nil {
		return err
	}
	return stream.Purge(t.Context())
}

// Without responders nothing is stored: the line is kept and retried until there is one, or until its deadline;
// then the error reports that it had no effect.
func TestNobodyThere(t *testing.T) {
	server := streamtest.Start(t)
	c := New(server.Conn(t), quick)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()

	w := make(waiter, 1)
	if _, err := c.Send(ctx, 0, claimLine("summer", "early", time.Time{}, w)); err != nil {
		t.Fatal(err)
	}
	short := make(waiter, 1)
	ticket, err := c.Send(ctx, 1, claimLine("winter", "hasty", time.Now().Add(time.Hour), short))
	if err != nil {
		t.Fatal(err)
	}
	streamtest.Eventually(t, "an attempt had no responders, and none is under way", func() bool {
		r := c.routes[1].Load()
		r.mu.Lock()
		defer r.mu.Unlock()
		b := ticket.batch
		if b.tries == 0 || b.live > 0 {
			return false
		}
		b.entries[ticket.entry].deadline, b.earliest = 1, 1 // it is over
		return true
	})
	if a := short.get(t); a.err != nil || a.ID != "hasty" || a.Refusal != wire.NotDurable {
		t.Errorf("answered %+v, expected that the log could not keep it", a)
	}
	streamtest.StartOwner(t, server.Conn(t), topology.Spec{Lanes: 1})
	w.get(t).claimed(t, "early")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Outcomes that do not fit their command message are dropped.
func TestOddOutcomesAreDropped(t *testing.T) {
	for name, answer := range map[string]string{
		"Empty":        "",
		"TwoLines":     `{"id":"one","status":"claimed","n":9}` + "\n" + `{"id":"one","status":"claimed","n":9}`,
		"AnothersLine": `{"id":"another","status":"claimed","n":9}`,
		"NotJSON":      `hello`,
	} {
		t.Run(name, func(t *testing.T) {
			server := streamtest.Start(t)
			other := server.Conn(t)
			var n atomic.Int64
			_, err := other.Subscribe(topology.LaneCmd(0), func(m *nats.Msg) {
				line := answer
				if n.Add(1) > 1 {
					line = `{"n":1,"status":"claimed","customer_id":"customer of one","id":"one"}`
				}
				_ = other.Publish(m.Header.Get(topology.HeaderReply), []byte(line))
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := other.Flush(); err != nil {
				t.Fatal(err)
			}
			c := New(server.Conn(t), quick)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }()
			w := make(waiter, 2)
			if _, err := c.Send(ctx, 0, claimLine("summer", "one", time.Time{}, w)); err != nil {
				t.Fatal(err)
			}
			a := w.get(t)
			if a.claimed(t, "one"); a.N != 1 {
				t.Errorf("answered %+v", a)
			}
			if c.Counters().Mismatched != 1 {
				t.Errorf("counters %+v", c.Counters())
			}
			// Strangers who know the inbox can do no harm either.
			for _, token := range []string{"x", "o", "o9999-1", "o0", "o0-zzzzzzzzzzzzzzzzzzzz", "a0-1"} {
				if err := other.Publish(c.inbox+"."+token, []byte("{}")); err != nil {
					t.Error(err)
				}
			}
			again := make(waiter, 1)
			if _, err := c.Send(ctx, 0, claimLine("summer", "one", time.Time{}, again)); err != nil {
				t.Fatal(err)
			}
			again.get(t).claimed(t, "one")
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestMessagesWithoutAnswerHoldUpNoOthers: as many messages as may be in flight never get an outcome, however often they are
// sent again. Later lines of the lane are answered.
func TestMessagesWithoutAnswerHoldUpNoOthers(t *testing.T) {
	r := newRig(t, quick, topology.Spec{})
	r.owner.SetFault(func(_ int, cmds []wire.Command) int {
		if cmds[0].CustomerID == "customer of later" {
			return 1
		}
		return 0
	})
	var tickets []Ticket
	for i, id := range ids("lost", r.opts.InFlight) {
		_, ticket := r.claim(t, "summer", id, time.Time{})
		tickets = append(tickets, ticket)
		streamtest.Eventually(t, "it was sent alone", func() bool { return r.owner.Distinct() == i+1 })
	}
	w, _ := r.claim(t, "summer", "later", time.Time{})
	w.get(t).claimed(t, "later")
	for _, ticket := range tickets {
		if err, ok := ticket.GiveUp(context.Canceled); !ok {
			t.Errorf("the outcome was not lost: %v", err)
		}
	}
	r.empty(t)
}
