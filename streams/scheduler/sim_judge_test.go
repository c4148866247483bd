package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/oracle"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// What can be broken.
const (
	simEarly     = "something expires or fires before its time"
	simTwice     = "a request is repeated within its pause"
	simPublished = "who is published is not who fired, once, in order"
	simFits      = "the events do not fit the timers"
	simBounds    = "more is in flight than may be, or another number than is counted"
	simAsleep    = "a scheduler sleeps while something is due"
	simLeft      = "something due is left when all is well again"
	simPromise   = "the events break a promise"
	simStalls    = "the world does not come to rest"
)

// simJudge gives the events to the oracle and holds the reminder stream against what fired.
type simJudge struct {
	w         *simWorld
	fold      *oracle.Fold
	fired     []oracle.Reminder // by the event that is folded
	rs        []uint64          // their numbers
	newest    wire.Instant      // the latest that any clock which stamps commands has shown
	owed      []simLine         // all that fired, in order
	published int               // of owed
	sums      map[uint64]string
}

func newSimJudge(w *simWorld) *simJudge {
	j := &simJudge{w: w, fold: oracle.New(), sums: map[uint64]string{}}
	j.fold.Fired = func(c *oracle.Campaign, r uint64) {
		j.fired, j.rs = append(j.fired, *c.Reminder(r)), append(j.rs, r)
	}
	return j
}

// simLine is a line that the reminder stream must hold.
type simLine struct {
	text   string
	source eventlog.Source
}

func simPublishedLine(campaign, kind string, due wire.Instant, customer string) string {
	return fmt.Sprintf("%s %s %s %s", campaign, kind, due, customer)
}

// step judges an event message.
func (j *simJudge) step(m *eventlog.Message) {
	for n, line := range eventlog.Lines(m.Payload) {
		var ev wire.Event
		if err := wire.ParseEvent(line, &ev); err != nil {
			j.w.Violate(simFits, "%s: %v", line, err)
			return
		}
		if ev.At > j.newest {
			j.w.Violate(simEarly, "%s is of %s, no clock has shown more than %s", line, ev.At, j.newest)
		}
		switch ev.Type {
		case wire.CouponsExpired:
			if ev.Through > ev.At {
				j.w.Violate(simEarly, "%s", line)
			}
			j.w.Count("coupons expired", int(ev.Count))
		case wire.RemindersDue:
			if ev.DueAt > ev.At {
				j.w.Violate(simEarly, "%s", line)
			}
		}
		j.fired, j.rs = j.fired[:0], j.rs[:0]
		if j.fold.Apply(fmt.Sprintf("message %d line %d", m.Sequence, n+1), &ev); len(j.fold.Violations) > 0 {
			j.w.Violate(simPromise, "%s", j.fold.Violations[0])
		}
		j.w.Count("reminders dropped", int(ev.Dropped))
		j.w.Count("reminders fired", int(ev.Fired))
		if ev.Fired == 0 {
			continue
		}
		j.sums[m.Sequence] = m.Digest()
		for i, r := range j.fired {
			j.owed = append(j.owed, simLine{simPublishedLine(ev.Campaign, ev.Kind, ev.DueAt, r.Customer), eventlog.Source{Sequence: m.Sequence, Line: n + 1, LastR: j.rs[i]}})
		}
	}
}

// publishing judges a message of the reminder stream.
func (j *simJudge) publishing(raw *eventlog.Raw) {
	m, err := eventlog.ParseReminder(raw.Header, raw.Data, raw.Sequence, raw.Time)
	if err != nil {
		j.w.Violate(simPublished, "%v", err)
		return
	}
	var last eventlog.Source
	for _, line := range eventlog.Lines(m.Payload) {
		var ev wire.Event
		if err := wire.ParseEvent(line, &ev); err != nil {
			j.w.Violate(simPublished, "%s: %v", line, err)
			return
		}
		if ev.At < ev.DueAt {
			j.w.Violate(simEarly, "%s", line)
		}
		for one := range ev.Each() {
			text := simPublishedLine(one.Campaign, one.Kind, one.DueAt, one.CustomerID)
			switch {
			case j.published == len(j.owed):
				j.w.Violate(simPublished, "message %d publishes %s, all that fired has been published", m.Sequence, text)
				return
			case j.owed[j.published].text != text || j.owed[j.published].source.LastR != one.R:
				j.w.Violate(simPublished, "message %d publishes %s, it is the turn of %s", m.Sequence, text, j.owed[j.published].text)
				return
			}
			if last.Sequence != 0 && last.Sequence != j.owed[j.published].source.Sequence {
				j.w.Count("a message publishes of several steps", 1)
			}
			last = j.owed[j.published].source
			j.published++
		}
	}
	if m.Source != last || m.SourceDigest != j.sums[last.Sequence] {
		j.w.Violate(simPublished, "message %d has source %v, that of its last line is %v", m.Sequence, m.Source, last)
	}
}

