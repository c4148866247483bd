package scheduler

import (
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/config"
)

const (
	// firstAgain is how long an unanswered ask is given before it is repeated. A lane answers in milliseconds; one that
	// does not is busy, away, or its clock is behind ours.
	firstAgain = time.Second
	// lastAgain is the longest pause between repeats of an ask.
	lastAgain = 10 * time.Second

	// An ask that was repeated silentTimes and stands for silentAfter no longer counts among what stands: it is repeated
	// still, but what waits behind it goes on. A lane that answers nothing for long, not even these, is sent no more than
	// silentMost of them.
	silentTimes = 10
	silentAfter = time.Minute
	silentMost  = 10_000

	// maxChunk is the most customers one ask is for: the lane fires them in some milliseconds, for which claims wait.
	maxChunk = 25_000
	// chunksOut is how many such asks may be on their way through lane and fan-out at once: the lane decides one while
	// the fan-out publishes another.
	chunksOut = 4
	// leastCost is what an ask for reminders costs at least, in customers: its line in two logs is worth as many of
	// theirs, and asks for one customer each do not go out by the hundred thousand.
	leastCost = 50
	// instantsLooked is how many due instants of one campaign's reminders are looked at, the oldest; those behind wait until
	// some of these are answered. Each answer brings a look, so a million overdue instants would cost their square.
	instantsLooked = 10_000
	// expiriesOut is how many campaigns' expiries may be asked for and not answered: two full messages of asks.
	expiriesOut = 2_000
)

// planner turns a book and a time into what to ask of the lane. It is pure: the same book, the same earlier asks and
// the same time make the same asks.
//
//	book ──look──> due ──wait (dispatcher)──> asked ──stand──> answered: not due in the book any more
//	                                            └─ repeated after 1, 2, 4, 8, 10, 10 … seconds; each second while
//	                                               its instant is so fresh that a clock behind ours may not have reached it
//
// What keeps it from flooding: an ask stands for as long as anything it covered is still due in the book; until then
// nothing is asked for that campaign and instant but repeats, ever more slowly, and the chunks behind. And what stands,
// together with what the fan-out has not told yet, is bounded; the rest waits for its turn. An ask that is never answered
// leaves that sum after a minute, so that it does not hold up all others of the lane for ever.
type planner struct {
	book     *book
	settings *config.Settings
	plans    map[string]plan // by campaign; only what is due
	waiting  *dispatcher
	due      [priorities]jobs // all that is due, waiting or asked

	chunk  int             // customers an ask is for at most; the pace changes it
	most   int             // customers that may be asked for and not told
	held   bool            // nothing is asked of reminders for now
	untold int             // customers that have fired and are not on the reminder stream
	stand  [classes]int    // what the standing asks cost
	rated  domain.Instant  // operators set a rate until then; Never = they do now
	behind [priorities]int // customers due and not asked for, about; not those beyond instantsLooked

	clock         domain.Instant // the time that was seen last
	looked        int            // due instants of reminders gone through since the beginning
	repeated      uint64         // asks that were not the first of their kind
	answered      time.Duration  // the longest that an answer took since this was last set to 0
	answeredSmall bool           // it was to an ask that gives a lane hardly any work
	silent        int            // asks that stand and no longer count, because they were repeated so often
	silentJob     job            // what the last of them is about
}

// askKey is one thing that can be due in a campaign. kind is empty for coupons that fall; then at is 0, because one ask
// covers all instants.
type askKey struct {
	kind string
	at   domain.Instant
}

// plan is what is due in one campaign.
type plan map[askKey]*question

// question is one thing that is due: asked for, waiting to be, or in part each.
type question struct {
	job
	entry *entry
	since domain.Instant // it has been known to be due
	asks  []ask          // that stand, oldest first; one at most of coupons
	left  int            // customers not asked for, about
	still bool           // found due by the look under way
}

// ask is a command that waits for its answer.
type ask struct {
	through  domain.Instant // of an expire
	throughR uint64         // of a remind_due
	silent   bool           // it does not count in stand any more
	more     bool           // of a remind_due: others were due behind it
	cost     int
	times    int
	sent     domain.Instant // first
	again    domain.Instant // when to repeat it
}

func newPlanner(b *book) *planner {
	p := &planner{book: b, settings: config.Default(), plans: make(map[string]plan), waiting: newDispatcher()}
	p.allow(maxChunk)
	for i := range p.due {
		p.due[i] = newJobs(compareJobs)
	}
	return p
}

