package scheduler

import (
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
)

// burstFrom is how many customers in flight are a burst, a tenth of a second's work for the whole machine; fewer are one
// where the pace lets half as many be in flight.
const burstFrom = 50_000

// reportEvery is how often the gauges are set and the backlog is published.
const reportEvery = time.Second

// Backlog is what a lane's scheduler has before it, as of At. Numbers of customers that wait are estimates: what was
// cancelled meanwhile is found when it would be requested.
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
	// PeakPerSecond is the most reminders that become due in one second of the next hour.
	PeakPerSecond int `json:"peak_per_second"`
	// Share is the share of time in which the fan-out may work, 1/16 to 1.
	Share float64 `json:"share"`
}

// PriorityBacklog is a part of a Backlog.
type PriorityBacklog struct {
	// OldestDue is the age of the oldest instant that is due and not answered, 0 if there is none: the number to watch.
	OldestDue time.Duration `json:"oldest_due_ns"`
	// Waiting customers are due and not requested.
	Waiting int `json:"waiting"`
	// RemindersNext and ExpiriesNext are what becomes due within 1 s, 10 s, 1 min, 10 min and 1 h: customers, and seconds in
	// which coupons of a campaign expire.
	RemindersNext [5]int `json:"reminders_next"`
	ExpiriesNext  [5]int `json:"expiries_next"`
}

// Backlog is what there is to do, at most some seconds old; ok is false while the scheduler does not run or still reads the
// log. It is safe for concurrent use.
func (s *Scheduler) Backlog() (b Backlog, ok bool) {
	if last := s.backlog.Load(); last != nil {
		return *last, true
	}
	return Backlog{}, false
}

// report sets the gauges.
func (r *run) report(now wire.Instant) {
	inFlight := r.planner.inFlight[reminder] + r.fan.Unpublished()
	// Before the first event of them is on the log.
	r.load.Bursting.Store(inFlight >= min(burstFrom, r.planner.most/2) && inFlight > maxChunk/10)
	r.foldedSequence.Set(float64(r.reader.Sequence())) // also where a snapshot had folded it
	r.pending.Set(float64(r.timers.Reminders()))
	r.instants.Set(float64(r.timers.Instants()))
	fresh := r.forecast.step(r.timers, r.planner.settings, now)
	if passed := now - r.reported; !fresh && passed >= 0 && passed < wire.Instant(reportEvery/time.Microsecond) {
		return
	}
	r.reported = now
	p, f := r.planner, &r.forecast.last
	b := Backlog{
		At: now.Time(), Outstanding: p.inFlight[reminder] + r.fan.Unpublished(), OutstandingExpiries: p.inFlight[expiry],
		Pending: r.timers.Reminders(), Instants: r.timers.Instants(), PeakPerSecond: f.peak, Share: r.pace.Share(),
	}
	b.PausedExpiry, b.PausedReminders = p.paused(now)
	oldest, waiting := p.backlog()
	for of, part := range map[timers.Priority]*PriorityBacklog{timers.High: &b.High, timers.Normal: &b.Normal, timers.Low: &b.Low} {
		if oldest[of] < now {
			part.OldestDue = time.Duration(now-oldest[of]) * time.Microsecond
		}
		part.Waiting = waiting[of]
		part.RemindersNext, part.ExpiriesNext = f.within[reminder][of], f.within[expiry][of]

		r.oldest[of].Set(part.OldestDue.Seconds())
		r.waiting[of].Set(float64(part.Waiting))
		for i := range horizons {
			r.next[reminder][of][i].Set(float64(part.RemindersNext[i]))
			r.next[expiry][of][i].Set(float64(part.ExpiriesNext[i]))
		}
	}
	r.outstanding[reminder].Set(float64(b.Outstanding))
	r.outstanding[expiry].Set(float64(b.OutstandingExpiries))
	r.paused[reminder].Set(float64(b.PausedReminders))
	r.paused[expiry].Set(float64(b.PausedExpiry))
	r.peak.Set(float64(b.PeakPerSecond))
	r.share.Set(b.Share)
	r.caughtUp.Set(1)
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
