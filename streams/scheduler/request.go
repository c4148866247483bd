package scheduler

import (
	"time"

	reminders "github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/fanout"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
)

const (
	// While what a request is for is due for less than freshFor, it is repeated after firstRetry: the lane's clock, which is NATS', may
	// be slower than ours, and then the lane did nothing. A request for what is due for longer is dropped after lastRetry, so that it
	// holds up no other, and made again when its turn comes.
	freshFor   = wire.Instant(10 * time.Second / time.Microsecond)
	firstRetry = wire.Instant(time.Second / time.Microsecond)
	lastRetry  = wire.Instant(10 * time.Second / time.Microsecond)

	maxChunk       = fanout.MaxChunk
	chunksInFlight = fanout.ChunksInFlight
	// maxWhole is the most customers of a campaign that fires at once. The fan-out holds them in memory, some 50 bytes each.
	maxWhole = 1_000_000
	// leastCost is what a request for reminders costs at least, in customers: its line in two logs is worth as many of
	// theirs, and requests for one customer each are not sent by the hundred thousand.
	leastCost = 50
	// maxExpiries is how many campaigns' expiries may be in flight: two full messages of requests.
	maxExpiries = 2_000
)

// request is a command that waits for its answer.
type request struct {
	timers.Key
	through  wire.Instant // of an expire
	throughR uint64       // of a remind_due
	cost     int
	repeated bool
	sent     wire.Instant // first
	again    wire.Instant // when it is repeated or dropped
}

func reminderCost(customers int) int { return max(customers, leastCost) }

// request makes the next request of a plan that waits, of reminders for one chunk; false if nothing was left of it.
func (p *planner) request(pl *plan, c class, now wire.Instant) (cmd wire.Command, ok bool) {
	q := request{cost: 1, sent: now, through: pl.campaign.LastExpiry(now)}
	if c == reminder {
		q.Key = pl.head
		chunk, more := p.take(pl, q.Key)
		q.throughR, q.cost = chunk.LastR, reminderCost(int(chunk.Subscriptions))
		pl.left -= int(chunk.Subscriptions)
		if !more {
			pl.pass()
		}
		if chunk.Subscriptions == 0 { // cancelled since, or in flight
			if p.advance(pl, now); !pl.jobs[c].waits {
				p.timers.WakeBy(pl.campaign, now+1) // is anything due still?
			}
			return cmd, false
		}
	}
	q.again = now + pl.patience(c, &q, now)
	pl.add(c, q)
	p.inFlight[c] += q.cost
	p.waiting.pay(&pl.jobs[c], q.cost)
	if c == expiry {
		p.wait(pl, c, false)
	} else {
		p.advance(pl, now)
	}
	if q.again < pl.campaign.Wake() {
		p.timers.SetWake(pl.campaign, q.again)
	}
	return p.command(pl, c, &q, now), true
}

func (p *planner) command(pl *plan, c class, q *request, now wire.Instant) wire.Command {
	if c == expiry {
		return wire.Command{Type: wire.Expire, Campaign: pl.campaign.Name, Through: q.through}
	}
	cmd := wire.Command{Type: wire.RemindDue, Campaign: pl.campaign.Name, Kind: q.Kind, DueAt: q.At, ThroughR: q.throughR}
	if ready := p.judged(pl, q.At, now); ready < now {
		cmd.ReadyAt = ready
	}
	return cmd
}

// take is what the next request for reminders of a key is for, and whether others of it follow: a chunk. But a whole campaign
// goes at once if nothing else is due: a lane takes no longer for it, since it does not look at each reminder.
func (p *planner) take(pl *plan, k timers.Key) (c reminders.DueReminders, more bool) {
	if p.inFlight[reminder] == 0 && p.unpublished == 0 && p.settings.ReminderRate == 0 && p.waiting.lone(reminder) {
		if c, ok := pl.campaign.Whole(k); ok && c.Subscriptions <= maxWhole {
			return c, false
		}
	}
	return pl.campaign.Chunk(k, pl.requestedR(k), p.chunk)
}

// retry repeats or drops the requests of a plan whose answer is late. It returns when the next is late.
func (p *planner) retry(pl *plan, c class, now wire.Instant) (next wire.Instant) {
	next = wire.Never
	p.drop(pl, c, func(q *request) bool {
		switch {
		case q.again > now:
		case pl.settled(c, q):
			return true
		case p.idle:
			q.again = now + firstRetry
		case now-pl.dueSince(c, q) >= freshFor:
			p.repeated++
			pl.left += q.cost // about
			return true
		default:
			if c == expiry {
				q.through = pl.campaign.LastExpiry(now) // the same, unless more has expired since
			}
			q.again, q.repeated = now+pl.patience(c, q, now), true
			p.repeated++
			p.repeats = append(p.repeats, p.command(pl, c, q, now))
		}
		next = min(next, q.again)
		return false
	})
	return next
}

// drop takes the requests that are done off the queue.
func (p *planner) drop(pl *plan, c class, done func(*request) bool) {
	queue := pl.queues[c]
	kept := queue[:0]
	for i := range queue {
		if done(&queue[i]) {
			p.inFlight[c] -= queue[i].cost
		} else {
			kept = append(kept, queue[i])
		}
	}
	pl.queues[c] = kept
}

// folded takes requests that an event answers off their queue. It is called after the event was applied to the timers.
func (p *planner) folded(ev *wire.Event) {
	if len(p.plans) == 0 || ev.Type != wire.CouponsExpired && ev.Type != wire.RemindersDue && ev.Type != wire.ReminderCancelled {
		return
	}
	pl := p.plans[p.timers.Campaign(ev.Campaign)]
	if pl == nil {
		return
	}
	c, k := reminder, timers.Key{At: ev.DueAt, Kind: ev.Kind}
	switch ev.Type {
	case wire.CouponsExpired:
		c, k = expiry, timers.Key{}
	case wire.ReminderCancelled:
		// A request for it is dropped when its answer is late, or with the plan: it does not measure how fast the lane is.
		if pl.campaign.FirstDue() > p.clock {
			p.timers.WakeBy(pl.campaign, p.clock)
		}
		return
	}
	from := pl.find(c, k)
	n := from
	for queue := pl.queues[c]; n < len(queue) && queue[n].Key == k && pl.settled(c, &queue[n]); n++ {
		q := &queue[n]
		if took := time.Duration(p.clock-q.sent) * time.Microsecond; !q.repeated && took > p.answered {
			p.answered, p.small = took, q.cost <= leastCost
		}
		p.inFlight[c] -= q.cost
	}
	pl.remove(c, from, n)
	if len(pl.queues[c]) == 0 && (c == expiry || !pl.jobs[c].waits) {
		p.timers.WakeBy(pl.campaign, p.clock) // is anything due still?
	}
}
