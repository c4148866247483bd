package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

const micro = wire.Instant(1)

func seconds(n int) wire.Instant { return wire.Instant(n) * 1e6 }

func quoted(at wire.Instant) string { return fmt.Sprintf("%q", at) }

// The two the contract names, to the microsecond, and an opening that moves under its subscribers.
func TestExactlyWhenDue(t *testing.T) {
	r := newRig(t)
	opens, expires := start+seconds(3600), start+seconds(7*86400)
	r.create("soon", `,"opens_at":`+quoted(opens)+`,"expires_at":`+quoted(expires))
	r.remind("soon", 1, 2, "1m")
	r.do(`"type":"create_campaign","campaign":"open","codes":5,"expires_at":` + quoted(expires))
	r.do(`"type":"claim","campaign":"open","customer_id":"holder"`, `"type":"remind","campaign":"open","customer_id":"holder","kind":"expires","before":"24h"`)
	run := r.run(r.scheduler())

	nothingBefore := func(due wire.Instant, requestsSoFar int) {
		t.Helper()
		r.clock.set(due - micro)
		r.seen()
		if requests := r.requested(); len(requests) != requestsSoFar {
			t.Fatalf("at %s, a microsecond early, was requested %v", due-micro, sortedLines(requests))
		}
		r.clock.set(due)
	}

	nothingBefore(opens-seconds(60), 0)
	published := r.waitPublished(2)
	for i, ev := range published {
		if ev.Campaign != "soon" || ev.Kind != "opens" || ev.DueAt != opens-seconds(60) || ev.CustomerID != fmt.Sprintf("c%d", i+1) {
			t.Errorf("published %s", ev.AppendJSON(nil))
		}
	}

	// A third subscribes to what is left of the minute, and the opening moves an hour back.
	r.remind("soon", 3, 3, "30s")
	moved := opens + seconds(3600)
	r.do(`"type":"update_campaign","campaign":"soon","opens_at":` + quoted(moved))
	r.seen()
	r.clock.set(opens)
	r.seen()
	nothingBefore(moved-seconds(30), 1)
	if published := r.waitPublished(3); published[2].CustomerID != "c3" || published[2].DueAt != moved-seconds(30) {
		t.Errorf("published %s", published[2].AppendJSON(nil))
	}

	nothingBefore(expires-seconds(86400), 2)
	if published := r.waitPublished(4); published[3].CustomerID != "holder" || published[3].Kind != "expires" {
		t.Errorf("published %s", published[3].AppendJSON(nil))
	}

	nothingBefore(expires, 3)
	ev := r.eventually("open expires", func(ev *wire.Event) bool { return ev.Type == wire.CouponsExpired && ev.Campaign == "open" })
	if ev.Through != expires || ev.Count != 1 {
		t.Errorf("expired %s", ev.AppendJSON(nil))
	}
	run.stop()
}

// An opening moved forward past what is due makes it due at once.
func TestMovedForwardIsDueAtOnce(t *testing.T) {
	r := newRig(t)
	r.create("a", `,"opens_at":`+quoted(start+seconds(7200)))
	r.remind("a", 1, 1, "1h")
	run := r.run(r.scheduler())
	r.clock.set(start + seconds(60))
	r.do(`"type":"update_campaign","campaign":"a","opens_at":` + quoted(start+seconds(3600+30)))
	if published := r.waitPublished(1); published[0].DueAt != start+seconds(30) {
		t.Errorf("published %s", published[0].AppendJSON(nil))
	}
	run.stop()
}

// What came due while no scheduler ran falls when one starts; what the lane had answered by then is not requested again;
// what is later than the grace is dropped, counted and published to none.
func TestDueWhileAway(t *testing.T) {
	r := newRig(t)
	r.create("late", `,"opens_at":`+quoted(start+seconds(100)))
	r.remind("late", 1, 3, "50s")
	r.create("later", `,"opens_at":`+quoted(start+seconds(1000)))
	r.remind("later", 1, 2, "50s")
	r.create("fell", `,"expires_at":`+quoted(start+seconds(200)))
	r.create("answered", `,"expires_at":`+quoted(start+seconds(200)))
	r.clock.set(start + seconds(1000))
	answered := wire.Command{ID: "s", Type: wire.Expire, Campaign: "answered", Through: start + seconds(300)}
	r.answer(append(answered.AppendJSON(nil), '\n'))

	run := r.run(r.scheduler())
	r.waitPublished(2)
	r.eventually("fell expires", func(ev *wire.Event) bool { return ev.Type == wire.CouponsExpired && ev.Campaign == "fell" })
	r.seen()
	for _, request := range r.requested()[1:] {
		if request.Campaign == "answered" {
			t.Errorf("requested again for what the log answers: %s", request.AppendJSON(nil))
		}
	}
	for name, want := range map[string]float64{"reminders_dropped_total": 3, "reminders_fired_total": 2, "reminders_pending": 0} {
		streamtest.Eventually(t, fmt.Sprintf("%s is %g", name, want), func() bool { return r.value(name) == want })
	}
	run.stop()
}

