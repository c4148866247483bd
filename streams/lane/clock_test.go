package lane_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// Clocks are apart by more than is tolerated and commands keep coming. What was decided is written and answered although the
// next command must wait, and the alarm is a few lines, not one per command.
func TestWhatWasDecidedIsAnsweredWhileTheNextCommandWaits(t *testing.T) {
	r := newRig(t)
	clock := streamtest.ClockAt(time.Now().Add(-time.Hour))
	o := r.options()
	o.Clock = clock
	logged := &streamtest.Buffer{}
	o.Logger = slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelError}))
	run := r.up(r.start(o))
	created, first := r.send(topology.LaneCmd(0), create("c", 1000, ""))
	var later []*nats.Subscription
	for i := range 30 {
		_, sub := r.send(topology.LaneCmd(0), claim("c", fmt.Sprint("k", i)))
		later = append(later, sub)
	}
	run.reports(t, lane.StateWaiting, "in the future")
	// Now the first may be decided, and those later it not yet.
	stored, err := eventlog.Commands(r.js, 0).Get(t.Context(), created.Sequence)
	if err != nil {
		t.Fatal(err)
	}
	clock.Set(stored.Time.Truncate(time.Microsecond).Add(-settings.Default().ClockTolerance))
	if out := r.answers(first)[0]; out.Status != wire.StatusCreated {
		t.Fatalf("%+v", out)
	}
	run.reports(t, lane.StateWaiting, "in the future")
	if n, _, err := later[0].Pending(); n != 0 || err != nil {
		t.Errorf("a command of the future was answered: %v", err)
	}
	clock.Set(time.Now().Add(time.Second))
	for _, sub := range later {
		r.answers(sub)
	}
	run.reports(t, lane.StateOwner, "")
	if n := strings.Count(logged.String(), "level=ERROR"); n < 1 || n > 10 {
		t.Errorf("%d alarms for %d commands:\n%s", n, len(later)+1, logged)
	}
}

// TestAClockThatJumpsAheadExpiresNothing: the machine's clock, which the embedded NATS server stamps commands with, is set
// two hours ahead. The lane waits until operators accept it.
func TestAClockThatJumpsAheadExpiresNothing(t *testing.T) {
	r := newRig(t)
	d := &dial{now: settings.Default(), changed: make(chan struct{})}
	o := r.options()
	o.Config = d
	// NATS stamps with the real clock, so what is two hours later is the steady one.
	started, steady := time.Now(), streamtest.NewClock()
	o.Clock = wall.New(wall.Options{
		Wall:      func() time.Time { return time.Now().Round(0) },
		Steady:    func() time.Duration { return time.Since(started) - steady.Now().Sub(started) },
		Tolerance: func() time.Duration { now, _ := d.Current(); return now.ClockTolerance },
	})
	run := r.up(r.start(o))
	r.one(create("c", 10, fmt.Sprintf(`,"expires_at":%q`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))))
	steady.Move(2 * time.Hour)
	_, expire := r.send(topology.LaneDue(0), fmt.Sprintf(`{"id":"e","type":"expire","campaign":"c","through":%q}`, time.Now().UTC().Format(time.RFC3339)))
	_, sub := r.send(topology.LaneCmd(0), claim("c", "alice"))
	run.reports(t, lane.StateWaiting, "in the future")
	if _, events := r.events(); len(events) != 1 {
		t.Fatalf("while the lane waits: %v", events)
	}
	accepted := settings.Default()
	accepted.ClockTolerance = 3 * time.Hour
	d.set(accepted)
	r.answers(expire)
	if out := r.answers(sub)[0]; out.Status != wire.StatusClaimed {
		t.Fatalf("claim after the clocks agree: %+v", out)
	}
}

