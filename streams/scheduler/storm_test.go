package scheduler

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/fanout"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// live is a source of settings that tests change.
type live struct {
	mu      sync.Mutex
	now     *settings.Settings
	changed chan struct{}
}

func newLive() *live { return &live{now: settings.Default(), changed: make(chan struct{})} }

func (l *live) Current() (*settings.Settings, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now, l.changed
}

func (l *live) set(change func(*settings.Settings)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = changed(change)
	close(l.changed)
	l.changed = make(chan struct{})
}

// Very many at one instant: requested in chunks, published in order, each once, in full messages.
func TestStorm(t *testing.T) {
	const customers = 2*maxChunk + 10_000
	for _, c := range []struct {
		name string
		busy bool
	}{{"Alone", false}, {"BesidePeople", true}} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			base := start
			if c.busy { // probes and rests need a clock that goes on
				base, r.clock.real = wire.At(time.Now()), true
			}
			r.create("a", `,"opens_at":`+quoted(base+seconds(3600)))
			r.remind("a", 1, customers, "3000s")
			r.do(`"type":"update_campaign","campaign":"a","opens_at":` + quoted(base+seconds(3000)))
			meter := load.NewMeter(1)
			if c.busy {
				meter.Lanes[0].Client.Store(math.MaxInt64)
			}
			sched := r.scheduler(func(o *Options) { o.Load = meter })
			var rushed atomic.Bool
			sched.stored = func(uint64) {
				if meter.Level() == load.Burst {
					rushed.Store(true)
				}
			}
			run := r.run(sched)
			published := r.waitPublished(customers)
			eachOnce(t, published, customers)
			run.stop()
			if now := meter.Level(); !rushed.Load() || now == load.Burst {
				t.Errorf("a burst meanwhile: %v; level when it has ended: %v", rushed.Load(), now)
			}
			messages, requests := len(r.reminderMessages()), len(r.requested())
			if !c.busy && (requests != 3 || messages > customers/500+3) {
				t.Errorf("%d requests, %d messages", requests, messages)
			}
			if c.busy && requests <= 3 {
				t.Errorf("beside people it requested chunks as large as alone: %d requests", requests)
			}
		})
	}
}

// Two schedulers of one lane, which the lease allows for a moment: everyone is published once and everything announced once,
// and one that finds out ends.
func TestTwoSchedulersOfOneLane(t *testing.T) {
	const customers = 5000
	r := newRig(t)
	r.create("a", `,"opens_at":`+quoted(start+seconds(100))+`,"expires_at":`+quoted(start+seconds(101)))
	r.remind("a", 1, customers, "50s")
	one, two := r.run(r.scheduler()), r.run(r.scheduler(func(o *Options) { o.Metrics = NewMetrics(nil) }))
	r.seen()
	r.clock.set(start + seconds(50))
	published := func() bool { return len(r.published()) >= customers }
	over := func(w *running) bool {
		select {
		case <-w.done:
			return true
		default:
			return false
		}
	}
	streamtest.Eventually(t, "all published, or both lost", func() bool { return published() || over(one) && over(two) })
	for _, w := range []*running{one, two} {
		if over(w) && !errors.Is(w.err, fanout.ErrLost) {
			t.Fatalf("ended with %v", w.err)
		}
	}
	for !published() { // as the lease manager does: each published before the other's first message was refused
		again := r.run(r.scheduler(func(o *Options) { o.Metrics = NewMetrics(nil) }))
		streamtest.Eventually(t, "all published, or lost", func() bool { return published() || over(again) })
		again.cancel()
		<-again.done
	}
	eachOnce(t, r.waitPublished(customers), customers)
	last := r.run(r.scheduler(func(o *Options) { o.Metrics = NewMetrics(nil) }))
	r.clock.set(start + seconds(101))
	r.eventually("a expires", func(ev *wire.Event) bool { return ev.Type == wire.CouponsExpired })
	last.stop()
	if n := r.count(wire.CouponsExpired); n != 1 {
		t.Errorf("announced %d times", n)
	}
	eachOnce(t, r.published(), customers)
}

