package scheduler

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/wall"
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

// Very many at one instant: requested at once, or beside people and a reminder for later in chunks; published in order, each once,
// in full messages.
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
				base, r.clock = wire.At(time.Now()), wall.Machine
			}
			r.create("a", `,"opens_at":`+quoted(base+seconds(3600)))
			r.remind("a", 1, customers, "3000s")
			if c.busy {
				r.remind("a", customers+1, customers+1, "1s")
			}
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
			eachOnce(t, r.waitPublished(customers), customers)
			run.stop()
			if now := meter.Level(); !rushed.Load() || now == load.Burst {
				t.Errorf("a burst before: %v; level when it has ended: %v", rushed.Load(), now)
			}
			messages, requests := len(r.reminderMessages()), len(r.requested())
			if !c.busy && (requests != 1 || messages > customers/wire.MaxDueCustomers+1) {
				t.Errorf("%d requests, %d messages", requests, messages)
			}
			if c.busy && requests <= 3 {
				t.Errorf("beside people it requested chunks as large as alone: %d requests", requests)
			}
		})
	}
}

// deaf is a clock whose timers never fire.
type deaf struct{ wall.Clock }

func (deaf) After(time.Duration) <-chan time.Time { return nil }

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
	r.set(start + seconds(50))
	s := r.scheduler(func(o *Options) { o.Config, o.Clock = source, deaf{r.clock} })
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
	r.set(start + seconds(1000))
	r.do()
	r.quiet()
	if b, ok := s.Backlog(); !ok || b.PausedExpiry != 1 || b.PausedReminders != 1 || b.Normal.OldestDue != 0 || b.Pending != 2 {
		t.Errorf("backlog %+v, %t", b, ok)
	}
	streamtest.Equal(t, "what a pause holds back", r.value("oldest_due_age_seconds"), 0)
	if n := len(r.requested()); n != 2 {
		t.Errorf("requested %v", sortedLines(r.requested()))
	}
	pause()
	r.expired("held")
	r.waitPublished(4)
	streamtest.Equal(t, "dropped, which are too late", r.value("reminders_dropped_total"), 2)
	run.stop()
	if _, ok := s.Backlog(); ok {
		t.Error("a backlog of a scheduler that does not run")
	}
}

// Reminders of one instant that wait for the rate that operators set are all published, however long that takes.
func TestWaitingForTheRateDropsNothing(t *testing.T) {
	r := newRig(t)
	const customers = 2500
	r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
	r.remind("a", 1, customers, "50s")
	l := newLive()
	l.set(func(s *settings.Settings) { s.ReminderRate, s.ReminderBatch = 1, 10 })
	run := r.run(r.scheduler(func(o *Options) { o.Config = l }))
	r.quiet()
	for _, s := range []int{50, 100, 1000, 3600} { // the opening has passed, and the grace after it
		requests := len(r.requested())
		r.set(start + seconds(s))
		r.heard.WaitFor(t, func(n int) bool { return n > requests })
		r.seen()
	}
	if n := len(r.published()); n > 100 {
		t.Errorf("%d are published at four instants, with ten at each and what the lane was requested before", n)
	}
	l.set(func(*settings.Settings) {}) // the rate is taken back: what waited for it goes at once
	eachOnce(t, r.waitPublished(customers), customers)
	run.stop()
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
		streamtest.Must(t, err)
		c := stream.CachedInfo().Config
		c.MaxBytes = bytes
		if _, err := r.js.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	limit(1000)
	run := r.run(r.scheduler())
	r.quiet()
	for i, s := range []int{50, 60} {
		r.set(start + seconds(s))
		r.heard.WaitFor(t, func(n int) bool { return n == i+1 })
		r.seen()
	}
	if fired, expired := r.value("reminders_fired_total"), r.count(wire.CouponsExpired); fired != customers || expired != 1 {
		t.Errorf("%g fired, %d campaigns expired", fired, expired)
	}
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
	r.quiet()
	b, _ := s.Backlog()
	if b.Pending != 9 || b.Share != 1 {
		t.Errorf("backlog %+v", b)
	}
	r.set(start + seconds(65))
	r.seen()
	if b, _ = s.Backlog(); b.High.OldestDue != 15*time.Second || b.Normal.OldestDue != 5*time.Second || b.Low.OldestDue != 0 || b.Outstanding != 2*leastCost {
		t.Errorf("backlog %+v", b)
	}
	if r.value("caught_up") != 1 {
		t.Error("caught_up is not 1")
	}
	streamtest.Equal(t, "the ages add up to", r.value("oldest_due_age_seconds"), 20)
	r.setSilent(false)
	r.set(start + seconds(75))
	r.waitPublished(9)
	r.set(start + seconds(77))
	r.quiet()
	if b, _ = s.Backlog(); b.High.OldestDue+b.Normal.OldestDue+b.Low.OldestDue != 0 || r.value("oldest_due_age_seconds")+r.value("outstanding") != 0 {
		t.Errorf("backlog %+v, %g outstanding", b, r.value("outstanding"))
	}
	run.stop()
	if n := r.value("dispatch_share") + r.value("customers_waiting") + r.value("caught_up"); n != 0 {
		t.Errorf("gauges of a lane that is not worked here: %g", n)
	}
}
