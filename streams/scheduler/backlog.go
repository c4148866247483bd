package scheduler

import (
	"strconv"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/priority"
)

// burstFrom is how many customers in flight are a burst, a tenth of a second's work for the whole machine; fewer are one
// where the pace lets half as many be in flight.
const burstFrom = 50_000

// reportEvery is how often the gauges are set and the backlog is published.
const reportEvery = time.Second

// Backlog is what a lane's scheduler has before it, as of At. Numbers of customers that wait are estimates: what was
// cancelled since is found when it would be requested.
type Backlog struct {
	At time.Time `json:"at"`
	// High, Normal and Low are the campaigns of each priority.
	High   PriorityBacklog `json:"high"`
	Normal PriorityBacklog `json:"normal"`
	Low    PriorityBacklog `json:"low"`
	// Outstanding customers are requested, or fired, and not on the reminder stream; OutstandingExpiries are campaigns
	// whose expiry is requested and not announced.
	Outstanding         int `json:"outstanding"`
	OutstandingExpiries int `json:"outstanding_expiries"`
	// PausedExpiry and PausedReminders are campaigns with something due that a pause holds back.
	PausedExpiry    int `json:"paused_expiry"`
	PausedReminders int `json:"paused_reminders"`
	// Pending is how many reminders are set and have not fired, Instants at how many instants coupons are to expire.
	Pending  int `json:"pending"`
	Instants int `json:"instants"`
	// Share is the share of time in which the fan-out may work, 1/16 to 1.
	Share float64 `json:"share"`
}

// PriorityBacklog is a part of a Backlog.
type PriorityBacklog struct {
	// OldestDue is the age of the oldest instant that is due and not answered, 0 if there is none: the number to watch.
	OldestDue time.Duration `json:"oldest_due_ns"`
	// Waiting customers are due and not requested.
	Waiting int `json:"waiting"`
}

// parts are High, Normal and Low.
func (b *Backlog) parts() map[priority.Priority]*PriorityBacklog {
	return map[priority.Priority]*PriorityBacklog{priority.High: &b.High, priority.Normal: &b.Normal, priority.Low: &b.Low}
}

// Backlog is what there is to do, at most some seconds old; ok is false while the scheduler does not run or still reads the
// log. It is safe for concurrent use.
func (s *Scheduler) Backlog() (b Backlog, ok bool) {
	if last := s.backlog.Load(); last != nil {
		return *last, true
	}
	return Backlog{}, false
}

func (r *run) report(now wire.Instant) {
	inFlight := r.planner.inFlight[reminder] + r.fan.Unpublished()
	// Before the first event of them is on the log.
	r.load.Bursting.Store(inFlight >= min(burstFrom, r.planner.most/2) && inFlight > maxChunk/10)
	r.foldedSequence.Set(float64(r.reader.Sequence())) // also where a snapshot had folded it
	r.pending.Set(float64(r.timers.Reminders()))
	r.instants.Set(float64(r.timers.Instants()))
	if passed := now - r.reported; passed >= 0 && passed < wire.Instant(reportEvery/time.Microsecond) {
		return
	}
	r.reported = now
	p := r.planner
	b := Backlog{
		At: now.Time(), Outstanding: inFlight, OutstandingExpiries: p.inFlight[expiry],
		Pending: r.timers.Reminders(), Instants: r.timers.Instants(), Share: r.pace.Share(),
	}
	b.PausedExpiry, b.PausedReminders = p.paused(now)
	oldest, waiting := p.backlog()
	for of, part := range b.parts() {
		if oldest[of] < now {
			part.OldestDue = time.Duration(now-oldest[of]) * time.Microsecond
		}
		part.Waiting = waiting[of]
	}
	r.opts.Metrics.show(strconv.Itoa(r.lane), &b)
	r.backlog.Store(&b)
}

// paused is how many campaigns have something due that a pause holds back.
func (p *planner) paused(now wire.Instant) (expiries, reminders int) {
	for name, paused := range p.settings.ExpiryPaused {
		if e := p.timers.Campaign(name); e != nil && paused && e.FirstExpiry() <= now {
			expiries++
		}
	}
	for name, paused := range p.settings.RemindersPaused {
		if e := p.timers.Campaign(name); e != nil && paused && e.FirstDue() <= now {
			reminders++
		}
	}
	return expiries, reminders
}
