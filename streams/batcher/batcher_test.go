package batcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestALonelyLineLeavesAlone(t *testing.T) {
	r := newRig(t, Options{RetryAfter: time.Hour}, topology.Spec{})
	for _, id := range ids("lonely", 10) {
		w, _ := r.claim(t, "summer", id, time.Time{})
		w.get(t).claimed(t, id)
	}
	if messages, lines := r.owner.Seen(); messages != 10 || lines != 10 {
		t.Errorf("10 calls one after the other made %d messages with %d lines", messages, lines)
	}
	r.empty(t)
}

func TestConcurrentCallersEachGetTheirOwnAnswer(t *testing.T) {
	r := newRig(t, Options{RetryAfter: time.Hour}, topology.Spec{}) // however slow the machine, nothing is sent twice
	const callers = 5000
	var all sync.WaitGroup
	codes := make(chan string, callers)
	for i := range callers {
		all.Go(func() {
			id, campaign := fmt.Sprintf("caller-%d", i), fmt.Sprintf("campaign-%d", i%7)
			w, _ := r.claim(t, campaign, id, time.Time{})
			a := w.get(t)
			a.claimed(t, id)
			codes <- a.Campaign + a.Code
		})
	}
	all.Wait()
	close(codes)
	distinct := make(map[string]bool)
	for code := range codes {
		distinct[code] = true
	}
	messages, lines := r.owner.Seen()
	if len(distinct) != callers || lines != callers {
		t.Errorf("%d callers got %d different coupons for %d lines", callers, len(distinct), lines)
	}
	if messages > callers/4 {
		t.Errorf("%d lines left in %d messages: nothing was coalesced", lines, messages)
	}
	t.Logf("%d lines in %d messages", lines, messages)
	r.empty(t)
}

// What is under way is fixed while outcomes are held back, so the rest must leave together: at once where a message is
// full, else when its turn comes.
func TestLinesThatComeMeanwhileLeaveTogether(t *testing.T) {
	r := newRig(t, Options{InFlight: 2, RetryAfter: time.Hour}, topology.Spec{})
	r.owner.SetFault(func(int, []wire.Command) int { return streamtest.HoldBack })
	var waiters []waiter
	all := ids("meanwhile", 2502)
	for _, id := range all {
		w, _ := r.claim(t, "summer", id, time.Time{})
		waiters = append(waiters, w)
	}
	streamtest.Eventually(t, "two lonely messages and two full ones are held", func() bool { return r.owner.Held() == 4 })
	r.owner.SetFault(nil)
	r.owner.Release(t)
	for i, w := range waiters {
		w.get(t).claimed(t, all[i])
	}
	// Two lonely ones, then 2,500 lines: at most 1,000 a message.
	if messages, lines := r.owner.Seen(); messages != 5 || lines != 2502 {
		t.Errorf("%d messages with %d lines, expected 5 with 2,502", messages, lines)
	}
	r.empty(t)
}

