// Package worldtest makes random commands for property tests: few names, so that commands meet.
//
//	lane ──events──> World.Learn;  World.Command ──> lane
//
// Owner: one goroutine per World. It does no I/O.
package worldtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Times in microseconds.
const (
	Second = wire.Instant(1e6)
	Minute = 60 * Second
	Hour   = 60 * Minute
	Day    = 24 * Hour
)

// Start is 2026-11-27T00:00:00Z, the time at which worlds start.
const Start = wire.Instant(1795737600 * 1e6)

// Chooser draws 0 to n-1.
type Chooser func(n int) int

// Random draws by a seed (SplitMix64).
func Random(seed uint64) Chooser {
	return func(n int) int {
		seed += 0x9e3779b97f4a7c15
		z := seed
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return int((z ^ z>>31) % uint64(n))
	}
}

// Pick draws one of several.
func Pick[T any](c Chooser, of ...T) T { return of[c(len(of))] }

// World makes commands that are likely to hit something.
type World struct {
	Choose Chooser
	Now    wire.Instant
	Serial int      // of the newest id
	codes  []string // of coupons that were claimed or redeemed
	ids    []string // used before, the newest few

	sent                                  []wire.Command // the newest few
	claimed, redeemed, reminded, allotted []wire.Event   // likewise
}

// New starts at Start.
func New(c Chooser) *World { return &World{Choose: c, Now: Start} }

// Pass lets some time go by; now and then the clock of the machine jumps back.
func (w *World) Pass() {
	w.Now += Pick(w.Choose, 0, 0, 0, 1, Second, 20*Second, 20*Second, Minute, 10*Minute, 10*Minute, Hour, -Minute)
}

func (w *World) id() string {
	if len(w.ids) > 0 && w.Choose(6) == 0 {
		return w.ids[w.Choose(len(w.ids))]
	}
	w.Serial++
	id := fmt.Sprint("id", w.Serial)
	w.ids = append(w.ids[max(0, len(w.ids)-20):], id)
	return id
}

// campaign is one of a few that come and go.
func (w *World) campaign() string { return fmt.Sprint("c", w.Serial/60+w.Choose(3)) }

func (w *World) customer() string { return Pick(w.Choose, "ann", "bob", "cy", "dée") }

func (w *World) code() string {
	if len(w.codes) == 0 || w.Choose(12) == 0 {
		return Pick(w.Choose, "AAAA-BBBB-CCCC", "X-1", "x1", "nothing", "WINTER-77")
	}
	recent := w.codes[max(0, len(w.codes)-8):]
	c := recent[w.Choose(len(recent))]
	switch w.Choose(6) {
	case 0:
		return strings.ToLower(c)
	case 1:
		return strings.ReplaceAll(c, "-", " ")
	}
	return c
}

// later is an instant around now, on the whole second or not.
func (w *World) later() wire.Instant {
	at := w.Now + Pick(w.Choose, -Hour, -Second, 0, 1, Second, Minute, Hour, 6*Hour, Day)
	if w.Choose(4) > 0 {
		at = at / Minute * Minute
	}
	return max(at, 1)
}

func (w *World) settings(c *wire.Command, create bool) {
	give := func(name string, odds int, set func()) {
		if w.Choose(odds) == 0 {
			c.Patch.Set(name)
			set()
		}
	}
	p := &c.Patch
	chance := 3
	if create {
		chance = 1
	}
	give("codes", chance, func() { p.Codes = uint32(Pick(w.Choose, 8, 5, 3, 1, 0)) })
	give("per_customer", 3, func() { p.PerCustomer = uint32(Pick(w.Choose, 0, 1, 2, 3)) })
	give("max_redemptions", 3, func() { p.MaxRedemptions = uint32(Pick(w.Choose, 1, 2, 3, 20)) })
	give("reminders", 4, func() { p.Reminders = uint32(Pick(w.Choose, 1, 2, 5)) })
	give("opens_at", 3, func() { p.OpensAt = w.later() })
	give("closes_at", 5, func() { p.ClosesAt = w.later() })
	if w.Choose(2) == 0 {
		give("expires_at", 2, func() { p.ExpiresAt = w.later() + 2*Hour })
	} else {
		give("valid_for", 2, func() { p.ValidFor = Pick(w.Choose, 90*time.Second, time.Hour, 26*time.Hour, 1500*time.Millisecond) })
	}
	give("late_after", 6, func() { p.LateAfter = Pick(w.Choose, time.Second, time.Minute, time.Hour) })
	give("benefit", 6, func() { p.Benefit = []byte(`{"off":5}`) })
	give("prefix", 6, func() { p.Prefix = "SUN" })
	give("category", 8, func() { p.Category = "food" })
	if p.Codes == 0 && p.Gives("codes") && !create {
		p.Codes = 9
	}
}

// BeforeTimes are lead times of reminders.
var BeforeTimes = []time.Duration{0, time.Minute, time.Hour, 24 * time.Hour}

// Command makes the next one. Some are sent again, whatever happened since.
func (w *World) Command() wire.Command {
	w.Pass()
	if len(w.sent) > 0 && w.Choose(8) == 0 {
		return w.sent[w.Choose(len(w.sent))]
	}
	c := w.command()
	w.sent = append(w.sent[max(0, len(w.sent)-15):], c)
	return c
}