// configure puts other settings in force: campaigns whose pause began or ended are looked at again.
func (p *planner) configure(s *config.Settings) {
	old := p.settings
	p.settings = s
	if s.ReminderRate > 0 {
		p.rated = domain.Never
	} else if p.rated == domain.Never {
		p.rated = p.clock
	}
	for _, pair := range [][2]map[string]bool{{old.ExpiryPaused, s.ExpiryPaused}, {old.RemindersPaused, s.RemindersPaused}} {
		p.changed(pair[0], pair[1])
		p.changed(pair[1], pair[0])
	}
}

func (p *planner) changed(one, other map[string]bool) {
	for name, paused := range one {
		if e := p.book.campaigns[name]; e != nil && other[name] != paused {
			p.book.setLook(e, 0)
		}
	}
}

// at tells the planner the time. Where it was set back, what was to happen later is planned anew: an ask repeated at a
// time that lies an hour ahead now would be as good as forgotten.
func (p *planner) at(now domain.Instant) {
	if now > p.clock-domain.Instant(firstAgain/time.Microsecond) {
		p.clock = max(p.clock, now)
		return
	}
	for _, plan := range p.plans {
		for _, q := range plan {
			for i := range q.asks {
				q.asks[i].sent = min(q.asks[i].sent, now)
				q.asks[i].again = min(q.asks[i].again, now+domain.Instant(lastAgain/time.Microsecond))
			}
			p.book.setLook(q.entry, 0)
		}
	}
	p.clock = now
}

// wake is the instant at which asks must be called next, Never if nothing is planned. It may be called any time before,
// and must be when ready.
func (p *planner) wake() domain.Instant {
	if e, ok := p.book.order.Min(); ok {
		return e.look
	}
	return domain.Never
}

// ready says that something waits which may be asked for now.
func (p *planner) ready() bool {
	return p.turn(expiry) != nil || p.turn(reminder) != nil
}

// asks is what to ask of the lane now: commands without ids, those for expiry first.
func (p *planner) asks(now domain.Instant) (cmds []domain.Command) {
	var again []domain.Command
	for {
		e, ok := p.book.order.Min()
		if !ok || e.look > now {
			break
		}
		var next domain.Instant
		again, next = p.look(e, now, again)
		p.book.setLook(e, next) // always after now, so this ends
	}
	for c := range classes {
		for q := p.turn(c); q != nil; q = p.turn(c) {
			if cmd, ok := p.first(q, now); ok {
				cmds = append(cmds, cmd)
			}
		}
		if c == expiry {
			cmds = append(cmds, again...)
		}
	}
	return cmds
}

// turn is the question that may be asked now, nil if none.
func (p *planner) turn(c class) *question {
	if c == reminder && p.held {
		return nil
	}
	j := p.waiting.next(c)
	if j == nil {
		return nil
	}
	q := p.plans[j.campaign][j.key()]
	if c == expiry && p.stand[c] < expiriesOut || c == reminder && p.stand[c]+p.untold+reminderCost(min(q.left, p.chunk)) <= p.most {
		return q
	}
	return nil
}

// allow sets how many customers an ask is for at most, which also says how many may be asked for and not told.
func (p *planner) allow(chunk int) { p.chunk, p.most = chunk, max(chunksOut*chunk, leastCost) }

func (j *job) key() askKey {
	if j.class == expiry {
		return askKey{}
	}
	return askKey{j.kind, j.at}
}

func reminderCost(customers int) int { return max(customers, leastCost) }

// first asks for the first time, of reminders for one chunk.
func (p *planner) first(q *question, now domain.Instant) (cmd domain.Command, ok bool) {
	a := ask{cost: 1, sent: now}
	if q.class == expiry {
		a.through = now
	} else if !p.cover(q, &a, q.askedR()) {
		// Cancelled since it was looked at. What is asked for already is looked at again when it is to be repeated.
		if p.wait(q, 0); len(q.asks) == 0 {
			p.forget(q)
		}
		p.book.sooner(q.entry, now+1) // there may be more behind what is looked at
		return cmd, false
	}
	p.send(q, &a, now)
	q.asks = append(q.asks, a)
	p.stand[q.class] += a.cost
	p.waiting.pay(&q.job, a.cost)
	left := 0
	if a.more {
		left = max(q.left-a.cost, 1)
	}
	p.wait(q, left)
	if a.again < q.entry.look {
		p.book.setLook(q.entry, a.again)
	}
	return p.command(q, &a, now), true
}