// A campaign that is paused, sold out or ended at the moment its reminders fall due: none is published that an ended campaign
// opens; the others' reminders fire.
func TestRemindersOfCampaignsThatChanged(t *testing.T) {
	r := newRig(t)
	opens, expires := start+seconds(100), start+seconds(200)
	due := map[string]wire.Instant{"opens": opens - seconds(10), "expires": expires - seconds(10)}
	for _, name := range []string{"paused", "soldout", "ended"} {
		r.create(name, fmt.Sprintf(`,"codes":1,"expires_at":%q`, expires)[len(`,"codes":1`):])
		r.do(fmt.Sprintf(`"type":"claim","campaign":%q,"customer_id":"holder"`, name),
			fmt.Sprintf(`"type":"remind","campaign":%q,"customer_id":"holder","kind":"expires","before":"10s"`, name),
			fmt.Sprintf(`"type":"update_campaign","campaign":%q,"opens_at":%q`, name, opens),
			fmt.Sprintf(`"type":"remind","campaign":%q,"customer_id":"early","kind":"opens","before":"10s"`, name))
	}
	r.do(`"type":"create_campaign","campaign":"full","codes":1,"expires_at":`+quoted(expires), `"type":"claim","campaign":"full","customer_id":"holder"`,
		`"type":"remind","campaign":"full","customer_id":"holder","kind":"expires","before":"10s"`)
	run := r.run(r.scheduler())
	r.do(`"type":"pause_campaign","campaign":"paused"`, `"type":"end_campaign","campaign":"ended"`, `"type":"claim","campaign":"full","customer_id":"other"`)
	r.seen()
	r.clock.set(due["opens"])
	streamtest.Eventually(t, "the openings are over", func() bool { return r.value("reminders_pending") == 4 })
	r.clock.set(due["expires"])
	streamtest.Eventually(t, "all are over", func() bool { return r.value("reminders_pending") == 0 })
	published := map[string]bool{}
	for _, ev := range r.waitPublished(6) {
		published[ev.Campaign+" "+ev.Kind+" "+ev.CustomerID] = true
		if ev.DueAt != due[ev.Kind] {
			t.Errorf("published %s", ev.AppendJSON(nil))
		}
	}
	for _, want := range []string{"paused opens early", "paused expires holder", "soldout opens early", "soldout expires holder", "ended expires holder", "full expires holder"} {
		if !published[want] {
			t.Errorf("%s was not published", want)
		}
	}
	if n := r.value("reminders_dropped_total"); n != 1 {
		t.Errorf("%g dropped", n)
	}
	run.stop()
}

// A coupon that was redeemed or voided is not reminded of, nor is one whose holder changed their mind; one that was
// extended is reminded of later.
func TestCouponsGoneBeforeTheirReminder(t *testing.T) {
	r := newRig(t)
	expires := start + seconds(200)
	r.create("a", `,"expires_at":`+quoted(expires))
	codes := map[string]string{}
	for _, who := range []string{"redeems", "voided", "unreminds", "extended", "keeps"} {
		for _, ev := range r.do(fmt.Sprintf(`"type":"claim","campaign":"a","customer_id":%q`, who), fmt.Sprintf(`"type":"remind","campaign":"a","customer_id":%q,"kind":"expires","before":"10s"`, who)) {
			if ev.Type == wire.CouponClaimed {
				codes[who] = ev.Code
			}
		}
	}
	r.do(`"type":"update_campaign","campaign":"a","expires_at":` + quoted(expires+seconds(3600)))
	r.do(fmt.Sprintf(`"type":"extend","code":%q,"expires_at":%q`, codes["extended"], expires+seconds(1800)))
	r.do(`"type":"update_campaign","campaign":"a","expires_at":` + quoted(expires))
	run := r.run(r.scheduler())
	r.seen()
	r.do(fmt.Sprintf(`"type":"redeem","code":%q,"order_id":"o"`, codes["redeems"]), fmt.Sprintf(`"type":"void","code":%q,"reason":"r"`, codes["voided"]),
		`"type":"unremind","campaign":"a","customer_id":"unreminds","kind":"expires","before":"10s"`)
	r.seen()
	r.clock.set(expires - seconds(10))
	if published := r.waitPublished(1); published[0].CustomerID != "keeps" {
		t.Errorf("published %s", published[0].AppendJSON(nil))
	}
	if n := r.value("reminders_cancelled_total"); n != 3 {
		t.Errorf("%g cancelled", n)
	}
	r.seen()
	r.clock.set(expires + seconds(1790))
	if published := r.waitPublished(2); published[1].CustomerID != "extended" || published[1].DueAt != expires+seconds(1790) {
		t.Errorf("published %s", published[1].AppendJSON(nil))
	}
	run.stop()
}