// TestAGapAtTheStartIsReported: the machine was off for long, or its clock is wrong.
func TestAGapAtTheStartIsReported(t *testing.T) {
	r := newRig(t)
	run := r.up(r.start(r.options()))
	r.one(create("c", 10, ""))
	if err := run.stop(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		ahead time.Duration
		want  string
	}{{26 * time.Hour, "is long ago"}, {-26 * time.Hour, "is in the future"}, {0, ""}} {
		var logged streamtest.Buffer
		metrics := prometheus.NewRegistry()
		o := r.options()
		o.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		o.Metrics = lane.NewMetrics(metrics)
		o.Clock = streamtest.ClockAt(time.Now().Add(tc.ahead))
		run := r.up(r.start(o))
		for _, text := range []string{"is long ago", "is in the future"} {
			if got := strings.Contains(logged.String(), text); got != (text == tc.want) {
				t.Errorf("%s ahead: %q is logged: %v\n%s", tc.ahead, text, got, logged.String())
			}
		}
		gathered, err := metrics.Gather()
		var gaps []float64
		for _, f := range gathered {
			if f.GetName() == "scrip_lane_clock_gap_seconds" {
				gaps = append(gaps, f.GetMetric()[0].GetGauge().GetValue())
			}
		}
		if err != nil || len(gaps) != 1 || (time.Duration(gaps[0])*time.Second-tc.ahead).Abs() > time.Minute {
			t.Errorf("%s ahead: the gauge is %v (%v)", tc.ahead, gaps, err)
		}
		if err := run.stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// dial is a source of settings that the test turns.
type dial struct {
	mu      sync.Mutex
	now     *settings.Settings
	changed chan struct{}
}

func (d *dial) Current() (*settings.Settings, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now, d.changed
}

func (d *dial) set(s *settings.Settings) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now = s
	close(d.changed)
	d.changed = make(chan struct{})
}

// TestTheGraceChangesWhileTheLaneRuns: reminders equally late are dropped by the one and fire by the other, without a new
// taking of the lane; and each taking starts with the one in force.
func TestTheGraceChangesWhileTheLaneRuns(t *testing.T) {
	r := newRig(t)
	inForce, longer := settings.Default(), settings.Default()
	inForce.ReminderGrace, longer.ReminderGrace = time.Millisecond, time.Hour
	d := &dial{now: inForce, changed: make(chan struct{})}
	o := r.options()
	o.Config, o.Load = d, load.NewMeter(1)
	run := r.up(r.start(o))
	owner := run.Status().Owner

	// fires returns what became of a reminder that is 100 ms late.
	fires := func(name string) string {
		t.Helper()
		var campaign string
		var due time.Time
		// A reminder that is set too late is refused, which happens where the machine is slow: then there is more time.
		for ahead := 200 * time.Millisecond; ; ahead *= 4 {
			campaign = fmt.Sprint(name, "-", ahead.Milliseconds())
			due = time.Now().Add(ahead).UTC().Truncate(time.Millisecond)
			outs := r.request(create(campaign, 1, fmt.Sprintf(`,"opens_at":%q`, due.Format(time.RFC3339Nano))),
				fmt.Sprintf(`{"id":"set-%s","type":"remind","campaign":"%s","customer_id":"ann","kind":"opens","before":"0s"}`, campaign, campaign))
			if outs[1].Status == "reminder_set" {
				break
			}
			if ahead > time.Minute {
				t.Fatalf("%+v", outs)
			}
		}
		<-time.After(time.Until(due) + 100*time.Millisecond)
		client := o.Load.Lanes[0].Client.Load()
		_, sub := r.send(topology.LaneDue(0), fmt.Sprintf(`{"id":"due-%s","type":"remind_due","campaign":"%s","kind":"opens","due_at":%q,"through_r":1}`, campaign, campaign, due.Format(time.RFC3339Nano)))
		r.answers(sub)
		if now := o.Load.Lanes[0].Client.Load(); client == 0 || now != client {
			t.Errorf("client command at %d, after one of the scheduler: %d", client, now)
		}
		_, events := r.events()
		for _, ev := range events {
			if of, _, _ := strings.Cut(ev.Campaign, "-"); ev.Type == wire.RemindersDue && of == name {
				return fmt.Sprintf("%d fired, %d dropped", ev.Fired, ev.Dropped)
			}
		}
		return "no event"
	}
	if got := fires("short"); got != "0 fired, 1 dropped" {
		t.Errorf("with the short grace: %s", got)
	}
	d.set(longer)
	run.Signals().Configured.WaitFor(t, func(s *settings.Settings) bool { return s == longer })
	if got := fires("long"); got != "1 fired, 0 dropped" {
		t.Errorf("with the long grace: %s", got)
	}
	if got := run.Status().Owner; got != owner {
		t.Errorf("the lane was taken again, by %s", got)
	}
}
