package scheduler

import (
	"time"

	reminders "github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/priority"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

// planner turns timers and a time into requests to the lane. It is pure: the same timers, the same earlier requests and the
// same time make the same requests.
//
//	timers ──review──> plan of a campaign: cursor ──dispatcher──> queue of requests in flight ──event──> answered
//	                                                                  └─ repeated each second while its instant is so fresh
//	                                                                     that a clock slower than ours may not have reached
//	                                                                     it; later dropped after ten seconds, and made again
//
// Only campaigns with something due have a plan, of a size that does not depend on how many instants are overdue. Each
// instant is looked at when it is requested, and once more when it is answered.
//
// What keeps it from flooding the lane: nothing is requested twice while its request is in flight, except by repeats; and
// what is in flight, together with what the fan-out has not published yet, is bounded. The rest waits.
type planner struct {
	timers   *timers.Timers
	settings *settings.Settings
	plans    map[*timers.Campaign]*plan // of the campaigns with something due that no pause holds back
	waiting  *dispatcher
	repeats  []wire.Command // collected by reviews

	chunk       int           // customers a request is for at most; the pace changes it
	most        int           // customers that may be in flight and not published
	held        bool          // no reminders are requested for now
	idle        bool          // nothing is: the lane decides nothing
	unpublished int           // customers that have fired and are not on the reminder stream
	inFlight    [classes]int  // what the requests in flight cost
	rated       wire.Instant  // operators set a rate until then; Never = they do now
	clock       wire.Instant  // the time that was seen last
	examined    int           // due instants of reminders looked at so far
	repeated    uint64        // requests that were not the first of their kind
	answered    time.Duration // the longest that an answer took since this was last set to 0
	small       bool          // that was the answer to a request that is hardly any work for a lane
}

func newPlanner(b *timers.Timers) *planner {
	p := &planner{timers: b, settings: settings.Default(), plans: make(map[*timers.Campaign]*plan), waiting: newDispatcher()}
	p.allow(maxChunk)
	return p
}

// configure puts other settings in force: campaigns whose pause starts or ends are reviewed.
func (p *planner) configure(s *settings.Settings) {
	old := p.settings
	p.settings = s
	if s.ReminderRate > 0 {
		p.rated = wire.Never
	} else if p.rated == wire.Never {
		p.rated = p.clock
	}
	for _, pair := range [][2]map[string]bool{{old.ExpiryPaused, s.ExpiryPaused}, {old.RemindersPaused, s.RemindersPaused}} {
		p.changed(pair[0], pair[1])
		p.changed(pair[1], pair[0])
	}
}

func (p *planner) changed(one, other map[string]bool) {
	for name, paused := range one {
		if e := p.timers.Campaign(name); e != nil && other[name] != paused {
			p.timers.SetWake(e, 0)
		}
	}
}

// at sets the time. Where it was set back all is planned again: a request that is repeated at a time which lies an hour ahead now
// would be as good as forgotten.
func (p *planner) at(now wire.Instant) {
	if now > p.clock-firstRetry {
		p.clock = max(p.clock, now)
		return
	}
	for e := range p.plans {
		p.timers.SetWake(e, 0)
	}
	clear(p.plans)
	p.waiting, p.inFlight, p.clock = newDispatcher(), [classes]int{}, now
}

// allow sets how many customers a request is for at most, which also bounds how many may be in flight and not published.
func (p *planner) allow(chunk int) { p.chunk, p.most = chunk, max(chunksInFlight*chunk, leastCost) }

// wake is the instant at which requests must be called next, Never if nothing is planned. It may be called any time before,
// and must be when ready.
func (p *planner) wake() wire.Instant {
	if e := p.timers.First(); e != nil {
		return e.Wake()
	}
	return wire.Never
}

// ready reports whether something waits that may be requested now.
func (p *planner) ready() bool { return p.next(expiry) != nil || p.next(reminder) != nil }

// next is the plan that may make a request now, nil if none.
func (p *planner) next(c class) *plan {
	if p.idle || c == reminder && p.held {
		return nil
	}
	j := p.waiting.next(c)
	if j == nil {
		return nil
	}
	full := p.inFlight[c] >= maxExpiries
	if c == reminder {
		full = p.inFlight[c]+p.unpublished+reminderCost(min(j.plan.left, p.chunk)) > p.most
	}
	if full {
		return nil
	}
	return j.plan
}

// requests is what to request of the lane now: commands without ids, those for expiry first.
func (p *planner) requests(now wire.Instant) (cmds []wire.Command) {
	for {
		e := p.timers.First()
		if e == nil || e.Wake() > now {
			break
		}
		p.timers.SetWake(e, p.review(e, now)) // always after now, so this ends
	}
	for c := range classes {
		for pl := p.next(c); pl != nil; pl = p.next(c) {
			if cmd, ok := p.request(pl, c, now); ok {
				cmds = append(cmds, cmd)
			}
		}
		if c == expiry {
			cmds = append(cmds, p.repeats...)
			p.repeats = nil
		}
	}
	return cmds
}

// review finds out what is due in one campaign, repeats requests whose answer is late, and returns when to look again: after
// now.
func (p *planner) review(e *timers.Campaign, now wire.Instant) (next wire.Instant) {
	var due [classes]bool
	next = wire.Never
	if !p.settings.ExpiryPaused[e.Name] {
		due[expiry], next = e.FirstExpiry() <= now, e.ExpiryAfter(now)
	}
	if !p.settings.RemindersPaused[e.Name] {
		due[reminder], next = e.FirstDue() <= now, min(next, e.DueAfter(now))
	}
	pl := p.plans[e]
	if pl == nil {
		if !due[expiry] && !due[reminder] {
			return next
		}
		pl = newPlan(e, now)
		p.plans[e] = pl
	}
	moved := pl.anchors != e.Anchors
	if moved {
		pl.anchors, pl.since = e.Anchors, now
	}
	for c := range classes {
		if !due[c] { // all of it was answered, cancelled, moved or paused
			p.drop(pl, c, func(*request) bool { return true })
			p.waiting.drop(&pl.jobs[c])
			if c == reminder {
				pl.head, pl.left = timers.Key{At: wire.Never}, 0
			}
			continue
		}
		if moved {
			p.drop(pl, c, func(q *request) bool { return pl.settled(c, q) })
		}
		next = min(next, p.retry(pl, c, now))
	}
	if due[expiry] {
		p.wait(pl, expiry, len(pl.queues[expiry]) == 0)
	}
	if due[reminder] {
		if e.Wake() <= pl.cursor.At { // something fell due where the cursor has been
			pl.rewind()
		}
		pl.count(now)
		p.advance(pl, now)
	}
	if !due[expiry] && !due[reminder] {
		delete(p.plans, e)
	}
	return next
}

// advance moves the cursor to the next instant to request, and lets the campaign wait for it.
func (p *planner) advance(pl *plan, now wire.Instant) {
	late := p.settings.ReminderGrace
	if after := pl.campaign.LateAfter; after != 0 {
		late = min(late, after)
	}
	fresh := now.Add(-late)
	hopeless := func(k timers.Key) bool { return p.hopeless(pl, k, now) }
	p.examined += pl.advance(now, fresh, hopeless)
	if pl.head.At == wire.Never && len(pl.queues[reminder]) == 0 && pl.campaign.FirstDue() <= now {
		// What was given up is due still.
		pl.rewind()
		p.examined += pl.advance(now, fresh, hopeless)
	}
	waits := pl.head.At != wire.Never
	if !waits {
		pl.left = 0
	} else if pl.left < 1 {
		pl.left = 1
	}
	p.wait(pl, reminder, waits)
}

// wait lets a plan wait for its next request, or not.
func (p *planner) wait(pl *plan, c class, waits bool) {
	j := &pl.jobs[c]
	if !waits {
		p.waiting.drop(j)
		return
	}
	at, hopeless := pl.head.At, pl.late
	if c == expiry {
		at, hopeless = pl.campaign.FirstExpiry(), false
	}
	if j.waits && j.at == at && j.hopeless == hopeless && j.priority == pl.campaign.Priority {
		return
	}
	p.waiting.put(j, at, hopeless, pl.campaign.Priority)
}

// judged is the instant as of which the lane judges how late it is: now, or where it waited for the rate that operators set,
// the start of that wait.
func (p *planner) judged(pl *plan, at, now wire.Instant) wire.Instant {
	if since := max(at, pl.since); since < p.rated {
		return min(since, now)
	}
	return now
}

// hopeless reports whether the lane will drop all reminders of that kind that are due at that instant, as Lane.Decide does.
// The lane may drop others too, because of coupons or a campaign's state.
func (p *planner) hopeless(pl *plan, k timers.Key, now wire.Instant) bool {
	at, e := p.judged(pl, k.At, now), pl.campaign
	if after := e.LateAfter; after != 0 && at > k.At.Add(after) {
		return true
	}
	return at > k.At.Add(p.settings.ReminderGrace) && at >= e.At(wire.DueSet{Kind: k.Kind, DueAt: k.At, ThroughR: reminders.MaxReminder}).Announces
}

// backlog is, by priority, the earliest instant that is due and not answered, Never if there is none, and how many customers
// are due and not requested, about. What a pause holds back does not count.
func (p *planner) backlog() (oldest [priority.Campaigns]wire.Instant, waiting [priority.Campaigns]int) {
	for i := range oldest {
		oldest[i] = wire.Never
	}
	for e, pl := range p.plans {
		waiting[e.Priority] += pl.left
		first := &oldest[e.Priority]
		if !p.settings.ExpiryPaused[e.Name] {
			*first = min(*first, e.FirstExpiry())
		}
		if !p.settings.RemindersPaused[e.Name] {
			*first = min(*first, e.FirstDue())
		}
	}
	return oldest, waiting
}
