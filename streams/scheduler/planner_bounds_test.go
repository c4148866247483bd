package scheduler

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

// With bounds that bind, requests lost and answers late, campaigns moved, cancelled, paused and given other priorities: what
// is in flight is within the bounds and adds up, and in the end everything due has been requested and answered.
func TestPlannerWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newPlannerRig(t)
		p := d.p
		p.allow(rapid.SampledFrom([]int{1, 3, 8}).Draw(t, "chunk"))
		now := start
		var onTheWay []wire.Command
		numbers := map[string]uint64{}
		names := []string{"a", "b", "c", "d"}
		pending := map[string]map[uint64]bool{}
		for i, name := range names {
			d.campaign(name, []string{"high", "normal", "low", ""}[i], now+seconds(i), 0)
			pending[name] = map[uint64]bool{}
		}
		name := func() string { return rapid.SampledFrom(names).Draw(t, "campaign") }
		answer := func(cmd wire.Command) {
			if cmd.Type == wire.RemindDue && cmd.DueAt > now {
				return
			}
			d.answer(&cmd)
			if cmd.Type == wire.RemindDue {
				for _, x := range d.gone {
					delete(pending[cmd.Campaign], x.R)
				}
			}
		}
		check := func() {
			var inFlight [classes]int
			for e, pl := range p.plans {
				for c := range classes {
					for i, q := range pl.queues[c] {
						inFlight[c] += q.cost
						if i > 0 && pl.queues[c][i-1].Compare(q.Key) > 0 {
							t.Fatalf("out of order: %+v", pl.queues[c])
						}
					}
					if pl.jobs[c].waits && pl.jobs[c].priority != e.Priority && e.Wake() > now {
						t.Fatalf("%s waits as %s", e.Name, pl.jobs[c].priority)
					}
				}
				if len(pl.queues[expiry]) > 1 || pl.jobs[reminder].waits != (pl.left > 0) {
					t.Fatalf("%+v", pl)
				}
			}
			if inFlight != p.inFlight {
				t.Fatalf("%v are in flight, noted are %v", inFlight, p.inFlight)
			}
			if p.inFlight[reminder] > p.most+p.chunk+leastCost || p.inFlight[expiry] > maxExpiries {
				t.Fatalf("%v in flight", p.inFlight)
			}
		}
		request := func() {
			p.at(now)
			onTheWay = append(onTheWay, p.requests(now)...)
			if p.wake() <= now || p.ready() {
				t.Fatalf("wakes at %s, ready %t, after it was requested at %s", p.wake(), p.ready(), now)
			}
			check()
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(*rapid.T) {
				c := name()
				for range rapid.IntRange(1, 12).Draw(t, "n") {
					numbers[c]++
					before := time.Duration(rapid.IntRange(0, 3).Draw(t, "before")) * time.Second
					d.fold(wire.Event{Type: wire.ReminderSet, Campaign: c, R: numbers[c], CustomerID: "x", Kind: wire.KindOpens, Before: before})
					pending[c][numbers[c]] = true
				}
			},
			"cancel": func(*rapid.T) {
				c := name()
				for r := uint64(1); r <= numbers[c]; r++ {
					if pending[c][r] && rapid.Bool().Draw(t, "this") {
						d.fold(wire.Event{Type: wire.ReminderCancelled, Campaign: c, R: r})
						delete(pending[c], r)
					}
				}
			},
			"update": func(*rapid.T) {
				d.fold(wire.Event{Type: wire.CampaignUpdated, Campaign: name(), Settings: wire.Settings{
					OpensAt: now + seconds(rapid.IntRange(-5, 5).Draw(t, "opens")), ExpiresAt: now + seconds(rapid.IntRange(1, 9).Draw(t, "expires")),
					Priority: rapid.SampledFrom([]string{"high", "normal", "low"}).Draw(t, "priority"),
				}})
			},
			"configure": func(*rapid.T) {
				paused := func() map[string]bool { return map[string]bool{name(): rapid.Bool().Draw(t, "paused")} }
				p.configure(changed(func(s *settings.Settings) { s.ExpiryPaused, s.RemindersPaused = paused(), paused() }))
				if rapid.Bool().Draw(t, "other chunks") {
					p.allow(rapid.SampledFrom([]int{1, 3, 8}).Draw(t, "chunk"))
				}
			},
			"request": func(*rapid.T) { request() },
			"publish": func(*rapid.T) { p.unpublished = rapid.SampledFrom([]int{0, 0, 30, 1 << 30}).Draw(t, "untold") },
			"answer": func(*rapid.T) {
				for len(onTheWay) > 0 && rapid.IntRange(0, 3).Draw(t, "more") > 0 {
					cmd := onTheWay[0]
					onTheWay = onTheWay[1:]
					if rapid.IntRange(0, 4).Draw(t, "lost") > 0 {
						answer(cmd)
					}
				}
			},
			"sleep": func(*rapid.T) { now += wire.Instant(rapid.IntRange(1, 4_000_000).Draw(t, "us")) },
			"clock": func(*rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "back") == 0 {
					now -= seconds(rapid.IntRange(1, 100).Draw(t, "s"))
				}
			},
		})
		// Everything is well from now on.
		p.configure(settings.Default())
		p.unpublished, onTheWay = 0, nil
		now = max(now, start) + seconds(1000)
		for range 3000 {
			request()
			for _, cmd := range onTheWay {
				answer(cmd)
			}
			onTheWay = nil
			if p.timers.Reminders() == 0 && len(p.plans) == 0 && p.wake() == wire.Never {
				return
			}
			now += seconds(10)
		}
		t.Fatalf("%d reminders left, %d plans, wakes at %s", p.timers.Reminders(), len(p.plans), p.wake())
	})
}