// instants are those at which coupons of a campaign expire or reminders are due, and that are not done.
func (j *simJudge) instants(yield func(what string, at wire.Instant) bool) {
	for _, name := range slices.Sorted(maps.Keys(j.fold.Campaigns)) {
		c := j.fold.Campaigns[name]
		expire := []wire.Instant{c.Settings.Expires()}
		for _, k := range c.Coupons {
			expire = append(expire, c.Expires(k))
		}
		for _, at := range expire {
			if at > c.Through && !yield("expiry of "+name, at) {
				return
			}
		}
		for i := range c.Reminders {
			if r := &c.Reminders[i]; r.State == oracle.Pending && !yield(fmt.Sprintf("reminder %d of %s", i+1, name), r.Due) {
				return
			}
		}
	}
}

// unanswered has what is due at now, "" if nothing is.
func (j *simJudge) unanswered(now wire.Instant) string {
	for what, at := range j.instants {
		if at <= now {
			return fmt.Sprintf("%s at %s", what, at)
		}
	}
	return ""
}

// due has what is due at now and not done, "" if nothing is.
func (j *simJudge) due(now wire.Instant) string {
	if what := j.unanswered(now); what != "" {
		return what
	}
	if j.published < len(j.owed) {
		return fmt.Sprintf("%d that fired are not published, first %s", len(j.owed)-j.published, j.owed[j.published].text)
	}
	return ""
}

// next is when the next thing falls due after now, Never if nothing does.
func (j *simJudge) next(now wire.Instant) wire.Instant {
	next := wire.Never
	for _, at := range j.instants {
		if at > now {
			next = min(next, at)
		}
	}
	return next
}

// simRequest is what one scheduler has requested and not seen answered.
type simRequest struct {
	times    int
	progress time.Duration // of the scheduler's clock, forwards only, when it requested last
	fresh    bool          // then the instant lay less than 10 s back
}

// judgeRequest judges a request: between repeats lie ten seconds on the clock of the scheduler, or one while the instant is fresh,
// unless it learned of something in the campaign in between.
func (s *simScheduler) judgeRequest(cmd *wire.Command) {
	key := fmt.Sprintf("%s %s %s %d", cmd.Campaign, cmd.Kind, cmd.DueAt, cmd.ThroughR)
	a := s.requested[cmd.Campaign][key]
	if a == nil {
		if s.requested[cmd.Campaign] == nil {
			s.requested[cmd.Campaign] = map[string]*simRequest{}
		}
		a = &simRequest{}
		s.requested[cmd.Campaign][key] = a
	} else {
		s.w.Count("request repeated", 1)
		pause := 10 * time.Second
		if a.fresh {
			pause = time.Second
		}
		if s.progress-a.progress < pause {
			s.w.Violate(simTwice, "%s requests %s again after %s, for the %d. time", s.name, key, s.progress-a.progress, a.times+1)
		}
	}
	a.times++
	a.progress, a.fresh = s.progress, s.clock-max(cmd.DueAt, cmd.Through) < seconds(10)
}

// judgeSleep judges a scheduler that has folded all events: its timers hold what is pending, and it wakes up when the next
// thing falls due, at the latest. What a pause holds back, and what only it knows to be announced, may wake it too.
func (s *simScheduler) judgeSleep(now wire.Instant) {
	w, p := s.w, s.r.planner
	if got, want := s.r.timers.Reminders(), w.judge.fold.Tally().Pending; uint64(got) != want {
		w.Violate(simFits, "%s knows of %d pending reminders, there are %d", s.name, got, want)
	}
	if len(s.settings.ExpiryPaused)+len(s.settings.RemindersPaused) > 0 {
		return
	}
	if next := w.judge.next(max(now, p.clock)); p.wake() > next { // a small step back plans nothing again
		w.Violate(simAsleep, "%s wakes at %s, something falls due at %s", s.name, p.wake(), next)
	}
	if what := w.judge.unanswered(now); what != "" && len(p.plans) == 0 {
		w.Violate(simAsleep, "%s plans nothing, due is %s", s.name, what)
	}
}

// judgeBounds judges what a planner has in flight. How many customers a request is for is an estimate before it is made.
func (s *simScheduler) judgeBounds() {
	p := s.r.planner
	var inFlight [classes]int
	for e, pl := range p.plans {
		for c := range classes {
			for i, q := range pl.queues[c] {
				inFlight[c] += q.cost
				if i > 0 && pl.queues[c][i-1].Compare(q.Key) > 0 {
					s.w.Violate(simBounds, "%s: out of order: %+v", s.name, pl.queues[c])
				}
			}
			if pl.jobs[c].waits && pl.jobs[c].priority != e.Priority {
				s.w.Violate(simBounds, "%s: %s waits as %s", s.name, e.Name, pl.jobs[c].priority)
			}
		}
		if len(pl.queues[expiry]) > 1 || pl.jobs[reminder].waits != (pl.left > 0) {
			s.w.Violate(simBounds, "%s: the plan of %s: %+v", s.name, e.Name, pl)
		}
	}
	if inFlight != p.inFlight || p.inFlight[reminder] > s.most+s.w.chunk+leastCost {
		s.w.Violate(simBounds, "%s: %v in flight, counted are %v", s.name, inFlight, p.inFlight)
	}
}
