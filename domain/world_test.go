package domain

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// The random worlds of the property tests: few names, so that commands meet.

const (
	second = wire.Instant(1e6)
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)

// start is 2026-11-27T00:00:00Z, when the worlds begin.
const start = wire.Instant(1795737600 * 1e6)

var testKey = [32]byte{1, 2, 3}

func testLane() *Lane { return NewLane(LaneOptions{Lane: 0, Lanes: 1, Key: testKey}) }

// chooser draws 0 to n-1.
type chooser func(n int) int

func randomChooser(seed uint64) chooser {
	r := rand.New(rand.NewPCG(seed, 1))
	return r.IntN
}

func rapidChooser(t *rapid.T) chooser {
	return func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
}

// world makes commands that are likely to hit something.
type world struct {
	choose chooser
	now    wire.Instant
	serial int
	codes  []string // seen in coupon.claimed events
	ids    []string // used before, the newest few

	claimed, reminded []wire.Event // the newest few
}

func newWorld(c chooser) *world { return &world{choose: c, now: start} }

func pick[T any](c chooser, of ...T) T { return of[c(len(of))] }

// pass lets some time go by; now and then the clock of the machine jumps back.
func (w *world) pass() {
	w.now += pick(w.choose, 0, 0, 0, 1, second, 20*second, 20*second, minute, 10*minute, 10*minute, hour, -minute)
}

func (w *world) id() string {
	if len(w.ids) > 0 && w.choose(6) == 0 {
		return w.ids[w.choose(len(w.ids))]
	}
	w.serial++
	id := fmt.Sprint("id", w.serial)
	w.ids = append(w.ids[max(0, len(w.ids)-20):], id)
	return id
}

// campaign is one of a few that come and go.
func (w *world) campaign() string { return fmt.Sprint("c", w.serial/60+w.choose(3)) }

func (w *world) customer() string { return pick(w.choose, "ann", "bob", "cy", "dée") }

func (w *world) code() string {
	if len(w.codes) == 0 || w.choose(12) == 0 {
		return pick(w.choose, "AAAA-BBBB-CCCC", "X-1", "x1", "nothing", "WINTER-77")
	}
	recent := w.codes[max(0, len(w.codes)-8):]
	c := recent[w.choose(len(recent))]
	switch w.choose(6) {
	case 0:
		return strings.ToLower(c)
	case 1:
		return strings.ReplaceAll(c, "-", " ")
	}
	return c
}

// later is an instant around now, on the whole second or not.
func (w *world) later() wire.Instant {
	at := w.now + pick(w.choose, -hour, -second, 0, 1, second, minute, hour, 6*hour, day)
	if w.choose(4) > 0 {
		at = at / minute * minute
	}
	return max(at, 1)
}

func (w *world) settings(c *wire.Command, create bool) {
	give := func(name string, odds int, set func()) {
		if w.choose(odds) == 0 {
			c.Patch.Set(name)
			set()
		}
	}
	p := &c.Patch
	chance := 3
	if create {
		chance = 1
	}
	give("codes", chance, func() { p.Codes = uint32(pick(w.choose, 8, 5, 3, 1, 0)) })
	give("per_customer", 3, func() { p.PerCustomer = uint32(pick(w.choose, 0, 1, 2, 3)) })
	give("max_redemptions", 3, func() { p.MaxRedemptions = uint32(pick(w.choose, 1, 2, 3, 20)) })
	give("opens_at", 3, func() { p.OpensAt = w.later() })
	give("closes_at", 5, func() { p.ClosesAt = w.later() })
	if w.choose(2) == 0 {
		give("expires_at", 2, func() { p.ExpiresAt = w.later() + 2*hour })
	} else {
		give("valid_for", 2, func() { p.ValidFor = pick(w.choose, 90*time.Second, time.Hour, 26*time.Hour, 1500*time.Millisecond) })
	}
	give("late_after", 6, func() { p.LateAfter = pick(w.choose, time.Second, time.Minute, time.Hour) })
	give("benefit", 6, func() { p.Benefit = []byte(`{"off":5}`) })
	give("prefix", 6, func() { p.Prefix = "SUN" })
	give("category", 8, func() { p.Category = "food" })
	if p.Codes == 0 && p.Gives("codes") && !create {
		p.Codes = 9
	}
}

var beforeTimes = []time.Duration{0, time.Minute, time.Hour, 24 * time.Hour}

