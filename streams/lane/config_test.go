package lane_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// dial is a source of settings that the test turns.
type dial struct {
	mu      sync.Mutex
	now     *settings.Settings
	changed chan struct{}
	reads   int // since it was set
}

func (d *dial) Current() (*settings.Settings, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reads++
	return d.now, d.changed
}

// set turns it.
func (d *dial) set(s *settings.Settings) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now, d.reads = s, 0
	if d.changed != nil {
		close(d.changed)
	}
	d.changed = make(chan struct{})
}

// grace turns it, and waits until the lane has looked.
func (d *dial) grace(t *testing.T, grace time.Duration) {
	t.Helper()
	s := settings.Default()
	s.ReminderGrace = grace
	d.set(s)
	streamtest.Eventually(t, "the lane looks at its settings", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.reads > 0
	})
}

// TestTheGraceChangesWhileTheLaneRuns: reminders equally late are dropped by the one and fire by the other, without a new
// taking of the lane; and the next taking begins with the one in force.
func TestTheGraceChangesWhileTheLaneRuns(t *testing.T) {
	r := newRig(t)
	inForce := settings.Default()
	inForce.ReminderGrace = time.Millisecond
	d := &dial{now: inForce, changed: make(chan struct{})}
	o := r.options()
	o.Config, o.Load = d, load.NewMeter(1)
	client := &o.Load.Lanes[0].Client
	run := r.up(r.start(o))
	if client.Load() != 0 {
		t.Error("a client's command was read before one was sent")
	}
	owner := run.Status().Owner

	const late = 100 * time.Millisecond
	sent := uint64(0)
	remind := func(name string) {
		t.Helper()
		var campaign string
		var due time.Time
		// A reminder that is set too late is refused, which happens where the machine is slow: then there is more time.
		for ahead := 200 * time.Millisecond; ; ahead *= 4 {
			campaign = fmt.Sprint(name, "-", ahead.Milliseconds())
			due = time.Now().Add(ahead).UTC().Truncate(time.Millisecond)
			outs := r.request(create(campaign, 1, fmt.Sprintf(`,"opens_at":%q`, due.Format(time.RFC3339Nano))),
				fmt.Sprintf(`{"id":"set-%s","type":"remind","campaign":"%s","customer_id":"ann","kind":"opens","before":"0s"}`, campaign, campaign))
			sent += 2
			if outs[1].Status == "reminder_set" {
				break
			}
			if ahead > time.Minute {
				t.Fatalf("%+v", outs)
			}
		}
		streamtest.Eventually(t, "the reminder is late", func() bool { return time.Since(due) > late })
		last := client.Load()
		_, sub := r.send(topology.LaneDue(0), fmt.Sprintf(`{"id":"due-%s","type":"remind_due","campaign":"%s","kind":"opens","due_at":%q,"through_r":1}`, campaign, campaign, due.Format(time.RFC3339Nano)))
		r.answers(sub)
		sent++
		if now := client.Load(); last == 0 || now != last {
			t.Errorf("client command at %d, after one of the scheduler: %d", last, now)
		}
	}
	remind("short")
	streamtest.Eventually(t, "all commands count as load", func() bool { return o.Load.Lanes[0].Done.Load() == sent })
	d.grace(t, time.Hour)
	remind("long")
	if got := run.Status().Owner; got != owner {
		t.Errorf("the lane was taken again, by %s", got)
	}
	if err := run.stop(); err != nil {
		t.Fatal(err)
	}
	r.up(r.start(o))
	remind("again")

	_, events := r.events()
	fired := map[string]string{}
	for _, ev := range events {
		if ev.Type == wire.RemindersDue {
			name, _, _ := strings.Cut(ev.Campaign, "-")
			fired[name] = fmt.Sprintf("%d fired, %d dropped", ev.Fired, ev.Dropped)
		}
	}
	for campaign, want := range map[string]string{"short": "0 fired, 1 dropped", "long": "1 fired, 0 dropped", "again": "1 fired, 0 dropped"} {
		if fired[campaign] != want {
			t.Errorf("%s: %q, want %s", campaign, fired[campaign], want)
		}
	}
}