// A lane that does not answer is requested once, then ever more slowly, and a lost request is made good.
func TestLostAsks(t *testing.T) {
	r := newRig(t)
	r.setSilent(true)
	r.create("a", `,"expires_at":`+quoted(start+seconds(10)))
	run := r.run(r.scheduler())
	r.clock.set(start + seconds(10) + wire.Instant(lastRetry/time.Microsecond)) // no more so fresh that it is requested each second
	requestsAre := func(want int) {
		t.Helper()
		streamtest.Eventually(t, fmt.Sprintf("%d requests", want), func() bool { return len(r.requested()) >= want })
		r.seen()
		r.seen()
		if got := r.requested(); len(got) != want {
			t.Fatalf("requested %v, expected %d requests", sortedLines(got), want)
		}
	}
	requestsAre(1)
	for i, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second} {
		now := wire.At(r.clock.Now())
		r.clock.set(now.Add(pause) - micro)
		r.seen()
		requestsAre(i + 1)
		r.clock.set(now.Add(pause))
		requestsAre(i + 2)
	}
	r.setSilent(false)
	r.clock.set(wire.At(r.clock.Now()).Add(lastRetry))
	r.eventually("a expires", func(ev *wire.Event) bool { return ev.Type == wire.CouponsExpired })
	run.stop()
	if n := r.count(wire.CouponsExpired); n != 1 {
		t.Errorf("announced %d times", n)
	}
}

// A lane whose clock is behind does nothing, or not all; it is requested until it has.
func TestLaneClockBehind(t *testing.T) {
	r := newRig(t)
	r.behind = 1500 * time.Millisecond
	r.do(`"type":"create_campaign","campaign":"a","codes":5,"expires_at":` + quoted(start+seconds(10)))
	r.create("b", `,"opens_at":`+quoted(start+seconds(20)))
	r.remind("b", 1, 1, "10s")
	run := r.run(r.scheduler())
	r.clock.set(start + seconds(10))
	streamtest.Eventually(t, "both requested", func() bool { return len(r.requested()) >= 2 })
	r.seen()
	if published := r.published(); len(published) != 0 {
		t.Fatalf("published %d before the lane's time", len(published))
	}
	r.clock.set(start + seconds(12))
	r.waitPublished(1)
	r.eventually("a expires", func(ev *wire.Event) bool {
		return ev.Type == wire.CouponsExpired && ev.Through >= start+seconds(10)
	})
	run.stop()
}

// Three thousand campaigns due in the same microsecond are requested in a few messages, each once.
func TestManyCampaignsAtOneInstant(t *testing.T) {
	r := newRig(t)
	const campaigns = 2500
	end := start + seconds(60)
	var lines []string
	for i := range campaigns {
		lines = append(lines, fmt.Sprintf(`"type":"create_campaign","campaign":"c%d","codes":1,"expires_at":%q`, i, end))
	}
	r.do(lines[:1200]...)
	r.do(lines[1200:]...)
	run := r.run(r.scheduler())
	r.seen()
	r.clock.set(end)
	streamtest.Eventually(t, "all expired", func() bool { return r.count(wire.CouponsExpired) == campaigns })
	r.seen()
	run.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.requests) != campaigns || r.messages != 3 {
		t.Errorf("%d requests in %d messages, expected %d in 3", len(r.requests), r.messages, campaigns)
	}
}

func TestAskMessagesKeepTheLimits(t *testing.T) {
	long := strings.Repeat("x", wire.MaxCampaignName)
	cmds := make([]wire.Command, 2*wire.MaxMessageLines+1)
	for i := range cmds {
		cmds[i] = wire.Command{Type: wire.RemindDue, Campaign: long, Kind: wire.KindExpires, DueAt: start + 1, ThroughR: 1 << 53}
	}
	var serial uint64
	seen := map[string]bool{}
	total := 0
	for _, payload := range requestMessages(cmds, "s-01234567-89ab-", &serial) {
		n := strings.Count(string(payload), "\n")
		if len(payload) > wire.MaxMessage || n > wire.MaxMessageLines {
			t.Errorf("a message of %d lines and %d bytes", n, len(payload))
		}
		total += n
		for _, line := range strings.Split(strings.TrimSuffix(string(payload), "\n"), "\n") {
			var cmd wire.Command
			if err := wire.ParseCommand([]byte(line), wire.Defaults{}, &cmd); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if seen[cmd.ID] {
				t.Errorf("id %s is used twice", cmd.ID)
			}
			seen[cmd.ID] = true
		}
	}
	if total != len(cmds) {
		t.Errorf("%d lines for %d commands", total, len(cmds))
	}
	if got := requestMessages(nil, "s-", &serial); got != nil {
		t.Errorf("nothing to request made %d messages", len(got))
	}
}