// command makes the next one.
func (w *world) command() wire.Command {
	w.pass()
	c := wire.Command{ID: w.id(), Campaign: w.campaign()}
	switch k := w.choose(40); {
	case k < 4:
		c.Type = wire.CreateCampaign
		w.settings(&c, true)
	case k < 6:
		c.Type = wire.UpdateCampaign
		w.settings(&c, false)
		if c.Patch.Empty() {
			c.Patch.Set("category")
			c.Patch.Category = "toys"
		}
		c.IfVersion = pick(w.choose, "", "", "", "no such version")
	case k == 6:
		c.Type = pick(w.choose, wire.PauseCampaign, wire.ResumeCampaign, wire.ResumeCampaign)
		c.IfVersion = pick(w.choose, "", "", "", "no such version")
	case k == 7:
		c.Type = pick(w.choose, wire.ResumeCampaign, wire.ResumeCampaign, wire.EndCampaign)
	case k < 10:
		c.Type = wire.ImportCodes
		for range 1 + w.choose(3) {
			c.Codes = append(c.Codes, fmt.Sprintf("X-%d", w.choose(7)+1)+pick(w.choose, "", "0", "-0"))
		}
		for i, s := range c.Codes {
			if len(s) < 3 {
				c.Codes[i] = s + "00"
			}
		}
	case k < 18:
		c.Type, c.CustomerID = wire.Claim, w.customer()
	case k < 26:
		c.Type, c.Code, c.OrderID = pick(w.choose, wire.Redeem, wire.Redeem, wire.Redeem, wire.Rollback), w.code(), pick(w.choose, "o1", "o2", "o3")
		if w.choose(4) == 0 {
			c.CustomerID = w.customer()
		}
		w.maybeWithout(&c)
	case k == 26:
		c.Type, c.Code, c.Reason = wire.Void, w.code(), pick(w.choose, "", "stolen")
		w.maybeWithout(&c)
	case k < 29:
		c.Type, c.Code, c.ExpiresAt = wire.Extend, w.code(), w.later()+hour
		w.maybeWithout(&c)
	case k < 34:
		c.Type, c.CustomerID = wire.Remind, w.customer()
		c.Kind, c.Before = pick(w.choose, wire.KindExpires, wire.KindExpires, wire.KindOpens), pick(w.choose, beforeTimes...)
		if len(w.claimed) > 0 && c.Kind == wire.KindExpires {
			recent := w.claimed[w.choose(len(w.claimed))]
			c.Campaign, c.CustomerID = recent.Campaign, recent.CustomerID
		}
	case k < 35:
		c.Type, c.CustomerID, c.Kind, c.Before = wire.Unremind, w.customer(), wire.KindOpens, time.Minute
		if len(w.reminded) > 0 {
			recent := w.reminded[w.choose(len(w.reminded))]
			c.Campaign, c.CustomerID, c.Kind, c.Before = recent.Campaign, recent.CustomerID, recent.Kind, recent.Before
		}
	case k < 37:
		c.Type, c.Through = wire.Expire, w.later()
	default:
		c.Type, c.Kind, c.DueAt, c.ThroughR = wire.RemindDue, pick(w.choose, wire.KindOpens, wire.KindExpires), w.later(), uint64(pick(w.choose, 1, 2, 100))
		c.ReadyAt = pick(w.choose, 0, 0, w.later())
	}
	return c
}

// maybeWithout leaves the campaign out, as code commands may.
func (w *world) maybeWithout(c *wire.Command) {
	if w.choose(2) == 0 {
		c.Campaign = ""
	}
}

// dueNow turns a remind_due into one for which something is really due, if there is.
func (w *world) dueNow(l *Lane, c *wire.Command) {
	if c.Type != wire.RemindDue || w.choose(5) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(l.campaigns)) {
		camp := l.campaigns[name]
		if due := slices.Collect(camp.reminders().Due(camp.anchors(), max(w.now, l.clock))); len(due) > 0 {
			d := due[w.choose(len(due))]
			c.Campaign, c.Kind, c.DueAt = name, d.Kind, d.DueAt
			return
		}
	}
}

// run decides n random commands on the lane and returns the events they made.
func (w *world) run(l *Lane, n int) (evs []wire.Event) {
	for range n {
		c := w.command()
		w.dueNow(l, &c)
		had := len(evs)
		evs, _ = l.Decide(&c, w.now, evs)
		w.learn(evs[had:])
	}
	return evs
}

func (w *world) learn(evs []wire.Event) {
	for i := range evs {
		switch ev := evs[i]; ev.Type {
		case wire.CouponClaimed:
			w.codes = append(w.codes, ev.Code)
			w.claimed = append(w.claimed[max(0, len(w.claimed)-6):], ev)
		case wire.ReminderSet:
			w.reminded = append(w.reminded[max(0, len(w.reminded)-3):], ev)
		}
	}
}

// sameOutcome compares what Decide answered.
func outcomeText(o wire.Outcome) string { return string(o.AppendJSON(nil)) }

func eventTexts(evs []wire.Event) string {
	var b strings.Builder
	for i := range evs {
		b.Write(evs[i].AppendJSON(nil))
		b.WriteByte('\n')
	}
	return b.String()
}

// bothDecide gives the same further random commands to two lanes and fails where they answer differently.
func bothDecide(t testing.TB, w *world, a, b *Lane, n int) {
	t.Helper()
	for range n {
		c := w.command()
		w.dueNow(a, &c)
		evA, outA := a.Decide(&c, w.now, nil)
		evB, outB := b.Decide(&c, w.now, nil)
		if x, y := outcomeText(outA), outcomeText(outB); x != y {
			t.Fatalf("%s\n is answered %s\n and after it %s", c.AppendJSON(nil), x, y)
		}
		if x, y := eventTexts(evA), eventTexts(evB); x != y {
			t.Fatalf("%s\n makes %s\n and after it %s", c.AppendJSON(nil), x, y)
		}
		w.learn(evA)
	}
}