// Everything there is falls due in the same microsecond, in campaigns of all priorities.
func TestAllInTheSameMicrosecond(t *testing.T) {
	r := newRig(t)
	at := start + seconds(100) + 1
	var lines []string
	for i := range 30 {
		name := fmt.Sprint("c", i)
		priority := []string{"high", "normal", "low"}[i%3]
		lines = append(lines, fmt.Sprintf(`"type":"create_campaign","campaign":%q,"codes":9,"priority":%q,"expires_at":%q`, name, priority, at),
			fmt.Sprintf(`"type":"claim","campaign":%q,"customer_id":"x"`, name),
			fmt.Sprintf(`"type":"remind","campaign":%q,"customer_id":"x","kind":"expires","before":"0s"`, name),
			fmt.Sprintf(`"type":"create_campaign","campaign":"o%d","codes":9,"priority":%q,"opens_at":%q`, i, priority, at+seconds(1)),
			fmt.Sprintf(`"type":"remind","campaign":"o%d","customer_id":"y","kind":"opens","before":"1s"`, i))
	}
	r.do(lines...)
	run := r.run(r.scheduler())
	r.clock.set(at - micro)
	r.seen()
	if requests := r.requested(); len(requests) != 0 {
		t.Fatalf("requested %v a microsecond early", sortedLines(requests))
	}
	r.clock.set(at)
	for _, ev := range r.waitPublished(60) {
		if ev.DueAt != at || (ev.Kind == "opens") != (ev.CustomerID == "y") {
			t.Errorf("published %s", ev.AppendJSON(nil))
		}
	}
	streamtest.Eventually(t, "all expired", func() bool { return r.count(wire.CouponsExpired) == 30 })
	r.seen()
	run.stop()
	if n := len(r.requested()); n != 90 {
		t.Errorf("%d requests, expected 90", n)
	}
}

// Operators pause a campaign's reminders and expiry: nothing is requested, and none wakes up for it. When the pause ends
// what is due goes at once, without a timer; what is later than the grace is dropped.
func TestPausedByOperators(t *testing.T) {
	r := newRig(t)
	r.create("held", `,"opens_at":`+quoted(start+seconds(100))+`,"expires_at":`+quoted(start+seconds(101)))
	r.remind("held", 1, 3, "50s")
	r.remind("held", 4, 5, "1s")
	r.create("other", `,"opens_at":`+quoted(start+seconds(100)))
	r.remind("other", 1, 1, "50s")
	source := newLive()
	pause := func(names ...string) {
		source.set(func(s *settings.Settings) {
			s.ExpiryPaused, s.RemindersPaused = map[string]bool{}, map[string]bool{}
			for _, name := range names {
				s.ExpiryPaused[name], s.RemindersPaused[name] = true, true
			}
		})
	}
	pause("held")
	r.clock.set(start + seconds(50))
	s := r.scheduler(func(o *Options) {
		o.Config = source
		o.Timer = func(time.Duration) (<-chan time.Time, func()) { return nil, func() {} } // whatever waits for a timer waits for ever
	})
	run := r.run(s)
	if published := r.waitPublished(1); published[0].Campaign != "other" {
		t.Fatalf("published %s", published[0].AppendJSON(nil))
	}
	if requests := r.requested(); len(requests) != 1 {
		t.Fatalf("requested %v", sortedLines(requests))
	}
	pause()
	if published := r.waitPublished(4); published[1].Campaign != "held" {
		t.Fatalf("published %s", published[1].AppendJSON(nil))
	}
	pause("held")
	r.clock.set(start + seconds(1000))
	r.do()
	streamtest.Eventually(t, "all events folded", func() bool { return r.value("folded_sequence") == float64(r.last) })
	if b, ok := s.Backlog(); !ok || b.PausedExpiry != 1 || b.PausedReminders != 1 || b.Normal.OldestDue != 0 || b.Pending != 2 {
		t.Errorf("backlog %+v, %t", b, ok)
	}
	if n := r.value("oldest_due_age_seconds"); n != 0 {
		t.Errorf("what a pause holds back is %g seconds old", n)
	}
	if n := len(r.requested()); n != 2 {
		t.Errorf("requested %v", sortedLines(r.requested()))
	}
	pause()
	streamtest.Eventually(t, "those that are too late are dropped", func() bool { return r.value("reminders_dropped_total") == 2 })
	r.eventually("held expires", func(ev *wire.Event) bool { return ev.Type == wire.CouponsExpired && ev.Campaign == "held" })
	run.stop()
	if _, ok := s.Backlog(); ok {
		t.Error("a backlog of a scheduler that does not run")
	}
	r.waitPublished(4)
}