// The last microsecond there is, with coupons and a reminder due at it, and the loop does not spin there.
func TestYear9999(t *testing.T) {
	r := newRig(t)
	last, err := wire.ParseInstant("9999-12-31T23:59:59.999999Z")
	if err != nil {
		t.Fatal(err)
	}
	r.do(`"type":"create_campaign","campaign":"a","codes":5,"expires_at":`+quoted(last),
		`"type":"claim","campaign":"a","customer_id":"x"`, `"type":"remind","campaign":"a","customer_id":"x","kind":"expires","before":"0s"`)
	r.setSilent(true)
	run := r.run(r.scheduler())
	r.clock.set(last - micro)
	r.seen()
	if requests := r.requested(); len(requests) != 0 {
		t.Fatalf("requested %v", sortedLines(requests))
	}
	r.clock.set(last)
	streamtest.Eventually(t, "both requested", func() bool { return len(r.requested()) == 2 })
	r.seen()
	run.stop()

	r.setSilent(false)
	run = r.run(r.scheduler())
	r.waitPublished(1)
	r.eventually("a expires", func(ev *wire.Event) bool { return ev.Type == wire.CouponsExpired && ev.Through == last })
	run.stop()
}

// While the lane decides nothing, its command stream is not filled with requests that none reads; when it decides again
// what has become due meanwhile is requested.
func TestALaneThatDecidesNothing(t *testing.T) {
	r := newRig(t)
	due := start + seconds(60)
	r.create("a", `,"expires_at":`+quoted(due))
	var decides atomic.Bool
	run := r.run(r.scheduler(func(o *Options) { o.Decides = decides.Load }))
	for hours := range 3 {
		r.clock.set(due + seconds(3600*hours))
		r.seen()
	}
	if got := r.requested(); len(got) != 0 {
		t.Fatalf("requested %v", sortedLines(got))
	}
	if age := r.value("oldest_due_age_seconds"); age < 3600 {
		t.Errorf("the oldest is due for %.0f s", age)
	}
	decides.Store(true)
	r.eventually("a expires", func(ev *wire.Event) bool { return ev.Type == wire.CouponsExpired })
	run.stop()
}

// An empty log, and steps in which nothing happened.
func TestNothingToDo(t *testing.T) {
	r := newRig(t)
	run := r.run(r.scheduler())
	r.do()
	r.clock.set(start + seconds(1e6))
	r.do()
	r.seen()
	run.stop()
	if len(r.requested()) != 0 || len(r.published()) != 0 {
		t.Errorf("requested %v, published %d", sortedLines(r.requested()), len(r.published()))
	}
}

// The server goes away and comes back; a scheduler that ran on continues to request and publish.
func TestServerRestarts(t *testing.T) {
	r := newRig(t)
	r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
	r.remind("a", 1, 700, "50s")
	run := r.run(r.scheduler())
	r.seen()
	r.server.Shutdown()
	r.clock.set(start + seconds(50)) // due while none can be requested
	r.server.Up(t)
	streamtest.Eventually(t, "requested after the server is back", func() bool {
		r.clock.set(wire.At(r.clock.Now()).Add(20 * time.Millisecond)) // reminders are dropped after minutes
		return len(r.requested()) > 0
	})
	r.waitPublished(700)
	run.stop()
}

func TestStopsBeforeItBegins(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.scheduler().Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Run ended with %v", err)
	}
}

// A line that this program does not understand stops it: it must not pretend.
func TestUnknownEventStops(t *testing.T) {
	r := newRig(t)
	r.create("a", "")
	r.mu.Lock()
	r.write(nil)
	r.mu.Unlock()
	_, err := r.js.Publish(t.Context(), "scrip.evt.0", nil) // not scrip's: passed over
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	r.last++
	r.write([]wire.Event{{Type: wire.CouponsExpired, Campaign: "never", At: start, Through: start}})
	r.mu.Unlock()
	err = r.run(r.scheduler()).fails()
	if !strings.Contains(err.Error(), `coupons.expired of campaign "never", which was never created`) || !strings.Contains(err.Error(), "event message 4 line 1") {
		t.Errorf("Run ended with %v", err)
	}
}

// On the machine's own clock and timers: nothing early, nothing forgotten.
func TestOnRealTime(t *testing.T) {
	t.Parallel() // it waits for the clock
	r := newRig(t)
	r.clock.real = true
	// The reminder is set within a second, and fires before the opening, on a busy machine too.
	now := wire.At(time.Now())
	opens, expires := now.Add(4*time.Second), now.Add(5*time.Second)
	r.create("a", `,"opens_at":`+quoted(opens)+`,"expires_at":`+quoted(expires))
	r.remind("a", 1, 1, "3s")
	run := r.run(r.scheduler(func(o *Options) { o.Now, o.Timer = nil, nil }))
	published := r.waitPublished(1)
	if due := opens.Add(-3 * time.Second); published[0].DueAt != due || published[0].At < due {
		t.Errorf("published %s", published[0].AppendJSON(nil))
	}
	ev := r.eventually("a expires", func(ev *wire.Event) bool { return ev.Type == wire.CouponsExpired })
	if ev.At < expires || ev.Through < expires {
		t.Errorf("expired %s", ev.AppendJSON(nil))
	}
	run.stop()
}