// cover makes the ask one for the first chunk behind number after; false if nobody is there any more.
func (p *planner) cover(q *question, a *ask, after uint64) bool {
	c, more := q.entry.chunk(q.kind, q.at, after, p.chunk)
	if c.Subscriptions == 0 {
		return false
	}
	a.throughR, a.more, a.cost = c.LastR, more, reminderCost(int(c.Subscriptions))
	return true
}

// askedR is the last number asked for.
func (q *question) askedR() uint64 {
	if len(q.asks) == 0 {
		return 0
	}
	return q.asks[len(q.asks)-1].throughR
}

func (p *planner) command(q *question, a *ask, now domain.Instant) domain.Command {
	if q.class == expiry {
		return domain.Command{Type: domain.Expire, Campaign: q.campaign, Through: a.through}
	}
	cmd := domain.Command{Type: domain.RemindDue, Campaign: q.campaign, Kind: q.kind, DueAt: q.at, ThroughR: a.throughR}
	if ready := p.judged(q, now); ready < now-domain.Instant(leastWait/time.Microsecond) {
		cmd.ReadyAt = ready
	}
	return cmd
}

// leastWait is from which wait for the operators' rate on the lane is asked to judge by its beginning.
const leastWait = time.Second

// judged is the instant as of which the lane judges how late it is: now, or where it waited for the rate that operators set,
// the beginning of that wait.
func (p *planner) judged(q *question, now domain.Instant) domain.Instant {
	if q.since < p.rated {
		return min(q.since, now)
	}
	return now
}

// hopeless says that the lane will drop all that is due in the question, as Lane.Decide does. A coupon or a campaign that
// it knows more of makes it drop others, too.
func (p *planner) hopeless(q *question, due *domain.DueReminders, now domain.Instant) bool {
	at := p.judged(q, now)
	after := q.entry.lateAfter
	return after != 0 && at > due.DueAt.Add(after) || at > due.DueAt.Add(p.settings.ReminderGrace) && at >= due.Announces
}

// look finds out what is due in one campaign and says when to look again, which is after now. It returns what is to be
// asked again.
func (p *planner) look(e *entry, now domain.Instant, again []domain.Command) ([]domain.Command, domain.Instant) {
	next, cut := domain.Never, domain.Never
	if !p.settings.ExpiryPaused[e.name] {
		next = e.fallAfter(now)
		if first := e.firstFall(); first <= now {
			q := p.question(e, expiry, "", first, now)
			if len(q.asks) > 0 && q.asks[0].through < first {
				p.settled(q, now)
			}
			if len(q.asks) == 0 {
				p.wait(q, 1)
			} else if a := &q.asks[0]; a.again <= now {
				// A repeat asks for the same unless more fell since: had the first been merely slow, the lane would
				// otherwise announce the same again.
				if a.through < e.lastFall(now) {
					a.through = now
				}
				p.send(q, a, now)
				again = append(again, p.command(q, a, now))
			}
			next = min(next, q.again())
		}
	}
	if !p.settings.RemindersPaused[e.name] {
		next = min(next, e.dueAfter(now))
		looked := 0
		for due := range e.due(now) {
			if looked++; looked > instantsLooked {
				cut = due.DueAt
				break
			}
			p.looked++
			q := p.question(e, reminder, due.Kind, due.DueAt, now)
			if hopeless := p.hopeless(q, &due, now); hopeless != q.hopeless {
				p.requeue(q, func() { q.hopeless = hopeless })
			}
			for len(q.asks) > 0 && q.asks[0].throughR < due.FromR {
				p.settled(q, now)
			}
			again = p.repeat(q, now, again)
			left := int(due.Subscriptions)
			if n := len(q.asks); n > 0 {
				for i := range q.asks {
					left -= q.asks[i].cost
				}
				left = max(left, 1)
				if last := &q.asks[n-1]; !last.more || due.LastR <= last.throughR {
					left = 0
				}
			}
			p.wait(q, left)
			next = min(next, q.again())
		}
	}
	// What is not due any more was answered, cancelled, moved or paused. What older instants crowded out of the look stays as
	// it is until its turn comes again.
	for _, q := range p.plans[e.name] {
		if q.still || q.class == reminder && q.at >= cut {
			q.still = false
			continue
		}
		for len(q.asks) > 0 {
			p.settled(q, now)
		}
		p.wait(q, 0)
		p.forget(q)
	}
	return again, next
}