func (w *World) command() wire.Command {
	c := wire.Command{ID: w.id(), Campaign: w.campaign()}
	switch k := w.Choose(40); {
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
		c.IfVersion = Pick(w.Choose, "", "", "", "no such version")
	case k == 6:
		c.Type = Pick(w.Choose, wire.PauseCampaign, wire.ResumeCampaign, wire.ResumeCampaign)
		c.IfVersion = Pick(w.Choose, "", "", "", "no such version")
	case k == 7:
		c.Type = Pick(w.Choose, wire.ResumeCampaign, wire.ResumeCampaign, wire.EndCampaign)
	case k == 8:
		c.Type, c.Count, c.Batch = wire.Allot, uint64(Pick(w.Choose, 1, 1, 2, 3, 9)), Pick(w.Choose, "a", "b", "c")
	case k == 9:
		c.Type, c.WeakCodes = wire.ImportCodes, true
		for range 1 + w.Choose(3) {
			c.Codes = append(c.Codes, fmt.Sprintf("X-%d", w.Choose(7)+1)+Pick(w.Choose, "", "0", "-0"))
		}
		for i, s := range c.Codes {
			if len(s) < 3 {
				c.Codes[i] = s + "00"
			}
		}
	case k < 18:
		c.Type, c.CustomerID = wire.Claim, w.customer()
		if w.Choose(3) == 0 {
			c.Attributes = []byte(Pick(w.Choose, `{"shop":"berlin","vip":true}`, `{"shop":"bonn"}`))
		}
	case k < 26:
		c.Type, c.Code, c.OrderID = Pick(w.Choose, wire.Redeem, wire.Redeem, wire.Redeem, wire.Rollback), w.code(), Pick(w.Choose, "o1", "o2", "o3")
		if len(w.redeemed) > 0 && c.Type == wire.Rollback && w.Choose(4) > 0 {
			recent := w.redeemed[w.Choose(len(w.redeemed))]
			c.Campaign, c.Code, c.OrderID = recent.Campaign, recent.Code, recent.OrderID
		}
		if w.Choose(4) == 0 {
			c.CustomerID = w.customer()
		}
		w.maybeWithout(&c)
	case k == 26:
		c.Type, c.Code, c.Reason = wire.Void, w.code(), Pick(w.Choose, "", "stolen")
		if len(w.claimed) > 0 && w.Choose(2) == 0 {
			recent := w.claimed[w.Choose(len(w.claimed))]
			c.Campaign, c.Code = recent.Campaign, recent.Code
		}
		w.maybeWithout(&c)
	case k < 29:
		c.Type, c.Code, c.ExpiresAt = wire.Extend, w.code(), w.later()+Hour
		w.maybeWithout(&c)
	case k < 34:
		c.Type, c.CustomerID = wire.Remind, w.customer()
		c.Kind, c.Before = Pick(w.Choose, wire.KindExpires, wire.KindExpires, wire.KindOpens), Pick(w.Choose, BeforeTimes...)
		c.Zone = Pick(w.Choose, "", "Europe/Berlin")
		if len(w.claimed) > 0 && c.Kind == wire.KindExpires {
			recent := w.claimed[w.Choose(len(w.claimed))]
			c.Campaign, c.CustomerID = recent.Campaign, recent.CustomerID
		}
	case k < 35:
		c.Type, c.CustomerID, c.Kind, c.Before = wire.Unremind, w.customer(), wire.KindOpens, time.Minute
		if len(w.reminded) > 0 {
			recent := w.reminded[w.Choose(len(w.reminded))]
			c.Campaign, c.CustomerID, c.Kind, c.Before = recent.Campaign, recent.CustomerID, recent.Kind, recent.Before
		}
	case k < 37:
		c.Type, c.Through = wire.Expire, w.later()
	default:
		c.Type, c.Kind, c.DueAt, c.ThroughR = wire.RemindDue, Pick(w.Choose, wire.KindOpens, wire.KindExpires), w.later(), uint64(Pick(w.Choose, 1, 2, 100))
		c.ReadyAt = Pick(w.Choose, 0, 0, w.later())
	}
	return c
}

// maybeWithout leaves the campaign out, as code commands may, or the code.
func (w *World) maybeWithout(c *wire.Command) {
	switch w.Choose(6) {
	case 0, 1, 2:
		c.Campaign = ""
	case 3:
		c.Code, c.N = "", uint32(1+w.Choose(9))
		if len(w.allotted) > 0 && w.Choose(2) == 0 {
			recent := w.allotted[w.Choose(len(w.allotted))]
			c.Campaign, c.N = recent.Campaign, recent.FromN+uint32(w.Choose(int(recent.ThroughN-recent.FromN)+1))
		}
	}
}

// Learn takes over the codes and reminders of events: later commands are about them.
func (w *World) Learn(evs []wire.Event) {
	for i := range evs {
		switch ev := evs[i]; ev.Type {
		case wire.CouponClaimed:
			w.codes = append(w.codes, ev.Code)
			w.claimed = append(w.claimed[max(0, len(w.claimed)-6):], ev)
		case wire.CouponsAllotted:
			w.allotted = append(w.allotted[max(0, len(w.allotted)-3):], ev)
		case wire.CouponRedeemed:
			if !slices.Contains(w.codes, ev.Code) { // printed
				w.codes = append(w.codes, ev.Code)
			}
			w.redeemed = append(w.redeemed[max(0, len(w.redeemed)-3):], ev)
		case wire.ReminderSet:
			w.reminded = append(w.reminded[max(0, len(w.reminded)-3):], ev)
		}
	}
}
