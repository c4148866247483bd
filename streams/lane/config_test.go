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
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

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
// taking of the lane; and the next taking begins with the one in force.
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
	if err := run.stop(); err != nil {
		t.Fatal(err)
	}
	r.up(r.start(o))
	if got := fires("again"); got != "1 fired, 0 dropped" {
		t.Errorf("after the next taking: %s", got)
	}
}