func TestAMessageStaysWithinItsLimits(t *testing.T) {
	var mu sync.Mutex
	biggest := 0
	r := newRig(t, Options{InFlight: 1, RetryAfter: time.Hour}, topology.Spec{}, func(c *Batcher) {
		c.publish = func(m *nats.Msg) error {
			mu.Lock()
			biggest = max(biggest, len(m.Data))
			mu.Unlock()
			return c.nc.PublishMsg(m)
		}
	})
	r.owner.SetFault(func(int, []wire.Command) int { return streamtest.HoldBack })
	var waiters []waiter
	for i := range 100 {
		cmd := wire.Command{Type: wire.ImportCodes, ID: fmt.Sprintf("import-%d", i), Campaign: "summer",
			Codes: strings.Split(strings.Repeat("ABCDEFGHIJKLMNO,", 800)+"LAST", ",")}
		w := make(waiter, 2)
		if _, err := r.Send(t.Context(), r.laneOf("summer"), Line{ID: cmd.ID, JSON: cmd.AppendJSON(nil), To: w}); err != nil {
			t.Fatal(err)
		}
		waiters = append(waiters, w)
	}
	streamtest.Eventually(t, "the first message and full ones are held", func() bool { return r.owner.Held() > 1 })
	r.owner.SetFault(nil)
	r.owner.Release(t)
	for _, w := range waiters {
		if a := w.get(t); a.err != nil || a.Count != 801 {
			t.Fatalf("import answered %+v", a)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if biggest > wire.MaxMessage || biggest < wire.MaxMessage/2 {
		t.Errorf("the biggest message had %d bytes; at most %d are allowed", biggest, wire.MaxMessage)
	}
}

func TestRoomIsBounded(t *testing.T) {
	const room = 64
	r := newRig(t, Options{MaxPending: room, RetryAfter: time.Hour}, topology.Spec{})
	r.owner.SetFault(func(int, []wire.Command) int { return streamtest.HoldBack })
	var waiters []waiter
	all := ids("room", room)
	for _, id := range all {
		w, _ := r.claim(t, "summer", id, time.Time{})
		waiters = append(waiters, w)
	}
	over := claimLine("summer", "over", time.Time{}, make(waiter, 1))
	var notSent *NotSentError
	if _, err := r.TrySend(r.laneOf("summer"), over); !errors.As(err, &notSent) || !errors.Is(err, ErrFull) {
		t.Errorf("the line beyond the limit got %v, expected ErrFull", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Send(ctx, r.laneOf("summer"), over); !errors.As(err, &notSent) || !errors.Is(err, context.Canceled) {
		t.Errorf("the line beyond the limit got %v, expected its context's end", err)
	}
	// Another lane is not held up.
	other := 0
	for r.laneOf(fmt.Sprint("other", other)) == r.laneOf("summer") {
		other++
	}
	if _, err := r.TrySend(1-r.laneOf("summer"), claimLine(fmt.Sprint("other", other), "elsewhere", time.Time{}, make(waiter, 1))); err != nil {
		t.Errorf("another lane: %v", err)
	}
	streamtest.Eventually(t, "messages are held", func() bool { return r.owner.Held() == r.opts.InFlight+1 })
	r.owner.SetFault(nil)
	r.owner.Release(t)
	for i, w := range waiters {
		w.get(t).claimed(t, all[i])
	}
	w, _ := r.claim(t, "summer", "after", time.Time{})
	w.get(t).claimed(t, "after")
	r.empty(t)
}

func TestStoppingTellsEveryoneWhoWaits(t *testing.T) {
	r := newRig(t, Options{InFlight: 1, RetryAfter: time.Hour}, topology.Spec{})
	r.owner.SetFault(func(int, []wire.Command) int { return 0 })
	sent, _ := r.claim(t, "summer", "sent", time.Time{})
	streamtest.Eventually(t, "it arrived", func() bool { _, lines := r.owner.Seen(); return lines == 1 })
	queued, _ := r.claim(t, "summer", "queued", time.Time{})
	r.stop()
	var unknown *UnknownError
	if a := sent.get(t); !errors.As(a.err, &unknown) || unknown.ID != "sent" || !errors.Is(a.err, ErrClosed) {
		t.Errorf("the line under way got %+v, expected an unknown result", a)
	}
	var notSent *NotSentError
	if a := queued.get(t); !errors.As(a.err, &notSent) || notSent.ID != "queued" {
		t.Errorf("the line that never left got %+v, expected not sent", a)
	}
	if _, err := r.Send(t.Context(), 0, claimLine("summer", "late", time.Time{}, sent)); !errors.Is(err, ErrClosed) {
		t.Errorf("a line after the end got %v", err)
	}
	r.empty(t)
}

// The inbox lies under the connection's own prefix: the lane answers nowhere else.
func TestTheInboxHasTheConnectionsPrefix(t *testing.T) {
	server := streamtest.Start(t)
	owner := streamtest.StartOwner(t, server.Conn(t), topology.Spec{Lanes: 1})
	conn := server.Conn(t, nats.CustomInboxPrefix("_INBOX_shop"))
	c := New(conn, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	w := make(waiter, 1)
	if _, err := c.Send(ctx, 0, claimLine("summer", "prefixed", time.Time{}, w)); err != nil {
		t.Fatal(err)
	}
	w.get(t).claimed(t, "prefixed")
	if !strings.HasPrefix(c.inbox, "_INBOX_shop.") || owner.Distinct() != 1 {
		t.Errorf("the inbox is %s", c.inbox)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
