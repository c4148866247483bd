package scheduler

import (
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
)

const (
	// firstAgain is how long an unanswered ask is given before it is repeated. A lane answers in milliseconds; one that
	// does not is busy, away, or its clock is behind ours.
	firstAgain = time.Second
	// lastAgain is the longest pause between repeats of an ask.
	lastAgain = 10 * time.Second
)

// planner turns a book and a time into what to ask of the lane. It is pure: the same book, the same earlier asks and
// the same time make the same asks.
//
// What keeps it from flooding: an ask stands for as long as anything it covered is still due in the book. Until the
// lane's answer is folded nothing is asked for that campaign and instant but repeats, ever more slowly.
type planner struct {
	book  *book
	asked map[string]map[askKey]ask // by campaign; only what is still due

	repeated uint64 // asks that were not the first of their kind
}

// askKey is one thing that can be due in a campaign. kind is empty for coupons that fall; then at is 0, because one ask
// covers all instants.
type askKey struct {
	kind string
	at   domain.Instant
}

// ask is a question that waits for its answer.
type ask struct {
	since    domain.Instant // the earliest instant it covers
	through  domain.Instant // of an expire
	throughR uint64         // of a remind_due
	times    int
	again    domain.Instant // when to repeat it
}

func newPlanner(b *book) *planner {
	return &planner{book: b, asked: make(map[string]map[askKey]ask)}
}

// wake is the instant at which asks must be called next, Never if nothing is planned.
func (p *planner) wake() domain.Instant {
	if e, ok := p.book.order.Min(); ok {
		return e.look
	}
	return domain.Never
}

// asks is what to ask of the lane now: commands without ids, in the order of their campaigns' due instants.
func (p *planner) asks(now domain.Instant) (cmds []domain.Command) {
	for {
		e, ok := p.book.order.Min()
		if !ok || e.look > now {
			return cmds
		}
		var next domain.Instant
		cmds, next = p.look(e, now, cmds)
		p.book.setLook(e, next) // always after now, so this ends
	}
}

// look asks what is due in one campaign and says when to look again, which is after now.
func (p *planner) look(e *entry, now domain.Instant, cmds []domain.Command) ([]domain.Command, domain.Instant) {
	next := e.fallAfter(now)
	old := p.asked[e.name]
	still := make(map[askKey]ask) // what is not due any more was answered, cancelled or moved

	if first := e.firstFall(); first <= now {
		a, asked := old[askKey{}]
		asked = asked && first <= a.through
		if !asked || a.again <= now {
			if !asked {
				a = ask{}
			}
			// A repeat asks for the same unless more fell since: had the first been merely slow, the lane would
			// otherwise announce the same again.
			if a.through < e.lastFall(now) {
				a.through = now
			}
			p.send(&a, now)
			cmds = append(cmds, domain.Command{Type: domain.Expire, Campaign: e.name, Through: a.through})
		}
		a.since = first
		still[askKey{}] = a
		next = min(next, a.again)
	}

	if e.pending.Len() > 0 {
		next = min(next, e.pending.NextAfter(e.anchors, now))
		for due := range e.pending.Due(e.anchors, now) {
			key := askKey{due.Kind, due.DueAt}
			a, asked := old[key]
			asked = asked && due.FromR <= a.throughR
			if !asked || a.again <= now {
				if !asked {
					a = ask{}
				}
				a.since, a.throughR = due.DueAt, due.LastR
				p.send(&a, now)
				cmds = append(cmds, domain.Command{
					Type: domain.RemindDue, Campaign: e.name, Kind: due.Kind, DueAt: due.DueAt, ThroughR: due.LastR,
				})
			}
			still[key] = a
			next = min(next, a.again)
		}
	}

	if len(still) > 0 {
		p.asked[e.name] = still
	} else {
		delete(p.asked, e.name)
	}
	return cmds, next
}

// send notes that the ask is sent now.
func (p *planner) send(a *ask, now domain.Instant) {
	if a.times > 0 {
		p.repeated++
	}
	pause := min(firstAgain<<min(a.times, 10), lastAgain)
	a.again = now + domain.Instant(pause/time.Microsecond) // not Instant.Add, which stops at the year 9999
	a.times++
}

// oldest is the earliest instant that has been asked for and is still due, Never if there is none.
func (p *planner) oldest() domain.Instant {
	oldest := domain.Never
	for _, asks := range p.asked {
		for _, a := range asks {
			oldest = min(oldest, a.since)
		}
	}
	return oldest
}
