package scheduler

import (
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// What can be broken.
const (
	simEarly  = "something expires or fires before its time"
	simTwice  = "an ask is repeated within its pause"
	simTold   = "who is told is not who fired, once, in order"
	simFits   = "the events do not fit the book"
	simLeft   = "something due is left when all is well again"
	simStalls = "the world does not come to rest"
)

type simViolation struct{ kind, text string }

func (v *simViolation) String() string { return v.kind + ": " + v.text }

// simJudge folds the events the naive way and holds the reminder stream against them.
type simJudge struct {
	w      *simWorld
	model  model
	newest domain.Instant // the latest that any clock which stamps commands has shown
	owed   []simLine      // all that fired, in order
	told   int            // of owed
	sums   map[uint64]string
}

// simLine is a line that the reminder stream must hold.
type simLine struct {
	text   string
	source eventlog.Source
}

func simToldLine(campaign, kind string, due domain.Instant, customer string) string {
	return fmt.Sprintf("%s %s %s %s", campaign, kind, due, customer)
}

// step judges an event message.
func (j *simJudge) step(m *eventlog.Message) {
	for n, line := range eventlog.Lines(m.Payload) {
		var ev domain.Event
		if err := domain.ParseEvent(line, &ev); err != nil {
			j.w.violate(simFits, "%s: %v", line, err)
			return
		}
		if ev.At > j.newest {
			j.w.violate(simEarly, "%s is of %s, no clock has shown more than %s", line, ev.At, j.newest)
		}
		switch ev.Type {
		case domain.CouponsExpired:
			if ev.Through > ev.At {
				j.w.violate(simEarly, "%s", line)
			}
			j.w.came("coupons expired", int(ev.Count))
		case domain.RemindersDue:
			if ev.DueAt > ev.At {
				j.w.violate(simEarly, "%s", line)
			}
		}
		gone := j.model.fold(&ev)
		if ev.Type != domain.RemindersDue {
			continue
		}
		if uint64(len(gone)) != ev.Fired+ev.Dropped {
			j.w.violate(simFits, "%s, of %d that were due", line, len(gone))
		}
		j.w.came("reminders dropped", int(ev.Dropped))
		j.w.came("reminders fired", int(ev.Fired))
		if ev.Fired == 0 {
			continue
		}
		j.sums[m.Sequence] = m.Digest()
		for _, g := range gone {
			j.owed = append(j.owed, simLine{simToldLine(ev.Campaign, ev.Kind, ev.DueAt, g.Customer), eventlog.Source{Sequence: m.Sequence, Line: n + 1, LastR: g.R}})
		}
	}
}

// telling judges a message of the reminder stream.
func (j *simJudge) telling(raw *eventlog.Raw) {
	m, err := eventlog.ParseReminder(raw.Header, raw.Data, raw.Sequence, raw.Time)
	if err != nil {
		j.w.violate(simTold, "%v", err)
		return
	}
	var last eventlog.Source
	for _, line := range eventlog.Lines(m.Payload) {
		var ev domain.Event
		if err := domain.ParseEvent(line, &ev); err != nil {
			j.w.violate(simTold, "%s: %v", line, err)
			return
		}
		text := simToldLine(ev.Campaign, ev.Kind, ev.DueAt, ev.CustomerID)
		switch {
		case j.told == len(j.owed):
			j.w.violate(simTold, "message %d tells %s, all that fired has been told", m.Sequence, text)
			return
		case j.owed[j.told].text != text:
			j.w.violate(simTold, "message %d tells %s, it is the turn of %s", m.Sequence, text, j.owed[j.told].text)
			return
		case ev.At < ev.DueAt:
			j.w.violate(simEarly, "%s", line)
		}
		if last.Sequence != 0 && last.Sequence != j.owed[j.told].source.Sequence {
			j.w.came("a message tells of several steps", 1)
		}
		last = j.owed[j.told].source
		j.told++
	}
	if m.Source != last || m.SourceDigest != j.sums[last.Sequence] {
		j.w.violate(simTold, "message %d has source %v, that of its last line is %v", m.Sequence, m.Source, last)
	}
}

// due says what is due at now and not done, "" if nothing is.
func (j *simJudge) due(now domain.Instant) string {
	for _, c := range j.model.campaigns {
		for _, at := range append([]domain.Instant{c.expires}, c.falls...) {
			if at > c.expiredThrough && at <= now {
				return fmt.Sprintf("coupons of %s fall at %s, expired through %s", c.name, at, c.expiredThrough)
			}
		}
		for _, r := range c.reminders {
			if at := c.due(r); at <= now {
				return fmt.Sprintf("reminder %d of %s is due at %s", r.r, c.name, at)
			}
		}
	}
	if j.told < len(j.owed) {
		return fmt.Sprintf("%d that fired are not told, first %s", len(j.owed)-j.told, j.owed[j.told].text)
	}
	return ""
}

// next is when the next thing falls due after now, Never if nothing does.
func (j *simJudge) next(now domain.Instant) domain.Instant {
	next := domain.Never
	for _, c := range j.model.campaigns {
		for _, at := range append([]domain.Instant{c.expires}, c.falls...) {
			if at > max(c.expiredThrough, now) {
				next = min(next, at)
			}
		}
		for _, r := range c.reminders {
			if at := c.due(r); at > now {
				next = min(next, at)
			}
		}
	}
	return next
}

// simAsk is what one scheduler has asked for and not seen answered.
type simAsk struct {
	at       domain.Instant // what it asked for
	times    int
	progress time.Duration // of the scheduler's clock, forwards only, when it asked last
	fresh    bool          // then the instant lay less than 10 s back
}

// ranBack forgets asks for what is not due any more, on a clock that was set back: when it is, it is asked for anew.
func (s *simScheduler) ranBack(now domain.Instant) {
	for _, asks := range s.asked {
		for key, a := range asks {
			if a.at > now {
				delete(asks, key)
			}
		}
	}
}

// judgeAsk judges an ask: between repeats lie 1, 2, 4, 8, 10, 10 … seconds on the clock of the scheduler, or 1 while the instant
// is fresh, unless it learned of something in the campaign meanwhile.
func (s *simScheduler) judgeAsk(cmd *domain.Command) {
	key := fmt.Sprintf("%s %s %s %d", cmd.Campaign, cmd.Kind, cmd.DueAt, cmd.ThroughR)
	a := s.asked[cmd.Campaign][key]
	if a == nil {
		if s.asked[cmd.Campaign] == nil {
			s.asked[cmd.Campaign] = map[string]*simAsk{}
		}
		a = &simAsk{at: max(cmd.DueAt, cmd.Through)}
		s.asked[cmd.Campaign][key] = a
	} else {
		s.w.came("ask repeated", 1)
		pause := min(time.Second<<min(a.times-1, 4), 10*time.Second)
		if a.fresh {
			pause = time.Second
		}
		if s.progress-a.progress < pause {
			s.w.violate(simTwice, "%s asks for %s again after %s, for the %d. time", s.name, key, s.progress-a.progress, a.times+1)
		}
	}
	a.times++
	a.progress, a.fresh = s.progress, s.clock-max(cmd.DueAt, cmd.Through) < seconds(10)
}
