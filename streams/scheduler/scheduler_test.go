package scheduler

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
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
		r.set(due - micro)
		r.quiet()
		if requests := r.requested(); len(requests) != requestsSoFar {
			t.Fatalf("at %s, a microsecond early, was requested %v", due-micro, sortedLines(requests))
		}
		r.set(due)
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
	r.quiet() // the scheduler has seen the move
	r.set(opens)
	nothingBefore(moved-seconds(30), 1)
	if published := r.waitPublished(3); published[2].CustomerID != "c3" || published[2].DueAt != moved-seconds(30) {
		t.Errorf("published %s", published[2].AppendJSON(nil))
	}

	nothingBefore(expires-seconds(86400), 2)
	if published := r.waitPublished(4); published[3].CustomerID != "holder" || published[3].Kind != "expires" {
		t.Errorf("published %s", published[3].AppendJSON(nil))
	}

	nothingBefore(expires, 3)
	if ev := r.expired("open"); ev.Through != expires || ev.Count != 1 {
		t.Errorf("expired %s", ev.AppendJSON(nil))
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
	r.set(start + seconds(1000))
	answered := wire.Command{ID: "s", Type: wire.Expire, Campaign: "answered", Through: start + seconds(300)}
	r.answer(append(answered.AppendJSON(nil), '\n'))

	run := r.run(r.scheduler())
	r.waitPublished(2)
	r.expired("fell")
	for _, request := range r.requested()[1:] {
		if request.Campaign == "answered" {
			t.Errorf("requested again for what the log answers: %s", request.AppendJSON(nil))
		}
	}
	for name, want := range map[string]float64{"reminders_dropped_total": 3, "reminders_fired_total": 2, "reminders_pending": 0} {
		if got := r.value(name); got != want {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
	run.stop()
}

func TestRequestMessagesKeepTheLimits(t *testing.T) {
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
	streamtest.Must(t, err)
	r.do(`"type":"create_campaign","campaign":"a","codes":5,"expires_at":`+quoted(last),
		`"type":"claim","campaign":"a","customer_id":"x"`, `"type":"remind","campaign":"a","customer_id":"x","kind":"expires","before":"0s"`)
	r.setSilent(true)
	run := r.run(r.scheduler())
	r.set(last - micro)
	r.quiet()
	if requests := r.requested(); len(requests) != 0 {
		t.Fatalf("requested %v", sortedLines(requests))
	}
	r.set(last)
	r.heard.WaitFor(t, func(n int) bool { return n == 2 })
	r.seen()
	run.stop()

	r.setSilent(false)
	run = r.run(r.scheduler())
	r.waitPublished(1)
	if ev := r.expired("a"); ev.Through != last {
		t.Errorf("expired %s", ev.AppendJSON(nil))
	}
	run.stop()
}

// While the lane decides nothing, its command stream is not filled with requests that none reads; when it decides again
// what has become due by then is requested.
func TestALaneThatDecidesNothing(t *testing.T) {
	r := newRig(t)
	due := start + seconds(60)
	r.create("a", `,"expires_at":`+quoted(due))
	var decides atomic.Bool
	run := r.run(r.scheduler(func(o *Options) { o.Decides = decides.Load }))
	for hours := range 3 {
		r.set(due + seconds(3600*hours))
		r.seen()
	}
	if got := r.requested(); len(got) != 0 {
		t.Fatalf("requested %v", sortedLines(got))
	}
	if age := r.value("oldest_due_age_seconds"); age < 3600 {
		t.Errorf("the oldest is due for %.0f s", age)
	}
	decides.Store(true)
	r.set(due + seconds(3*3600)) // it looks each tenth of a second
	r.expired("a")
	run.stop()
}

// The server goes away and comes back; a scheduler that ran on continues to request and publish.
func TestServerRestarts(t *testing.T) {
	r := newRig(t)
	r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
	r.remind("a", 1, 700, "50s")
	run := r.run(r.scheduler())
	r.quiet()
	r.server.Shutdown()
	r.set(start + seconds(50)) // due while none can be requested
	run.rests(func(x rest) bool { return !x.publishing })
	streamtest.Equal(t, "requests failed without a server", r.value("requests_failed_total"), 1)
	connected := r.js.Conn().StatusChanged(nats.CONNECTED)
	r.server.Up(t)
	<-connected
	if _, err := r.js.Stream(t.Context(), eventlog.Commands(r.js, 0).Name()); err != nil {
		t.Fatal(err)
	}
	r.set(start + seconds(52)) // it is requested again
	r.heard.Wait(t)
	eachOnce(t, r.waitPublished(700), 700)
	run.stop()
}

// A line that this program does not understand stops it: it must not pretend.
func TestUnknownEventStops(t *testing.T) {
	r := newRig(t)
	r.create("a", "")
	r.do()
	_, err := r.js.Publish(t.Context(), "scrip.evt.0", nil) // not scrip's: passed over
	streamtest.Must(t, err)
	r.last++
	r.write([]wire.Event{{Type: wire.CouponsExpired, Campaign: "never", At: start, Through: start}})
	err = r.run(r.scheduler()).fails()
	if !strings.Contains(err.Error(), `coupons.expired of campaign "never", which was never created`) || !strings.Contains(err.Error(), "event message 4 line 1") {
		t.Errorf("Run ended with %v", err)
	}
}

// Without room for customers the scheduler stops and its error has the remedy; with room it starts again, and everyone is published.
func TestNoRoomForCustomers(t *testing.T) {
	r := newRig(t)
	r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
	r.remind("a", 1, 500, "50s")
	gone := filepath.Join(t.TempDir(), "gone")
	err := r.run(r.scheduler(func(o *Options) { o.Dir = gone })).fails()
	if !errors.Is(err, timers.ErrDisk) || errors.Is(err, errMisfit) || !strings.Contains(err.Error(), gone) || !strings.Contains(err.Error(), "make room there") {
		t.Errorf("Run ended with %v", err)
	}
	run := r.run(r.scheduler(func(o *Options) { o.Dir = t.TempDir() }))
	r.set(start + seconds(50))
	eachOnce(t, r.waitPublished(500), 500)
	run.stop()
}
