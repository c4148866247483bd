package scheduler

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/config"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
)

// desk is a planner and a naive lane that answers it.
type desk struct {
	t interface {
		Helper()
		Fatalf(string, ...any)
	}
	p    *planner
	gone []timers.Fired // by the last event
}

func newDesk(t interface {
	Helper()
	Fatalf(string, ...any)
}) *desk {
	return &desk{t: t, p: newPlanner(timers.New(""))}
}

func (d *desk) fold(ev domain.Event) int {
	d.t.Helper()
	gone, err := d.p.timers.Fold(&ev)
	if err != nil {
		d.t.Fatalf("%v", err)
	}
	d.p.folded(&ev)
	d.gone = gone
	return len(gone)
}

// oldest and behind are parts of a planner's backlog.
func (p *planner) oldest(of timers.Priority) domain.Instant {
	oldest, _ := p.backlog()
	return oldest[of]
}

func (p *planner) behind() [timers.Priorities]int {
	_, waiting := p.backlog()
	return waiting
}

// campaign makes one whose n subscribers are due at the given instant; 0 = without an opening.
func (d *desk) campaign(name, setting string, due domain.Instant, n int) {
	d.t.Helper()
	d.fold(domain.Event{Type: domain.CampaignCreated, Campaign: name, Settings: domain.Settings{OpensAt: due, Priority: setting}})
	for r := 1; r <= n; r++ {
		d.fold(domain.Event{Type: domain.ReminderSet, Campaign: name, R: uint64(r), CustomerID: fmt.Sprint("c", r), Kind: domain.KindOpens, DueAt: due})
	}
}

// answer folds what a lane says to the command, and returns how many it fired.
func (d *desk) answer(cmd *domain.Command) int {
	d.t.Helper()
	if cmd.Type == domain.Expire {
		d.fold(domain.Event{Type: domain.CouponsExpired, Campaign: cmd.Campaign, Through: cmd.Through})
		return 0
	}
	e := d.p.timers.Campaign(cmd.Campaign)
	due := e.At(domain.DueSet{Kind: cmd.Kind, DueAt: cmd.DueAt, ThroughR: cmd.ThroughR})
	if due.Subscriptions == 0 {
		return 0
	}
	return d.fold(domain.Event{Type: domain.RemindersDue, Campaign: cmd.Campaign, Kind: cmd.Kind, DueAt: cmd.DueAt, FromR: due.FromR, ThroughR: due.LastR, Fired: due.Subscriptions})
}

