package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/check"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	crowdLines = 1000 // commands per message, the most there may be
	crowdWait  = 2 * time.Second
	farAway    = 48 * time.Hour // anchors that are moved when their time comes

	burstLead   = 1200 * time.Millisecond // from moving a burst to its instant: the update is decided by then
	burstSpread = 400 * time.Millisecond  // a fault starts so much before or after the instant
)

// pace is how long what becomes due takes: in a short run there is little of it.
func pace(short, long time.Duration) time.Duration {
	if *runFor == 0 {
		return short
	}
	return long
}

// trickleLead is from setting a reminder of the trickle to when it is due at the earliest.
func trickleLead() time.Duration { return pace(time.Second, 2*time.Second) }

// endedLead is from moving the opening of a campaign to its reminders, dropped because it has ended. Most of the trickle is due
// within trickleReach, the rest much later: up to trickleSpread after it is set, and moved by as much.
func endedLead() time.Duration     { return pace(2*time.Second, 10*time.Second) }
func trickleReach() time.Duration  { return pace(3*time.Second, 15*time.Second) }
func trickleSpread() time.Duration { return pace(time.Second, 3*time.Second) }

var priorities = []string{wire.PriorityHigh, wire.PriorityNormal, wire.PriorityLow}

// party is a campaign whose customers want to be reminded.
type party struct {
	name   string
	kind   string
	before time.Duration // of a burst, the same for all
	size   int           // subscriptions to set

	anchor time.Time // opening or end
	sent   int       // subscriptions in messages that were acknowledged
}

// crowd sets the many reminders of a world: bursts that fall due at one instant each, and a trickle that falls due all the
// time. Some of all are cancelled, some set again, and anchors are moved.
type crowd struct {
	w        *world
	rng      *rand.Rand
	bursts   []*party
	trickles []*party
	ended    *party // its reminders are dropped
	someday  *party // its reminders stay pending
	done     chan struct{}

	mu   sync.Mutex   // guards the anchors and counts of parties
	gone map[int]bool // bursts that have gone off, by fault
	ids  int

	asides sync.WaitGroup
}

// withExpiries is true for the faults whose burst is of kind expires, so that its coupons expire right after it: the first two,
// which take servers down.
func withExpiries(fault int) bool { return fault < 2 }

func newCrowd(w *world, total int, seed uint64) *crowd {
	c := &crowd{w: w, rng: rand.New(rand.NewPCG(seed, 5)), done: make(chan struct{}), gone: map[int]bool{}}
	kinds := []string{wire.KindOpens, wire.KindExpires}
	for i := range w.faults {
		kind := wire.KindOpens
		if withExpiries(i) {
			kind = wire.KindExpires
		}
		c.bursts = append(c.bursts, &party{name: fmt.Sprint("burst-", i), kind: kind, before: time.Duration(1+i) * 50 * time.Millisecond, size: total / 10})
	}
	c.ended = &party{name: "ended", kind: wire.KindOpens, before: time.Minute, size: total / 50}
	c.someday = &party{name: "someday", kind: wire.KindOpens, before: time.Minute, size: total / 50}
	const trickles = 6
	left := total - len(c.bursts)*(total/10) - 2*(total/50)
	for i := range trickles {
		c.trickles = append(c.trickles, &party{name: fmt.Sprint("trickle-", i), kind: kinds[i%2], size: left / trickles})
	}
	return c
}

func (c *crowd) parties() []*party {
	return append(append([]*party{c.ended, c.someday}, c.bursts...), c.trickles...)
}

// gather creates the campaigns and sets what is to be there before the faults start.
func (c *crowd) gather() {
	t := c.w.t
	t.Helper()
	now := time.Now()
	for i, p := range c.parties() {
		p.anchor = now.Add(farAway).Truncate(time.Second)
		settings := wire.DefaultSettings(uint32(max(p.size, 1))) // those of kind expires sell out
		settings.Priority = priorities[i%len(priorities)]
		if p.kind == wire.KindOpens {
			settings.OpensAt = wire.At(p.anchor)
		} else {
			settings.ExpiresAt = wire.At(p.anchor)
		}
		if out, err := c.w.client.CreateCampaign(t.Context(), p.name, settings); err != nil || out.Refused() {
			t.Fatal(out, err)
		}
	}
	// A paused campaign reminds like any other.
	if out, err := c.w.client.Pause(t.Context(), c.trickles[0].name); err != nil || out.Refused() {
		t.Fatal(out, err)
	}
	var setters sync.WaitGroup
	lanes := make([]chan *party, c.w.log.Lanes)
	for lane := range lanes {
		lanes[lane] = make(chan *party, len(c.parties()))
		m := c.mouth(lane)
		setters.Go(func() {
			for p := range lanes[lane] {
				for from := 0; from < p.size; from += crowdLines / 2 {
					m.subscribe(t.Context(), p, from, min(from+crowdLines/2, p.size), nil)
				}
			}
		})
	}
	for _, p := range append(append([]*party{}, c.bursts...), c.ended, c.someday) {
		lanes[topology.LaneOf(p.name, c.w.log.Lanes)] <- p
	}
	for _, lane := range lanes {
		close(lane)
	}
	setters.Wait()
	if t.Failed() {
		t.FailNow()
	}
	c.move(c.ended, time.Now().Add(c.ended.before+endedLead()))
	if out, err := c.w.client.End(t.Context(), c.ended.name); err != nil || out.Refused() {
		t.Fatal(out, err)
	}
}

