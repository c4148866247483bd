package demo

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// line is what the ledger reads of an event line.
type line struct {
	Type          string            `json:"type"`
	Campaign      string            `json:"campaign"`
	At            time.Time         `json:"at"`
	N             uint32            `json:"n"`
	Code          string            `json:"code"`
	CustomerID    string            `json:"customer_id"`
	ExpiresAt     *time.Time        `json:"expires_at"`
	OrderID       string            `json:"order_id"`
	RedeemedCount int               `json:"redeemed_count"`
	Max           int               `json:"max_redemptions"`
	Through       *time.Time        `json:"through"`
	Count         int               `json:"count"`
	Counts        map[string]uint64 `json:"counts"`
	R             uint64            `json:"r"`
	Kind          string            `json:"kind"`
	DueAt         time.Time         `json:"due_at"`
	FromR         uint64            `json:"from_r"`
	ThroughR      uint64            `json:"through_r"`
	Fired         int               `json:"fired"`
	Dropped       int               `json:"dropped"`
}

// ledger is what the log says about the demo's campaigns, and everything in it that must not be.
type ledger struct {
	campaigns map[string]*account
	holders   map[string]string // code → customer, over all campaigns: a code goes to one holder only
	shared    int               // codes that went to a second holder
	again     int               // redemptions of a coupon that was redeemed already
	tooLate   int               // redemptions at or after the coupon's end
	wrong     []string
}

// account is one campaign in the ledger.
type account struct {
	expires  *time.Time
	through  time.Time // announced as expired
	coupons  map[uint32]*coupon
	refused  map[string]uint64
	soldOut  int // times that the campaign told it had sold out
	reminder map[uint64]*reminder
	told     map[string]int // customer and due instant → messages on the reminder stream
}

type coupon struct {
	code, customer  string
	expires         *time.Time
	redeemed, voids int
}

type reminder struct {
	customer, kind, state string
	due                   time.Time
}

func newLedger(campaigns ...string) *ledger {
	l := &ledger{campaigns: map[string]*account{}, holders: map[string]string{}}
	for _, name := range campaigns {
		l.campaigns[name] = &account{coupons: map[uint32]*coupon{}, refused: map[string]uint64{}, reminder: map[uint64]*reminder{}, told: map[string]int{}}
	}
	return l
}

func (l *ledger) blame(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// fold takes in one line of an event or reminder stream. Lines of other campaigns are passed over.
func (l *ledger) fold(raw []byte) error {
	var e line
	if err := json.Unmarshal(raw, &e); err != nil {
		return fmt.Errorf("an event line is not JSON: %w: %s", err, raw)
	}
	a := l.campaigns[e.Campaign]
	if a == nil {
		return nil
	}
	c := a.coupons[e.N]
	if wire.EventNamed([]byte(e.Type)).ChangesCoupon() {
		if c == nil {
			l.blame("%s of coupon %d of %s, which was never claimed", e.Type, e.N, e.Campaign)
			return nil
		}
		l.change(a, c, &e)
		return nil
	}
	switch e.Type {
	case "campaign.created", "campaign.updated":
		a.expires = e.ExpiresAt
	case "campaign.sold_out":
		a.soldOut++
	case "coupon.claimed":
		if c != nil {
			l.blame("coupon %d of %s was claimed twice", e.N, e.Campaign)
		}
		if who, taken := l.holders[e.Code]; taken {
			l.shared++
			l.blame("code %s went to %s and to %s", e.Code, who, e.CustomerID)
		}
		l.holders[e.Code] = e.CustomerID
		a.coupons[e.N] = &coupon{code: e.Code, customer: e.CustomerID, expires: e.ExpiresAt}
	case "coupons.expired":
		if e.Through != nil {
			if a.expires != nil && e.At.Before(*e.Through) {
				l.blame("%s was expired through %s already at %s", e.Campaign, e.Through, e.At)
			}
			a.through = *e.Through
		}
	case "commands.refused":
		for reason, n := range e.Counts {
			a.refused[reason] += n
		}
	case "reminder.set":
		a.reminder[e.R] = &reminder{customer: e.CustomerID, kind: e.Kind, state: "pending", due: e.DueAt}
	case "reminder.cancelled":
		l.settle(a, e.R, "cancelled")
	case "reminders.due":
		l.due(a, &e)
	case "reminder.due":
		a.told[e.CustomerID+" "+e.DueAt.Format(time.RFC3339Nano)]++
	}
	return nil
}

// change is what happens to a claimed coupon.
func (l *ledger) change(a *account, c *coupon, e *line) {
	switch e.Type {
	case "coupon.redeemed":
		if end := a.end(c); end != nil && !e.At.Before(*end) {
			l.tooLate++
			l.blame("%s was redeemed at %s, at or after its end %s", c.code, e.At, end)
		}
		if c.redeemed++; c.redeemed > 1 {
			l.again++
			l.blame("%s was redeemed %d times", c.code, c.redeemed)
		}
	case "coupon.rolled_back":
		c.redeemed--
	case "coupon.voided":
		c.voids++
	}
	if e.ExpiresAt != nil { // the event gives the coupon an expiry of its own
		c.expires = e.ExpiresAt
	}
}

// due settles the reminders that fired or were dropped.
func (l *ledger) due(a *account, e *line) {
	state, want := "fired", e.Fired
	if e.Dropped > 0 {
		state, want = "dropped", e.Dropped
	}
	settled := 0
	for r, set := range a.reminder {
		if r >= e.FromR && r <= e.ThroughR && set.kind == e.Kind && set.due.Equal(e.DueAt) && set.state == "pending" {
			l.settle(a, r, state)
			settled++
		}
	}
	if settled != want {
		l.blame("%s says that %d reminders were %s, the log has %d to settle", e.Campaign, want, state, settled)
	}
	if state == "fired" && e.At.Before(e.DueAt) {
		l.blame("reminders of %s fired at %s, before they were due at %s", e.Campaign, e.At, e.DueAt)
	}
}

func (l *ledger) settle(a *account, r uint64, state string) {
	set := a.reminder[r]
	if set == nil || set.state != "pending" {
		l.blame("reminder %d was settled twice or never set", r)
		return
	}
	set.state = state
}

// end is when a coupon expires, nil = never.
func (a *account) end(c *coupon) *time.Time {
	if c.expires != nil {
		return c.expires
	}
	return a.expires
}

// status is how a coupon stands, with the precedence that the read tables have.
func (a *account) status(c *coupon) string {
	end := a.end(c)
	switch {
	case c.voids > 0:
		return "voided"
	case c.redeemed > 0:
		return "redeemed"
	case end != nil && !a.through.Before(*end):
		return "expired"
	}
	return "claimed"
}

// byStatus counts the coupons of all campaigns.
func (l *ledger) byStatus() map[string]int {
	counts := map[string]int{}
	for _, a := range l.campaigns {
		for _, c := range a.coupons {
			counts[a.status(c)]++
		}
	}
	return counts
}

// byState counts the reminders of a campaign.
func (a *account) byState() map[string]int {
	counts := map[string]int{}
	for _, r := range a.reminder {
		counts[r.state]++
	}
	return counts
}

// toldOnce counts customers told exactly once, and those told more often.
func (a *account) toldOnce() (once, more int) {
	for _, n := range a.told {
		if n == 1 {
			once++
		} else {
			more++
		}
	}
	return once, more
}
