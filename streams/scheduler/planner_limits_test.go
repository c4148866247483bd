package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/priority"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// The lane never answers for one campaign: its requests are repeated for ever, and the others go all the same; what is answered late
// is not taken off twice.
func TestRequestThatIsNeverAnswered(t *testing.T) {
	d := newPlannerRig(t)
	d.campaign("a", "", start, 4000)
	d.never("a", 4001)
	d.p.allow(1000)
	lost := d.p.requests(start)
	if len(lost) != chunksInFlight {
		t.Fatalf("requested %v", sortedLines(lost))
	}
	d.campaign("b", "", start, 10)
	now, repeats := start, 0
	for e := d.p.timers.Campaign("b"); e.Pending() > 0; {
		now = d.p.wake()
		for _, cmd := range d.p.requests(now) {
			if cmd.Campaign == "b" {
				d.answer(&cmd)
				continue
			}
			if repeats++; now > start+freshFor+firstRetry {
				t.Fatalf("b is not requested, %d in flight", d.p.inFlight[reminder])
			}
		}
	}
	again := map[string]wire.Command{}
	for ; len(again) < chunksInFlight && now < start+seconds(100); now = d.p.wake() {
		for _, cmd := range d.p.requests(now) {
			again[fmt.Sprint(cmd.ThroughR)] = cmd
		}
	}
	for _, cmd := range again {
		d.answer(&cmd)
	}
	if d.p.requests(now + seconds(40)); repeats < chunksInFlight || d.p.inFlight != [classes]int{} || len(d.p.plans) != 0 {
		t.Errorf("%d repeats, then %d requested again, %v in flight", repeats, len(again), d.p.inFlight)
	}
}

// Our clock is ahead of the lane's, so that it does nothing at first: what is due fires within a second of its instant by
// the lane's clock.
func TestLaneWithASlowerClock(t *testing.T) {
	for _, lag := range []wire.Instant{1, seconds(3) + 1, seconds(9)} {
		d := newPlannerRig(t)
		d.campaign("a", "", start, 1)
		d.fold(wire.Event{Type: wire.CampaignCreated, Campaign: "b", Settings: wire.Settings{ExpiresAt: start}})
		late := map[string]wire.Instant{}
		for now := start; len(late) < 2; now = d.p.wake() {
			for _, cmd := range d.p.requests(now) {
				if lanes := now - lag; lanes >= start {
					d.answer(&cmd)
					late[cmd.Campaign] = lanes - start
				}
			}
		}
		for name, by := range late {
			if by >= seconds(1) {
				t.Errorf("with a clock that lags %d µs, %s was %d µs late", lag, name, by)
			}
		}
	}
}

// Expiries go while the fan-out is full; ten thousand campaigns at once do not go at once; reminders go all the same.
func TestExpiriesAndRemindersDoNotWaitForEachOther(t *testing.T) {
	d := newPlannerRig(t)
	const campaigns = 10_000
	for i := range campaigns {
		d.fold(wire.Event{Type: wire.CampaignCreated, Campaign: fmt.Sprintf("e%05d", i), Settings: wire.Settings{ExpiresAt: start - wire.Instant(i%7), Priority: []string{"high", "normal", "low"}[i%3]}})
	}
	d.campaign("r", "", start, 100)
	d.p.unpublished = 1 << 30
	requests := d.p.requests(start)
	if len(requests) != maxExpiries || d.p.inFlight[expiry] != maxExpiries {
		t.Fatalf("%d requests, %d in flight", len(requests), d.p.inFlight[expiry])
	}
	var shares [priority.Campaigns]int
	for _, cmd := range requests {
		if cmd.Type != wire.Expire {
			t.Fatalf("requested %s", cmd.AppendJSON(nil))
		}
		shares[d.p.timers.Campaign(cmd.Campaign).Priority]++
	}
	for p, n := range shares {
		if want := maxExpiries * []int{8, 3, 1}[p] / 12; n < want-200 || n > want+200 {
			t.Errorf("%d of %s, expected %d", n, priority.Priority(p), want)
		}
	}
	if d.p.unpublished = 0; !d.p.ready() {
		t.Fatal("the reminders are not ready")
	}
	if more := d.p.requests(start); len(more) != 1 || more[0].Type != wire.RemindDue {
		t.Fatalf("requested %v", sortedLines(more))
	}
	total := len(requests)
	for len(requests) > 0 {
		d.answer(&requests[0])
		more := d.p.requests(start)
		total += len(more)
		if requests = append(requests[1:], more...); len(requests) > maxExpiries {
			t.Fatalf("%d requests in flight", len(requests))
		}
	}
	if total != campaigns || d.p.inFlight[expiry] != 0 {
		t.Errorf("%d requests in all, %d in flight", total, d.p.inFlight[expiry])
	}
}