// trickle sets reminders, due within seconds and for long, cancels some, and sets some again.
func (c *crowd) trickle(ctx context.Context) {
	defer close(c.done)
	var setters sync.WaitGroup
	for n, p := range c.trickles {
		rng := rand.New(rand.NewPCG(c.w.seed, 100+uint64(n)))
		m := c.mouth(topology.LaneOf(p.name, c.w.log.Lanes))
		// In small worlds messages are small, so that there are reminders to set until the last fault; in big ones all are
		// set when four fifths of the time are over, if nothing holds them up.
		lines := min(crowdLines*2/5, max(1, p.size/30)) // reminders, each with a claim and some with more
		pause := time.NewTicker(max(time.Until(c.w.until)*4/5/time.Duration(p.size/lines+1), 100*time.Millisecond))
		setters.Go(func() {
			defer pause.Stop()
			for from := 0; from < p.size; from += lines {
				<-pause.C
				m.subscribe(ctx, p, from, min(from+lines, p.size), rng)
			}
		})
	}
	setters.Wait()
}

// full reports whether all reminders have been set.
func (c *crowd) full() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// finish waits for what is still being sent, and until what is sure to be dropped has been due.
func (c *crowd) finish() {
	c.asides.Wait()
	until(c.ended.anchor.Add(-c.ended.before))
}

// until waits for a time of day.
func until(at time.Time) {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	<-timer.C
}

// arm moves the burst of a fault that has not happened yet to an instant soon, and the trickles a little. It returns when the
// fault may start: shortly before that instant or after it, while the burst is published. Some of the burst's customers cancel
// then, some too late. over is when the coupons of the burst expire.
func (c *crowd) arm(fault int) (over time.Time) {
	t := c.w.t
	t.Helper()
	p := c.trickles[c.rng.IntN(len(c.trickles))]
	c.move(p, p.anchor.Add(time.Duration(c.rng.Int64N(int64(2*trickleSpread())))-trickleSpread()))
	if c.gone[fault] {
		return over
	}
	c.gone[fault] = true
	burst, due := c.bursts[fault], time.Now().Add(burstLead).Truncate(time.Microsecond)
	over = due.Add(burst.before)
	c.move(burst, over)
	m, some := c.mouth(topology.LaneOf(burst.name, c.w.log.Lanes)), min(crowdLines, burst.size/50)
	m.cancel(t.Context(), burst, 0, some)
	until(due.Add(time.Duration(c.rng.Int64N(int64(2*burstSpread))) - burstSpread))
	c.asides.Go(func() {
		m.cancel(t.Context(), burst, burst.size-some, burst.size)
		_ = m.answers.Unsubscribe() // the connection ends all
	})
	return over
}