// While the rate holds the fan-out back, expiries are requested, answered and folded, and other settings are in force at
// once.
func TestExpiriesGoOnBesideASlowFanOut(t *testing.T) {
	r := newRig(t)
	const customers = 300
	r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
	r.remind("a", 1, customers, "50s")
	for i := range 3 {
		r.create(fmt.Sprint("e", i), `,"expires_at":`+quoted(start+seconds(60+i)))
	}
	r.clock.set(start + seconds(50))
	cmd := wire.Command{ID: "s", Type: wire.RemindDue, Campaign: "a", Kind: wire.KindOpens, DueAt: start + seconds(50), ThroughR: customers}
	r.answer(append(cmd.AppendJSON(nil), '\n')) // all at once, as no scheduler with this rate would request
	source := newLive()
	source.set(func(s *settings.Settings) { s.ReminderRate, s.ReminderBatch = 1, 10 })
	run := r.run(r.scheduler(func(o *Options) { o.Config = source }))
	if published := r.waitPublished(10); published[9].CustomerID != "c10" { // the clock does not move: one message, and no more
		t.Errorf("published %s", published[9].AppendJSON(nil))
	}
	for i := range 3 {
		r.clock.set(start + seconds(60+i))
		name := fmt.Sprint("e", i)
		r.eventually(name+" expires", func(ev *wire.Event) bool { return ev.Type == wire.CouponsExpired && ev.Campaign == name })
	}
	r.seen()
	if n := len(r.published()); n > 10+3*10 {
		t.Errorf("%d published", n)
	}
	if n := r.value("outstanding"); n < customers-40 {
		t.Errorf("%g outstanding", n)
	}
	source.set(func(s *settings.Settings) { s.ReminderBatch = 100 })
	eachOnce(t, r.waitPublished(customers), customers)
	run.stop()
	if n := len(r.reminderMessages()); n > 4+3 {
		t.Errorf("%d messages", n)
	}
}

// The reminder stream takes nothing for a while: expiries go on, and when it does again none is missing or published twice.
func TestExpiriesGoOnWhileTheReminderStreamIsFull(t *testing.T) {
	r := newRig(t)
	const customers = 1700
	r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
	r.remind("a", 1, customers, "50s")
	r.create("e", `,"expires_at":`+quoted(start+seconds(60)))
	limit := func(bytes int64) {
		t.Helper()
		stream, err := r.js.Stream(t.Context(), eventlog.Reminders(r.js, 0).Name())
		if err != nil {
			t.Fatal(err)
		}
		c := stream.CachedInfo().Config
		c.MaxBytes = bytes
		if _, err := r.js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	limit(1000)
	run := r.run(r.scheduler())
	r.seen()
	r.clock.set(start + seconds(50))
	streamtest.Eventually(t, "fired", func() bool { return r.value("reminders_fired_total") == customers })
	r.clock.set(start + seconds(60))
	r.eventually("e expires", func(ev *wire.Event) bool { return ev.Type == wire.CouponsExpired })
	r.seen()
	if n := len(r.published()); n != 0 {
		t.Fatalf("%d published", n)
	}
	limit(-1)
	eachOnce(t, r.waitPublished(customers), customers)
	run.stop()
}

// The numbers to watch, by priority.
func TestBacklogIsSeen(t *testing.T) {
	r := newRig(t)
	for _, p := range []string{"high", "normal", "low"} {
		r.create(p, fmt.Sprintf(`,"priority":%q,"opens_at":%q`, p, start+seconds(100)))
		r.remind(p, 1, 3, map[string]string{"high": "50s", "normal": "40s", "low": "30s"}[p])
	}
	r.setSilent(true)
	s := r.scheduler()
	run := r.run(s)
	r.seen()
	var b Backlog
	streamtest.Eventually(t, "a forecast", func() bool { b, _ = s.Backlog(); return b.High.RemindersNext[4] == 3 })
	if b.High.RemindersNext != [5]int{0, 0, 3, 3, 3} || b.Low.RemindersNext != [5]int{0, 0, 0, 3, 3} || b.PeakPerSecond != 3 || b.Pending != 9 || b.Share != 1 {
		t.Errorf("backlog %+v", b)
	}
	r.clock.set(start + seconds(65))
	streamtest.Eventually(t, "two are late", func() bool { b, _ = s.Backlog(); return b.Normal.OldestDue > 0 })
	if b.High.OldestDue != 15*time.Second || b.Normal.OldestDue != 5*time.Second || b.Low.OldestDue != 0 || b.Outstanding != 2*leastCost {
		t.Errorf("backlog %+v", b)
	}
	if r.value("caught_up") != 1 {
		t.Error("caught_up is not 1")
	}
	if n := r.value("oldest_due_age_seconds"); n != 20 {
		t.Errorf("the ages add up to %g", n)
	}
	r.setSilent(false)
	r.clock.set(start + seconds(75))
	r.waitPublished(9)
	r.clock.set(start + seconds(77))
	streamtest.Eventually(t, "nothing is late", func() bool { b, _ = s.Backlog(); return b.High.OldestDue+b.Normal.OldestDue+b.Low.OldestDue == 0 })
	streamtest.Eventually(t, "nothing is outstanding", func() bool {
		return r.value("oldest_due_age_seconds") == 0 && r.value("outstanding") == 0
	})
	run.stop()
	if n := r.value("due_next") + r.value("dispatch_share") + r.value("customers_waiting") + r.value("caught_up"); n != 0 {
		t.Errorf("gauges of a lane that is not worked here: %g", n)
	}
}
