package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// Reminders of one instant that wait for the rate that operators set are all published, however long that takes.
func TestWaitingForTheRateDropsNothing(t *testing.T) {
	r := newRig(t)
	const customers = 5000
	r.create("a", `,"opens_at":`+quoted(start+seconds(100)))
	r.remind("a", 1, customers, "50s")
	l := newLive()
	l.set(func(s *settings.Settings) { s.ReminderRate, s.ReminderBatch = 1, 10 })
	run := r.run(r.scheduler(func(o *Options) { o.Config = l }))
	r.seen()
	for s := 50; r.value("reminders_pending") > 0 && s < 1000; s++ {
		r.clock.set(start + seconds(s))
		r.clock.looksAround(t)
		if s == 500 {
			l.set(func(*settings.Settings) {}) // the rate is taken back: what waited for it goes at once
		}
	}
	streamtest.Eventually(t, "nothing pends", func() bool { return r.value("reminders_pending") == 0 })
	if published, dropped := len(r.published()), r.value("reminders_dropped_total"); dropped > 0 {
		t.Errorf("%d are published, %.0f dropped", published, dropped)
	}
	run.stop()
}

// The opening is moved to sooner: a reminder of an hour before is late, the opening is still to come.
func TestAnOpeningMovedToSoonerIsPublished(t *testing.T) {
	r := newRig(t)
	r.create("a", `,"opens_at":`+quoted(start+seconds(7200)))
	r.remind("a", 1, 3, "3600s")
	run := r.run(r.scheduler())
	r.seen()
	r.clock.set(start + seconds(1800))
	r.do(`"type":"update_campaign","campaign":"a","opens_at":` + quoted(start+seconds(2700)))
	r.seen()
	streamtest.Eventually(t, "nothing pends", func() bool { return r.value("reminders_pending") == 0 })
	if published := len(r.published()); published != 3 {
		t.Errorf("%d are published, %.0f dropped", published, r.value("reminders_dropped_total"))
	}
	run.stop()
}

// What is pending when its lane comes back after an outage fires while it is of use, and is dropped once it is not.
func TestAfterAnOutageWhatIsOfUseIsPublished(t *testing.T) {
	r := newRig(t)
	r.create("a", `,"expires_at":`+quoted(start+seconds(2*86400)))
	r.do(`"type":"claim","campaign":"a","customer_id":"ann"`, `"type":"remind","campaign":"a","customer_id":"ann","kind":"expires","before":"24h"`)
	r.create("b", `,"opens_at":`+quoted(start+seconds(86400+300)))
	r.remind("b", 1, 5, "3600s")
	r.create("c", `,"opens_at":`+quoted(start+seconds(2*86400))+`,"late_after":"1h"`)
	r.remind("c", 1, 7, "86000s")
	r.clock.set(start + seconds(86400+6*3600))
	run := r.run(r.scheduler())
	streamtest.Eventually(t, "nothing pends", func() bool { return r.value("caught_up") == 1 && r.value("reminders_pending") == 0 })
	if published, dropped := len(r.published()), r.value("reminders_dropped_total"); published != 1 || dropped != 5+7 {
		t.Errorf("%d are published, %.0f dropped; want the coupon's alone, and those of the opening that has passed and of the campaign that wants none so late dropped", published, dropped)
	}
	run.stop()
}

// What the lane will drop is requested behind what can be of use.
func TestHopelessGoLast(t *testing.T) {
	now := start + seconds(3600)
	for _, c := range []struct {
		name     string
		settings wire.Settings
	}{
		{"the opening has passed", wire.Settings{OpensAt: start}},
		{"later than late_after", wire.Settings{OpensAt: now + seconds(1), LateAfter: time.Minute}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newPlannerRig(t)
			for i := range 50 {
				name := fmt.Sprintf("old%02d", i)
				d.fold(wire.Event{Type: wire.CampaignCreated, Campaign: name, Settings: c.settings})
				ahead := time.Duration(c.settings.OpensAt-start)*time.Microsecond + time.Second
				for j := range 1000 {
					d.fold(wire.Event{Type: wire.ReminderSet, Campaign: name, R: uint64(j + 1), CustomerID: "x", Kind: wire.KindOpens, Before: ahead + time.Duration(j)*time.Second})
				}
			}
			d.campaign("fresh", "", now, 1)
			n := 0
			for requests := d.p.requests(now); len(requests) > 0; requests = d.p.requests(now) {
				for i := range requests {
					if requests[i].Campaign == "fresh" {
						if n > 0 {
							t.Fatalf("requested behind %d that will be dropped", n)
						}
						return
					}
					n++
					d.answer(&requests[i])
				}
			}
			t.Fatal("never requested")
		})
	}
}

// Within a campaign, too, what can be of use is requested before what the lane will drop; in the end all of it is requested.
func TestFreshGoesBeforeTheHopelessOfItsCampaign(t *testing.T) {
	d, now, instants := newPlannerRig(t), start+seconds(3*3600), 2*maxDeferred
	d.fold(wire.Event{Type: wire.CampaignCreated, Campaign: "a", Settings: wire.Settings{OpensAt: now + seconds(1), LateAfter: time.Minute}})
	for r := 1; r <= instants; r++ {
		d.fold(wire.Event{Type: wire.ReminderSet, Campaign: "a", R: uint64(r), CustomerID: "x", Kind: wire.KindOpens, Before: time.Hour + time.Duration(r)*time.Second})
	}
	d.fold(wire.Event{Type: wire.ReminderSet, Campaign: "a", R: uint64(instants + 1), CustomerID: "x", Kind: wire.KindOpens, Before: time.Second})
	cmds := d.p.requests(now)
	if len(cmds) == 0 || cmds[0].DueAt != now {
		t.Fatalf("requested %v", sortedLines(cmds))
	}
	for ; len(cmds) > 0; cmds = d.p.requests(now) {
		for i := range cmds {
			if d.answer(&cmds[i]) != 1 {
				t.Fatalf("%s fires nothing", cmds[i].AppendJSON(nil))
			}
		}
	}
	if n := d.p.timers.Reminders(); n != 0 {
		t.Errorf("%d reminders are left", n)
	}
}