// The lane never answers for one campaign: its asks are repeated for ever, but after a while they do not hold up the
// others; and what is answered late all the same is not taken off twice.
func TestAskThatIsNeverAnswered(t *testing.T) {
	d := newDesk(t)
	d.campaign("a", "", start, 4000)
	d.p.allow(1000)
	lost := d.p.requests(start)
	if len(lost) != chunksInFlight {
		t.Fatalf("asked %v", sortedLines(lost))
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
				t.Fatalf("b is not asked for, %d stand", d.p.inFlight[reminder])
			}
		}
	}
	if now < start+domain.Instant(giveUpAfter/time.Microsecond) || repeats <= chunksInFlight*maxRetries || d.p.givenUp != 1 || d.p.lastGivenUp.campaign != "a" {
		t.Errorf("%d campaigns are given up at %s after %d repeats", d.p.givenUp, now, repeats)
	}
	var again []domain.Command
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
	for _, behind := range []domain.Instant{1, seconds(3) + 1, seconds(9)} {
		d := newDesk(t)
		d.campaign("a", "", start, 1)
		d.fold(domain.Event{Type: domain.CampaignCreated, Campaign: "b", Settings: domain.Settings{ExpiresAt: start}})
		late := map[string]domain.Instant{}
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

// overdue sets n reminders, each at an instant of its own before the campaign opens.
func (d *desk) overdue(name string, from, n int) {
	d.t.Helper()
	for i := range n {
		d.fold(domain.Event{Type: domain.ReminderSet, Campaign: name, R: uint64(from + i), CustomerID: "x", Kind: domain.KindOpens, Before: time.Duration(n-i) * time.Millisecond})
	}
}

// Catching up costs the same for each instant however many are overdue, in however many campaigns; each is requested once;
// and what the planner keeps follows the campaigns and what may be in flight.
func TestCatchingUpIsLinear(t *testing.T) {
	for _, c := range []struct{ campaigns, instants int }{{1, 25_000}, {50, 500}, {500, 50}} {
		d := newDesk(t)
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
		if d.p.requests(start); fired != total || d.p.repeated != 0 || d.p.inFlight != [classes]int{} || d.p.behind() != [timers.Priorities]int{} || len(d.p.plans) != 0 {
			t.Errorf("%d fired, %d repeats, %v in flight, %v wait", fired, d.p.repeated, d.p.inFlight, d.p.behind())
		}
		if d.p.examined > 2*total {
			t.Errorf("%d campaigns of %d instants: %d instants examined, expected at most %d", c.campaigns, c.instants, d.p.examined, 2*total)
		}
	}
}

// A campaign of very many customers does not hold up one of the same priority that is due a moment later.
func TestCampaignsOfAPriorityShare(t *testing.T) {
	d := newDesk(t)
	d.campaign("giant", "", start, 10*maxChunk)
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
	d := newDesk(t)
	d.campaign("a", "", start, 2)
	d.p.at(start)
	if cmds := d.p.requests(start); len(cmds) != 1 {
		t.Fatal(sortedLines(cmds))
	}
	d.p.at(start + 900_000)
	for r := range 2 {
		d.fold(domain.Event{Type: domain.ReminderCancelled, Campaign: "a", R: uint64(r + 1)})
	}
	if cmds := d.p.requests(start + 900_000); len(cmds) != 0 || d.p.answered != 0 || d.p.inFlight != [classes]int{} || len(d.p.plans) != 0 {
		t.Errorf("%v requested, an answer took %s, %v in flight", sortedLines(cmds), d.p.answered, d.p.inFlight)
	}
}

// What waits for its turn is cancelled: what lies behind it is requested at once.
func TestWhatWaitsIsCancelled(t *testing.T) {
	d := newDesk(t)
	const instants = 1_000
	d.campaign("a", "", start, 0)
	d.overdue("a", 1, instants+1)
	d.p.unpublished = 1 << 30
	if cmds := d.p.requests(start); len(cmds) != 0 {
		t.Fatalf("requested %v", sortedLines(cmds))
	}
	for r := 1; r <= instants; r++ {
		d.fold(domain.Event{Type: domain.ReminderCancelled, Campaign: "a", R: uint64(r)})
	}
	d.p.unpublished = 0
	if cmds := d.p.requests(start); len(cmds) != 1 || cmds[0].ThroughR != instants+1 {
		t.Errorf("requested %v, wakes at %s", sortedLines(cmds), d.p.wake())
	}
}

// Very many older instants turn up after something was requested: it is not requested again when they are answered.
func TestOlderInstantsTurnUp(t *testing.T) {
	d := newDesk(t)
	d.campaign("a", "", start, 1)
	first := d.p.requests(start)
	d.overdue("a", 2, 10_000)
	d.p.unpublished = 1 << 30
	if cmds := d.p.requests(start); len(first) != 1 || len(cmds) != 0 || d.p.inFlight[reminder] != leastCost {
		t.Fatalf("requested %v, then %v; %d in flight", sortedLines(first), sortedLines(cmds), d.p.inFlight[reminder])
	}
	d.p.unpublished = 0
	for d.p.timers.Reminders() > 1 {
		for _, cmd := range d.p.requests(start) {
			if d.answer(&cmd); cmd.DueAt == start {
				t.Fatal("requested twice")
			}
		}
	}
	d.answer(&first[0])
	if d.p.requests(start); d.p.inFlight != [classes]int{} || len(d.p.plans) != 0 {
		t.Errorf("%v in flight", d.p.inFlight)
	}
}

// Many due at one instant are asked for in chunks, of which a few stand; the next leaves when one is answered and told,
// each customer is asked for once, and what stands is never more than it may be.
func TestChunks(t *testing.T) {
	d := newDesk(t)
	d.campaign("a", "", start, 1050)
	d.p.allow(100)
	asks := d.p.requests(start)
	if len(asks) != chunksInFlight {
		t.Fatalf("%d asks at once, expected %d", len(asks), chunksInFlight)
	}
	if d.p.wake() <= start || d.p.ready() {
		t.Errorf("wakes at %s with nothing to do", d.p.wake())
	}
	for i := 0; len(asks) > 0; i++ {
		cmd := asks[0]
		if want := uint64(min(100*(i+1), 1050)); cmd.ThroughR != want || cmd.DueAt != start {
			t.Fatalf("ask %d is %s, expected through %d", i, cmd.AppendJSON(nil), want)
		}
		if n := d.answer(&cmd); n != min(100, 1050-100*i) {
			t.Fatalf("ask %d fires %d", i, n)
		}
		d.p.unpublished += 100 // folded, not on the stream
		if more := d.p.requests(start); len(more) != 0 {
			t.Fatalf("asked %v with %d untold", sortedLines(more), d.p.unpublished)
		}
		if d.p.inFlight[reminder]+d.p.unpublished > d.p.most {
			t.Fatalf("%d stand and %d are untold, %d may", d.p.inFlight[reminder], d.p.unpublished, d.p.most)
		}
		d.p.unpublished -= 100
		if d.p.behind()[timers.Normal] > 0 && !d.p.ready() {
			t.Fatalf("not ready with %d waiting", d.p.behind()[timers.Normal])
		}
		asks = append(asks[1:], d.p.requests(start)...)
	}
	if d.p.timers.Reminders() != 0 || d.p.inFlight != [classes]int{} || len(d.p.plans) != 0 || d.p.oldest(timers.Normal) != domain.Never || d.p.repeated != 0 {
		t.Errorf("%d reminders left, %v stand, %d plans, oldest %s, %d repeats", d.p.timers.Reminders(), d.p.inFlight, len(d.p.plans), d.p.oldest(timers.Normal), d.p.repeated)
	}
	if len(d.p.requests(start+1)) != 0 || d.p.wake() != domain.Never {
		t.Errorf("wakes at %s after all is done", d.p.wake())
	}
}

// A lost chunk is asked for again; a chunk behind it that arrives fires both, and nothing is asked twice.
func TestLostChunks(t *testing.T) {
	d := newDesk(t)
	d.campaign("a", "", start, 300)
	d.p.allow(100)
	asks := d.p.requests(start)
	if len(asks) != 3 {
		t.Fatalf("asked %v", sortedLines(asks))
	}
	if n := d.answer(&asks[1]); n != 200 { // the first was lost
		t.Fatalf("%d fired", n)
	}
	if more := d.p.requests(start + seconds(1) - 1); len(more) != 0 {
		t.Fatalf("asked %v", sortedLines(more))
	}
	again := d.p.requests(start + seconds(1))
	if len(again) != 1 || again[0].ThroughR != 300 {
		t.Fatalf("asked again %v", sortedLines(again))
	}
	if n := d.answer(&again[0]); n != 100 || len(d.p.requests(start+seconds(60))) != 0 {
		t.Errorf("%d fired", n)
	}
}

// What is due in campaigns of three priorities is asked for as 8 : 3 : 1 while all of them wait, and all of it in the end.
func TestPrioritiesShareTheLane(t *testing.T) {
	d := newDesk(t)
	const each = 6000
	for p := range timers.Priorities {
		d.campaign(p.String(), p.String(), start-seconds(int(p)), each)
	}
	d.p.allow(50)
	// The rounds are made for larger chunks: many small ones are needed for a share.
	var fired [timers.Priorities]int
	queue := d.p.requests(start)
	for fired[timers.High] < each-200 && len(queue) > 0 {
		cmd := queue[0]
		queue = queue[1:]
		fired[timers.PriorityOf(cmd.Campaign)] += d.answer(&cmd)
		queue = append(queue, d.p.requests(start)...)
	}
	if fired[timers.Low] > fired[timers.High]/4 || fired[timers.Normal] > fired[timers.High] {
		t.Errorf("when nearly all of high had fired, the others had %v", fired)
	}
	for len(queue) > 0 {
		cmd := queue[0]
		queue = queue[1:]
		fired[timers.PriorityOf(cmd.Campaign)] += d.answer(&cmd)
		queue = append(queue, d.p.requests(start)...)
	}
	if fired != [timers.Priorities]int{each, each, each} {
		t.Errorf("fired %v", fired)
	}
}

// Expiries go while the fan-out is full; ten thousand campaigns at once do not go at once; reminders go meanwhile.
func TestExpiriesAndRemindersDoNotWaitForEachOther(t *testing.T) {
	d := newDesk(t)
	const campaigns = 10_000
	for i := range campaigns {
		d.fold(domain.Event{Type: domain.CampaignCreated, Campaign: fmt.Sprintf("e%05d", i), Settings: domain.Settings{ExpiresAt: start - domain.Instant(i%7), Priority: []string{"high", "normal", "low"}[i%3]}})
	}
	d.campaign("r", "", start, 100)
	d.p.unpublished = 1 << 30
	asks := d.p.requests(start)
	if len(asks) != maxExpiries || d.p.inFlight[expiry] != maxExpiries {
		t.Fatalf("%d asks, %d stand", len(asks), d.p.inFlight[expiry])
	}
	var shares [timers.Priorities]int
	for _, cmd := range asks {
		if cmd.Type != domain.Expire {
			t.Fatalf("asked %s", cmd.AppendJSON(nil))
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
	if more := d.p.requests(start); len(more) != 1 || more[0].Type != domain.RemindDue {
		t.Fatalf("asked %v", sortedLines(more))
	}
	total := len(asks)
	for len(asks) > 0 {
		d.answer(&asks[0])
		more := d.p.requests(start)
		total += len(more)
		if asks = append(asks[1:], more...); len(asks) > maxExpiries {
			t.Fatalf("%d asks stand", len(asks))
		}
	}
	if total != campaigns || d.p.inFlight[expiry] != 0 {
		t.Errorf("%d asks in all, %d stand", total, d.p.inFlight[expiry])
	}
}

// A pause holds back what is due in a campaign, of its kind and of no other, wakes nobody, and does not count as old; its
// end sets free what was held, at once.
func TestPauses(t *testing.T) {
	d := newDesk(t)
	end := start + seconds(100)
	for _, name := range []string{"a", "b"} {
		d.campaign(name, "high", start, 3)
		d.fold(domain.Event{Type: domain.CampaignUpdated, Campaign: name, Settings: domain.Settings{OpensAt: start, ExpiresAt: end, Priority: "high"}})
	}
	set := func(expiries, reminders map[string]bool) {
		d.p.configure(settings(func(s *config.Settings) { s.ExpiryPaused, s.RemindersPaused = expiries, reminders }))
	}
	a := map[string]bool{"a": true, "never created": true}
	set(nil, a)
	if asks := d.p.requests(start); len(asks) != 1 || asks[0].Campaign != "b" {
		t.Fatalf("asked %v", sortedLines(asks))
	} else {
		d.answer(&asks[0])
	}
	if expiries, reminders := d.p.paused(start); expiries != 0 || reminders != 1 {
		t.Errorf("%d expiries and %d reminders held back", expiries, reminders)
	}
	if asks := d.p.requests(start + 1); len(asks) != 0 || d.p.wake() != end || d.p.oldest(timers.High) != domain.Never {
		t.Errorf("asked %v, wakes at %s, the oldest is %s", sortedLines(asks), d.p.wake(), d.p.oldest(timers.High))
	}
	set(a, a)
	if asks := d.p.requests(end); len(asks) != 1 || asks[0].Campaign != "b" || asks[0].Type != domain.Expire {
		t.Fatalf("asked %v", sortedLines(asks))
	} else {
		d.answer(&asks[0])
	}
	if asks := d.p.requests(end + 1); len(asks) != 0 || d.p.wake() != domain.Never || d.p.oldest(timers.High) != domain.Never {
		t.Errorf("with all paused it asked %v, wakes at %s, the oldest is %s", sortedLines(asks), d.p.wake(), d.p.oldest(timers.High))
	}
	if expiries, reminders := d.p.paused(end); expiries != 1 || reminders != 1 {
		t.Errorf("%d expiries and %d reminders held back", expiries, reminders)
	}
	set(nil, a)
	if d.p.wake() > end+2 {
		t.Errorf("wakes at %s after a pause ended", d.p.wake())
	}
	asks := d.p.requests(end + 2)
	if len(asks) != 1 || asks[0].Type != domain.Expire || asks[0].Campaign != "a" || d.p.oldest(timers.High) != end {
		t.Fatalf("asked %v, the oldest is %s", sortedLines(asks), d.p.oldest(timers.High))
	}
	// Paused while an ask stands: it is not repeated, and what the lane says to it is folded as ever.
	set(a, a)
	if more := d.p.requests(end + seconds(5)); len(more) != 0 || d.p.inFlight != [classes]int{} {
		t.Errorf("asked %v, %v stand", sortedLines(more), d.p.inFlight)
	}
	d.answer(&asks[0])
	set(nil, nil)
	if asks := d.p.requests(end + seconds(6)); len(asks) != 1 || asks[0].Type != domain.RemindDue || asks[0].ThroughR != 3 {
		t.Errorf("asked %v", sortedLines(asks))
	}
}

// A campaign that gets another priority takes what waits with it.
func TestPriorityChangesWhileWaiting(t *testing.T) {
	d := newDesk(t)
	d.campaign("a", "low", start, 10)
	d.p.unpublished = 1 << 30
	if asks := d.p.requests(start); len(asks) != 0 || d.p.behind()[timers.Low] != 10 || d.p.oldest(timers.Low) != start {
		t.Fatalf("asked %v, %v wait", sortedLines(asks), d.p.behind())
	}
	d.fold(domain.Event{Type: domain.CampaignUpdated, Campaign: "a", Settings: domain.Settings{OpensAt: start, Priority: "high"}})
	if d.p.requests(start); d.p.behind() != [timers.Priorities]int{timers.High: 10} || d.p.oldest(timers.High) != start || d.p.oldest(timers.Low) != domain.Never {
		t.Errorf("%v wait, oldest %s and %s", d.p.behind(), d.p.oldest(timers.High), d.p.oldest(timers.Low))
	}
	d.p.unpublished = 0
	if asks := d.p.requests(start); len(asks) != 1 || d.p.behind() != [timers.Priorities]int{} {
		t.Errorf("asked %v, %v wait", sortedLines(asks), d.p.behind())
	}
}

// The clock is set back by an hour while an ask that got lost stands: it is asked again when its instant comes, not an
// hour after.
func TestClockSetBack(t *testing.T) {
	d := newDesk(t)
	d.campaign("a", "", start, 1)
	d.fold(domain.Event{Type: domain.CampaignCreated, Campaign: "b", Settings: domain.Settings{ExpiresAt: start - seconds(7200)}})
	d.p.at(start)
	if asks := d.p.requests(start); len(asks) != 2 {
		t.Fatalf("asked %v", sortedLines(asks))
	}
	back := start - seconds(3600)
	d.p.at(back)
	if asks := d.p.requests(back); len(asks) != 0 || d.p.wake() > back+seconds(10) {
		t.Errorf("asked %v, wakes at %s", sortedLines(asks), d.p.wake())
	}
	d.p.at(back + seconds(10))
	if asks := d.p.requests(back + seconds(10)); len(asks) != 1 || asks[0].Campaign != "b" {
		t.Errorf("asked %v", sortedLines(asks))
	}
	d.p.at(start)
	if asks := d.p.requests(start); len(asks) != 2 {
		t.Errorf("asked %v", sortedLines(asks))
	}
}

// With bounds that bind, asks lost and answers late, campaigns moved, cancelled, paused and given other priorities: what
// stands is within the bounds and adds up, and in the end everything due has been asked for and answered.
func TestPlannerWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newDesk(t)
		p := d.p
		p.allow(rapid.SampledFrom([]int{1, 3, 8}).Draw(t, "chunk"))
		now := start
		var onTheWay []domain.Command
		numbers := map[string]uint64{}
		names := []string{"a", "b", "c", "d"}
		pending := map[string]map[uint64]bool{}
		for i, name := range names {
			d.campaign(name, []string{"high", "normal", "low", ""}[i], now+seconds(i), 0)
			pending[name] = map[uint64]bool{}
		}
		name := func() string { return rapid.SampledFrom(names).Draw(t, "campaign") }
		answer := func(cmd domain.Command) {
			if cmd.Type == domain.RemindDue && cmd.DueAt > now {
				return
			}
			d.answer(&cmd)
			if cmd.Type == domain.RemindDue {
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
				t.Fatalf("%v stand", p.inFlight)
			}
		}
		ask := func() {
			p.at(now)
			onTheWay = append(onTheWay, p.requests(now)...)
			if p.wake() <= now || p.ready() {
				t.Fatalf("wakes at %s, ready %t, after it was asked at %s", p.wake(), p.ready(), now)
			}
			check()
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(*rapid.T) {
				c := name()
				for range rapid.IntRange(1, 12).Draw(t, "n") {
					numbers[c]++
					before := time.Duration(rapid.IntRange(0, 3).Draw(t, "before")) * time.Second
					d.fold(domain.Event{Type: domain.ReminderSet, Campaign: c, R: numbers[c], CustomerID: "x", Kind: domain.KindOpens, Before: before})
					pending[c][numbers[c]] = true
				}
			},
			"cancel": func(*rapid.T) {
				c := name()
				for r := uint64(1); r <= numbers[c]; r++ {
					if pending[c][r] && rapid.Bool().Draw(t, "this") {
						d.fold(domain.Event{Type: domain.ReminderCancelled, Campaign: c, R: r})
						delete(pending[c], r)
					}
				}
			},
			"update": func(*rapid.T) {
				d.fold(domain.Event{Type: domain.CampaignUpdated, Campaign: name(), Settings: domain.Settings{
					OpensAt: now + seconds(rapid.IntRange(-5, 5).Draw(t, "opens")), ExpiresAt: now + seconds(rapid.IntRange(1, 9).Draw(t, "expires")),
					Priority: rapid.SampledFrom([]string{"high", "normal", "low"}).Draw(t, "priority"),
				}})
			},
			"configure": func(*rapid.T) {
				paused := func() map[string]bool { return map[string]bool{name(): rapid.Bool().Draw(t, "paused")} }
				p.configure(settings(func(s *config.Settings) { s.ExpiryPaused, s.RemindersPaused = paused(), paused() }))
				if rapid.Bool().Draw(t, "other chunks") {
					p.allow(rapid.SampledFrom([]int{1, 3, 8}).Draw(t, "chunk"))
				}
			},
			"ask":  func(*rapid.T) { ask() },
			"tell": func(*rapid.T) { p.unpublished = rapid.SampledFrom([]int{0, 0, 30, 1 << 30}).Draw(t, "untold") },
			"answer": func(*rapid.T) {
				for len(onTheWay) > 0 && rapid.IntRange(0, 3).Draw(t, "more") > 0 {
					cmd := onTheWay[0]
					onTheWay = onTheWay[1:]
					if rapid.IntRange(0, 4).Draw(t, "lost") > 0 {
						answer(cmd)
					}
				}
			},
			"sleep": func(*rapid.T) { now += domain.Instant(rapid.IntRange(1, 4_000_000).Draw(t, "us")) },
			"clock": func(*rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "back") == 0 {
					now -= seconds(rapid.IntRange(1, 100).Draw(t, "s"))
				}
			},
		})
		// Everything is well from now on.
		p.configure(config.Default())
		p.unpublished, onTheWay = 0, nil
		now = max(now, start) + seconds(1000)
		for range 3000 {
			ask()
			for _, cmd := range onTheWay {
				answer(cmd)
			}
			onTheWay = nil
			if p.timers.Reminders() == 0 && len(p.plans) == 0 && p.wake() == domain.Never {
				return
			}
			now += seconds(10)
		}
		t.Fatalf("%d reminders left, %d plans, wakes at %s", p.timers.Reminders(), len(p.plans), p.wake())
	})
}