// move sets a campaign's opening or end.
func (c *crowd) move(p *party, anchor time.Time) {
	t := c.w.t
	t.Helper()
	var patch wire.Patch
	if p.kind == wire.KindOpens {
		patch.OpensAt = wire.At(anchor)
		patch.Set("opens_at")
	} else {
		patch.ExpiresAt = wire.At(anchor)
		patch.Set("expires_at")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := c.w.client.UpdateCampaign(ctx, p.name, patch)
	if err != nil || out.Refused() {
		t.Fatalf("moving %s to %s: %+v, %v", p.name, anchor, out, err)
	}
	c.mu.Lock()
	p.anchor = anchor
	c.mu.Unlock()
}

// mouth publishes to one lane, one message after the other.
type mouth struct {
	c       *crowd
	lane    int
	inbox   string
	answers *nats.Subscription
	n       int
	fresh   []remembered // of the trickle, for cancelling
}

type remembered struct {
	customer string
	before   time.Duration
}

func (c *crowd) mouth(lane int) *mouth {
	inbox := nats.NewInbox()
	answers, err := c.w.nc.SubscribeSync(inbox + ".*")
	if err != nil {
		c.w.t.Fatal(err)
	}
	return &mouth{c: c, lane: lane, inbox: inbox, answers: answers}
}

// line appends a command.
func (m *mouth) line(dst []byte, cmd wire.Command) []byte {
	m.c.mu.Lock()
	m.c.ids++
	cmd.ID = fmt.Sprint("crowd-", m.c.ids)
	m.c.mu.Unlock()
	return append(cmd.AppendJSON(dst), '\n')
}

// subscribe sets the reminders of a party's customers from (included) to (not included). With rng it is a trickle: due
// within seconds, or for long; some of those set before are cancelled, and some of these set again.
func (m *mouth) subscribe(ctx context.Context, p *party, from, to int, rng *rand.Rand) {
	m.c.mu.Lock()
	anchor := p.anchor
	m.c.mu.Unlock()
	var claims, lines []byte
	for i := from; i < to; i++ {
		customer := fmt.Sprint("person-", i) // the same people in each party, so that reminders are merged
		if p.kind == wire.KindExpires {
			claims = m.line(claims, wire.Command{Type: wire.Claim, Campaign: p.name, CustomerID: customer})
		}
		before := p.before
		if rng != nil {
			due := time.Now().Add(trickleLead() + time.Duration(rng.Int64N(int64(trickleSpread()))))
			if rng.IntN(10) == 0 {
				due = due.Add(time.Hour)
			}
			if rng.IntN(2) == 0 {
				due = due.Truncate(100 * time.Millisecond)
			}
			before = anchor.Sub(due).Truncate(time.Microsecond)
			m.fresh = append(m.fresh, remembered{customer, before})
		}
		lines = m.line(lines, wire.Command{Type: wire.Remind, Campaign: p.name, CustomerID: customer, Kind: p.kind, Before: before})
	}
	sent, again := to-from, 0
	if rng != nil && len(m.fresh) > 2*sent {
		for i := range max(1, sent/10) {
			one := m.fresh[rng.IntN(len(m.fresh)-sent)]
			lines = m.line(lines, wire.Command{Type: wire.Unremind, Campaign: p.name, CustomerID: one.customer, Kind: p.kind, Before: one.before})
			if i%4 == 0 {
				lines = m.line(lines, wire.Command{Type: wire.Remind, Campaign: p.name, CustomerID: one.customer, Kind: p.kind, Before: one.before})
				again++
			}
		}
		m.fresh = m.fresh[max(0, len(m.fresh)-20*crowdLines):]
	}
	if m.publish(ctx, append(claims, lines...)) {
		m.c.mu.Lock()
		p.sent += sent + again
		m.c.mu.Unlock()
	}
}

// cancel takes back the reminders of a burst's customers.
func (m *mouth) cancel(ctx context.Context, p *party, from, to int) {
	var lines []byte
	for i := from; i < to; i++ {
		lines = m.line(lines, wire.Command{Type: wire.Unremind, Campaign: p.name, CustomerID: fmt.Sprint("person-", i), Kind: p.kind, Before: p.before})
	}
	m.publish(ctx, lines)
}

// publish hands a message to the lane until the log has it, the same bytes each time, and waits a while for its outcomes:
// who is answered does not flood the lane. It reports whether the log has it.
func (m *mouth) publish(ctx context.Context, lines []byte) bool {
	if len(lines) == 0 {
		return true
	}
	m.n++
	reply := fmt.Sprintf("%s.%d", m.inbox, m.n)
	msg := &nats.Msg{Subject: topology.LaneCmd(m.lane), Data: lines, Header: nats.Header{topology.HeaderReply: {reply}}}
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := m.c.w.js.PublishMsg(attempt, msg)
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return false
		}
	}
	deadline := time.Now().Add(crowdWait)
	for {
		answer, err := m.answers.NextMsg(time.Until(deadline))
		if err != nil || answer.Subject == reply {
			return true
		}
	}
}

// settle holds what was sent against the log: what the log acknowledged is set, or was refused as too late.
func (c *crowd) settle(t *testing.T, fold *check.Fold) {
	t.Helper()
	for _, p := range c.parties() {
		campaign := fold.Campaigns[p.name]
		if campaign == nil {
			t.Errorf("the log does not know %s", p.name)
			continue
		}
		tally, late := campaign.Tally(), fold.Refused[p.name][wire.TooLate]
		if p.sent < p.size {
			t.Errorf("%s: only %d of %d subscriptions were handed in", p.name, p.sent, p.size)
		}
		if tally.Set+late < uint64(p.sent) {
			t.Errorf("%s: %d subscriptions were handed to the log, which has %d and refused %d as too late", p.name, p.sent, tally.Set, late)
		}
		for refusal, n := range fold.Refused[p.name] {
			if refusal != wire.TooLate && refusal != wire.Outdated { // sent again, after it had fired
				t.Errorf("%s: %d commands are refused as %s", p.name, n, refusal)
			}
		}
		wrong := false
		switch {
		case p == c.ended:
			wrong = tally.Dropped != tally.Set || tally.Set == 0
		case p == c.someday:
			wrong = tally.Pending != tally.Set || tally.Set == 0
		case slices.Contains(c.bursts, p):
			wrong = tally.Set != uint64(p.size) || tally.Fired+tally.Cancelled != tally.Set || tally.Cancelled == 0
		}
		if wrong {
			t.Errorf("%s: of %d subscriptions: %s", p.name, p.size, tally)
		}
	}
	if fold.Rejected > 0 {
		t.Errorf("%d commands or messages are dead letters", fold.Rejected)
	}
	if total := fold.Tally(); total.Cancelled == 0 || total.Dropped == 0 || total.Pending == 0 || total.Fired == 0 {
		t.Errorf("reminders of which none fired, none was cancelled, none dropped or none is left show little: %s", total)
	}
}
