package scheduler

import (
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

const (
	// forecastEvery is the least time between two walks.
	forecastEvery = 5 * time.Second
	// forecastPart is how many instants are counted without a break, and forecastBreak the time to the next part: some
	// tenths of a millisecond of each ten.
	forecastPart  = 1_000
	forecastBreak = 10 * time.Millisecond
	// ahead is how far the forecast looks.
	ahead = time.Hour
)

// horizons are the spans that it counts.
var horizons = [5]struct {
	name string
	span time.Duration
}{{"1s", time.Second}, {"10s", 10 * time.Second}, {"1m", time.Minute}, {"10m", 10 * time.Minute}, {"1h", ahead}}

// forecast counts what becomes due within the next hour. It walks the campaigns in the order of their wake instants, up to
// that hour, and of each only the seconds in which something becomes due; so its cost follows what is due in the hour, in
// groups, not in customers or coupons: 3,600 steps a campaign for each class at most. With very many (a hundred thousand
// campaigns, each with something every minute, are six million) a walk takes a minute or more, in parts between which the
// scheduler works, and the result of the last walk is shown until then. A campaign that the planner looks at meanwhile may
// be counted twice or not at all.
type forecast struct {
	last    outlook
	counted outlook
	seconds [ahead / time.Second]int // customers, of the walk under way

	walking bool
	from    wire.Instant
	wake    wire.Instant // of the campaign to go on with
	name    string
	next    wire.Instant // when to go on, or to begin again
}

// outlook is what a walk finds.
type outlook struct {
	within [classes][timers.Priorities][len(horizons)]int
	peak   int // customers in one second
}

// step walks a part, if it is time. It returns true when a walk is over and last is new.
func (f *forecast) step(b *timers.Timers, s *settings.Settings, now wire.Instant) bool {
	if now < f.next && f.next-now <= wire.Instant(2*forecastEvery/time.Microsecond) {
		return false
	}
	if !f.walking || now < f.from {
		f.walking, f.from, f.counted = true, now, outlook{}
		f.wake, f.name = 0, ""
		clear(f.seconds[:])
	}
	until := f.from + wire.Instant(ahead/time.Microsecond)
	part, over := 0, true
	b.Ascend(f.wake, f.name, func(e *timers.Campaign) bool {
		if e.Wake() > until {
			return false
		}
		if part >= forecastPart {
			f.wake, f.name, over = e.Wake(), e.Name, false
			return false
		}
		part += 1 + f.count(e, s, until)
		return true
	})
	if !over {
		f.next = now + wire.Instant(forecastBreak/time.Microsecond)
		return false
	}
	const every = wire.Instant(forecastEvery / time.Microsecond)
	for _, n := range f.seconds {
		f.counted.peak = max(f.counted.peak, n)
	}
	// A walk that took long is not followed by the next one at once.
	f.next = now + min(max(every, now-f.from), 2*every)
	f.last, f.walking = f.counted, false
	return true
}

// count adds one campaign, and returns how many instants it counted. What is paused does not become due.
func (f *forecast) count(e *timers.Campaign, s *settings.Settings, until wire.Instant) (counted int) {
	add := func(c class, at wire.Instant, n int) {
		counted++
		for i, h := range horizons {
			if at-f.from <= wire.Instant(h.span/time.Microsecond) {
				f.counted.within[c][e.Priority][i] += n
			}
		}
	}
	if !s.ExpiryPaused[e.Name] {
		// By the second, as reminders: own expiries may have microseconds.
		const second = wire.Instant(time.Second / time.Microsecond)
		for at := e.ExpiryAfter(f.from); at <= until; {
			add(expiry, at, 1)
			at = e.ExpiryAfter(f.from + ((at-f.from-1)/second+1)*second)
		}
	}
	if !s.RemindersPaused[e.Name] {
		e.BySecond(f.from, until, func(at wire.Instant, n int) {
			add(reminder, at, n)
			f.seconds[(at-f.from-1)/1e6] += n
		})
	}
	return counted
}