// Catching up costs the same for each instant however many are overdue, in however many campaigns; each is requested once;
// and what the planner keeps follows the campaigns and what may be in flight.
func TestCatchingUpIsLinear(t *testing.T) {
	for _, c := range []struct{ campaigns, instants int }{{1, 25_000}, {50, 500}, {500, 50}} {
		d := newPlannerRig(t)
		for i := range c.campaigns {
			name := fmt.Sprintf("c%03d", i)
			d.campaign(name, "", start, 0)
			d.overdue(name, 1, c.instants)
		}
		total := c.campaigns * c.instants
		fired, most := 0, d.p.most/leastCost
		for d.p.timers.Reminders() > 0 {
			cmds := d.p.requests(start)
			inFlight := 0
			for _, pl := range d.p.plans {
				inFlight += len(pl.queues[reminder])
			}
			if len(cmds) == 0 || inFlight > most || len(d.p.plans) > c.campaigns {
				t.Fatalf("%d commands, %d in flight, %d plans", len(cmds), inFlight, len(d.p.plans))
			}
			for i := range cmds {
				if n := d.answer(&cmds[i]); n != 1 {
					t.Fatalf("%s fires %d", cmds[i].AppendJSON(nil), n)
				}
				fired++
			}
		}
		if d.p.requests(start); fired != total || d.p.repeated != 0 || d.p.inFlight != [classes]int{} || d.p.waits() != [priority.Campaigns]int{} || len(d.p.plans) != 0 {
			t.Errorf("%d fired, %d repeats, %v in flight, %v wait", fired, d.p.repeated, d.p.inFlight, d.p.waits())
		}
		if d.p.examined > 2*total {
			t.Errorf("%d campaigns of %d instants: %d instants examined, expected at most %d", c.campaigns, c.instants, d.p.examined, 2*total)
		}
	}
}

// A campaign of which nothing else is pending fires in one command, but neither beside another nor at an operator's rate.
func TestWholeCampaigns(t *testing.T) {
	const customers = maxChunk + 1
	for _, c := range []struct {
		name    string
		prepare func(*plannerRig)
		want    uint64
	}{
		{"alone", func(*plannerRig) {}, customers},
		{"with a reminder for later", func(d *plannerRig) { d.never("a", customers+1) }, maxChunk},
		{"beside another campaign", func(d *plannerRig) { d.campaign("b", "", start, 1) }, maxChunk},
		{"at a rate", func(d *plannerRig) {
			d.p.configure(changed(func(s *settings.Settings) { s.ReminderRate = 1000 }))
		}, maxChunk},
	} {
		d := newPlannerRig(t)
		d.campaign("a", "", start, customers)
		c.prepare(d)
		for _, cmd := range d.p.requests(start) {
			if cmd.Campaign == "a" {
				streamtest.Equal(t, c.name+": the first request is through", cmd.ThroughR, c.want)
				break
			}
		}
	}
}

// A campaign of very many customers does not hold up one of the same priority that is due a moment later.
func TestCampaignsOfAPriorityShare(t *testing.T) {
	d := newPlannerRig(t)
	d.campaign("giant", "", start, 10*maxChunk)
	d.never("giant", 10*maxChunk+1)
	fired := 0
	for queue := d.p.requests(start); len(queue) > 0; queue = append(queue, d.p.requests(start+1)...) {
		cmd := queue[0]
		queue = queue[1:]
		if cmd.Campaign == "small" {
			if fired > (chunksInFlight+1)*maxChunk {
				t.Errorf("requested after %d of the other campaign", fired)
			}
			return
		}
		if fired += d.answer(&cmd); fired == maxChunk {
			d.campaign("small", "", start+1, 1)
		}
	}
	t.Fatal("never requested")
}

// A reminder is cancelled between its request and the lane's decision, which makes no event: that is no answer, and takes
// no room for long.
func TestCancelledRequestIsNoAnswer(t *testing.T) {
	d := newPlannerRig(t)
	d.campaign("a", "", start, 2)
	d.p.at(start)
	if cmds := d.p.requests(start); len(cmds) != 1 {
		t.Fatal(sortedLines(cmds))
	}
	d.p.at(start + 900_000)
	for r := range 2 {
		d.fold(wire.Event{Type: wire.ReminderCancelled, Campaign: "a", R: uint64(r + 1)})
	}
	if cmds := d.p.requests(start + 900_000); len(cmds) != 0 || d.p.answered != 0 || d.p.inFlight != [classes]int{} || len(d.p.plans) != 0 {
		t.Errorf("%v requested, an answer took %s, %v in flight", sortedLines(cmds), d.p.answered, d.p.inFlight)
	}
}

// What the lane will drop is requested after what can be of use.
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
							t.Fatalf("requested after %d that will be dropped", n)
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
	streamtest.Equal(t, "reminders are left", d.p.timers.Reminders(), 0)
}
