package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

// The lane never answers for one campaign: its requests are repeated for ever, but after a while they do not hold up the
// others; and what is answered late all the same is not taken off twice.
func TestRequestThatIsNeverAnswered(t *testing.T) {
	d := newPlannerRig(t)
	d.campaign("a", "", start, 4000)
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
			if repeats++; now > start+seconds(200) {
				t.Fatalf("b is not requested, %d in flight", d.p.inFlight[reminder])
			}
		}
	}
	if now < start+wire.Instant(giveUpAfter/time.Microsecond) || repeats <= chunksInFlight*maxRetries || d.p.givenUp != 1 || d.p.lastGivenUp.campaign != "a" {
		t.Errorf("%d campaigns are given up at %s after %d repeats", d.p.givenUp, now, repeats)
	}
	var again []wire.Command
	for ; len(again) < chunksInFlight; now += seconds(1) {
		again = append(again, d.p.requests(now)...)
	}
	if len(again) != chunksInFlight {
		t.Fatalf("requested again %v", sortedLines(again))
	}
	for i := range again {
		d.answer(&again[i])
	}
	if d.p.requests(now + seconds(40)); d.p.inFlight != [classes]int{} || d.p.givenUp != 0 || len(d.p.plans) != 0 {
		t.Errorf("%v in flight, %d given up", d.p.inFlight, d.p.givenUp)
	}
}

// Our clock is ahead of the lane's, so that it does nothing at first: what is due fires within a second of its instant by
// the lane's clock.
func TestLaneWithAClockBehindOurs(t *testing.T) {
	for _, behind := range []wire.Instant{1, seconds(3) + 1, seconds(9)} {
		d := newPlannerRig(t)
		d.campaign("a", "", start, 1)
		d.fold(wire.Event{Type: wire.CampaignCreated, Campaign: "b", Settings: wire.Settings{ExpiresAt: start}})
		late := map[string]wire.Instant{}
		for now := start; len(late) < 2; now = d.p.wake() {
			for _, cmd := range d.p.requests(now) {
				if lanes := now - behind; lanes >= start {
					d.answer(&cmd)
					late[cmd.Campaign] = lanes - start
				}
			}
		}
		for name, by := range late {
			if by >= seconds(1) {
				t.Errorf("with a clock %d µs behind, %s was %d µs late", behind, name, by)
			}
		}
	}
}

// Many due at one instant are requested in chunks, of which a few are in flight; the next is sent when one is answered and published,
// each customer is requested once, and what is in flight is never more than it may be.
func TestChunks(t *testing.T) {
	d := newPlannerRig(t)
	d.campaign("a", "", start, 1050)
	d.p.allow(100)
	requests := d.p.requests(start)
	if len(requests) != chunksInFlight {
		t.Fatalf("%d requests at once, expected %d", len(requests), chunksInFlight)
	}
	if d.p.wake() <= start || d.p.ready() {
		t.Errorf("wakes at %s with nothing to do", d.p.wake())
	}
	for i := 0; len(requests) > 0; i++ {
		cmd := requests[0]
		if want := uint64(min(100*(i+1), 1050)); cmd.ThroughR != want || cmd.DueAt != start {
			t.Fatalf("request %d is %s, expected through %d", i, cmd.AppendJSON(nil), want)
		}
		if n := d.answer(&cmd); n != min(100, 1050-100*i) {
			t.Fatalf("request %d fires %d", i, n)
		}
		d.p.unpublished += 100 // folded, not on the stream
		if more := d.p.requests(start); len(more) != 0 {
			t.Fatalf("requested %v with %d untold", sortedLines(more), d.p.unpublished)
		}
		if d.p.inFlight[reminder]+d.p.unpublished > d.p.most {
			t.Fatalf("%d in flight and %d are untold, %d may", d.p.inFlight[reminder], d.p.unpublished, d.p.most)
		}
		d.p.unpublished -= 100
		if d.p.behind()[timers.Normal] > 0 && !d.p.ready() {
			t.Fatalf("not ready with %d waiting", d.p.behind()[timers.Normal])
		}
		requests = append(requests[1:], d.p.requests(start)...)
	}
	if d.p.timers.Reminders() != 0 || d.p.inFlight != [classes]int{} || len(d.p.plans) != 0 || d.p.oldest(timers.Normal) != wire.Never || d.p.repeated != 0 {
		t.Errorf("%d reminders left, %v in flight, %d plans, oldest %s, %d repeats", d.p.timers.Reminders(), d.p.inFlight, len(d.p.plans), d.p.oldest(timers.Normal), d.p.repeated)
	}
	if len(d.p.requests(start+1)) != 0 || d.p.wake() != wire.Never {
		t.Errorf("wakes at %s after all is done", d.p.wake())
	}
}