// forget drops a question of which nothing waits or stands.
func (p *planner) forget(q *question) {
	p.due[q.priority].Delete(&q.job)
	delete(p.plans[q.campaign], q.key())
	if len(p.plans[q.campaign]) == 0 {
		delete(p.plans, q.campaign)
	}
}

// question is the one about what has been due in e since at, found or new.
func (p *planner) question(e *entry, c class, kind string, at, now domain.Instant) *question {
	j := job{campaign: e.name, kind: kind, at: at, class: c, priority: e.priority}
	q := p.plans[e.name][j.key()]
	switch {
	case q == nil:
		q = &question{job: j, entry: e, since: now}
		if p.plans[e.name] == nil {
			p.plans[e.name] = make(plan)
		}
		p.plans[e.name][j.key()] = q
		p.due[q.priority].Set(&q.job)
	case q.at != at || q.priority != e.priority:
		p.requeue(q, func() { q.at, q.priority = at, e.priority })
	}
	q.still = true
	return q
}

// requeue changes what the question's places in the orders depend on.
func (p *planner) requeue(q *question, change func()) {
	left := q.left
	p.wait(q, 0)
	p.due[q.priority].Delete(&q.job)
	change()
	p.due[q.priority].Set(&q.job)
	p.wait(q, left)
}

// wait lets so many customers (of an expiry, 1) wait for their turn, 0 = nobody does.
func (p *planner) wait(q *question, left int) {
	if q.class == reminder {
		p.behind[q.priority] += left - q.left
	}
	q.left = left
	switch {
	case left == 0:
		p.waiting.drop(&q.job)
	case !q.waits:
		p.waiting.put(&q.job)
	}
}

// settled notes that the oldest ask stands no more.
func (p *planner) settled(q *question, now domain.Instant) {
	a := &q.asks[0]
	if took := time.Duration(now-a.sent) * time.Microsecond; a.times == 1 && took > p.answered {
		p.answered, p.answeredSmall = took, a.cost <= leastCost
	}
	if a.silent {
		p.silent--
	} else {
		p.stand[q.class] -= a.cost
	}
	q.asks = q.asks[1:]
}

// repeat asks again for the chunks whose answer is late.
func (p *planner) repeat(q *question, now domain.Instant, cmds []domain.Command) []domain.Command {
	var before uint64
	for i := range q.asks {
		a := &q.asks[i]
		if a.again <= now {
			if i == len(q.asks)-1 && !a.more {
				// Who came since is asked for now; until then one question was enough.
				cost := a.cost
				if p.cover(q, a, before); !a.silent {
					p.stand[reminder] += a.cost - cost
				}
			}
			p.send(q, a, now)
			cmds = append(cmds, p.command(q, a, now))
		}
		before = a.throughR
	}
	return cmds
}

// send notes that the ask is sent now.
func (p *planner) send(q *question, a *ask, now domain.Instant) {
	if a.times > 0 {
		p.repeated++
	}
	pause := min(firstAgain<<min(a.times, 10), lastAgain)
	if now-q.at < domain.Instant(lastAgain/time.Microsecond) {
		// The lane's clock, which is NATS', may be behind ours: then it did nothing, and the instant is still to come.
		pause = firstAgain
	}
	a.again = now + domain.Instant(pause/time.Microsecond) // not Instant.Add, which stops at the year 9999
	a.times++
	if a.times > silentTimes+1 && !a.silent && now-a.sent >= domain.Instant(silentAfter/time.Microsecond) && p.silent < silentMost {
		a.silent, p.silentJob = true, q.job
		p.silent++
		p.stand[q.class] -= a.cost
	}
}

// again is when the first of the asks that stand is to be repeated, Never if none stands.
func (q *question) again() domain.Instant {
	again := domain.Never
	for i := range q.asks {
		again = min(again, q.asks[i].again)
	}
	return again
}

// oldest is the earliest instant of that priority that is due and not answered, Never if there is none. What a pause
// holds back is not among them.
func (p *planner) oldest(of priority) domain.Instant {
	if j, ok := p.due[of].Min(); ok {
		return j.at
	}
	return domain.Never
}