// Expiries go while the fan-out is full; ten thousand campaigns at once do not go at once; reminders go meanwhile.
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
	var shares [timers.Priorities]int
	for _, cmd := range requests {
		if cmd.Type != wire.Expire {
			t.Fatalf("requested %s", cmd.AppendJSON(nil))
		}
		shares[d.p.timers.Campaign(cmd.Campaign).Priority]++
	}
	for p, n := range shares {
		if want := maxExpiries * weights[p] / sumOf(weights); n < want-200 || n > want+200 {
			t.Errorf("%d of %s, expected %d", n, timers.Priority(p), want)
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

// A pause holds back what is due in a campaign, of its kind and of no other, wakes none, and does not count as old; its
// end sets free what was held, at once.
func TestPauses(t *testing.T) {
	d := newPlannerRig(t)
	end := start + seconds(100)
	for _, name := range []string{"a", "b"} {
		d.campaign(name, "high", start, 3)
		d.fold(wire.Event{Type: wire.CampaignUpdated, Campaign: name, Settings: wire.Settings{OpensAt: start, ExpiresAt: end, Priority: "high"}})
	}
	set := func(expiries, reminders map[string]bool) {
		d.p.configure(changed(func(s *settings.Settings) { s.ExpiryPaused, s.RemindersPaused = expiries, reminders }))
	}
	a := map[string]bool{"a": true, "never created": true}
	set(nil, a)
	if requests := d.p.requests(start); len(requests) != 1 || requests[0].Campaign != "b" {
		t.Fatalf("requested %v", sortedLines(requests))
	} else {
		d.answer(&requests[0])
	}
	if expiries, reminders := d.p.paused(start); expiries != 0 || reminders != 1 {
		t.Errorf("%d expiries and %d reminders held back", expiries, reminders)
	}
	if requests := d.p.requests(start + 1); len(requests) != 0 || d.p.wake() != end || d.p.oldest(timers.High) != wire.Never {
		t.Errorf("requested %v, wakes at %s, the oldest is %s", sortedLines(requests), d.p.wake(), d.p.oldest(timers.High))
	}
	set(a, a)
	if requests := d.p.requests(end); len(requests) != 1 || requests[0].Campaign != "b" || requests[0].Type != wire.Expire {
		t.Fatalf("requested %v", sortedLines(requests))
	} else {
		d.answer(&requests[0])
	}
	if requests := d.p.requests(end + 1); len(requests) != 0 || d.p.wake() != wire.Never || d.p.oldest(timers.High) != wire.Never {
		t.Errorf("with all paused it requested %v, wakes at %s, the oldest is %s", sortedLines(requests), d.p.wake(), d.p.oldest(timers.High))
	}
	if expiries, reminders := d.p.paused(end); expiries != 1 || reminders != 1 {
		t.Errorf("%d expiries and %d reminders held back", expiries, reminders)
	}
	set(nil, a)
	if d.p.wake() > end+2 {
		t.Errorf("wakes at %s after a pause ended", d.p.wake())
	}
	requests := d.p.requests(end + 2)
	if len(requests) != 1 || requests[0].Type != wire.Expire || requests[0].Campaign != "a" || d.p.oldest(timers.High) != end {
		t.Fatalf("requested %v, the oldest is %s", sortedLines(requests), d.p.oldest(timers.High))
	}
	// Paused while a request is in flight: it is not repeated, and the answer of the lane is folded.
	set(a, a)
	if more := d.p.requests(end + seconds(5)); len(more) != 0 || d.p.inFlight != [classes]int{} {
		t.Errorf("requested %v, %v in flight", sortedLines(more), d.p.inFlight)
	}
	d.answer(&requests[0])
	set(nil, nil)
	if requests := d.p.requests(end + seconds(6)); len(requests) != 1 || requests[0].Type != wire.RemindDue || requests[0].ThroughR != 3 {
		t.Errorf("requested %v", sortedLines(requests))
	}
}
