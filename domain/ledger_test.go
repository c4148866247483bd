package domain

import (
	"encoding/json"
	"fmt"
	"time"
)

// ledger folds the event log as an outside reader would, with encoding/json, and checks the promises as it goes.
type ledger struct {
	settings map[string]map[string]any
	holder   map[string]string            // code → customer
	coupons  map[string]*ledgerCoupon     // code
	pending  map[string]map[uint64]string // campaign → r → customer
	set      map[string]int
	gone     map[string]int // fired, cancelled and dropped
	last     time.Time
	through  map[string]time.Time
	lastN    map[string]float64
}

type ledgerCoupon struct {
	own  string
	uses int
	void bool
}

func newLedger() *ledger {
	return &ledger{
		settings: make(map[string]map[string]any), holder: make(map[string]string), coupons: make(map[string]*ledgerCoupon),
		pending: make(map[string]map[uint64]string), set: make(map[string]int), gone: make(map[string]int),
		through: make(map[string]time.Time), lastN: make(map[string]float64),
	}
}

// status is that of the contract's coupon table.
func (g *ledger) status(campaign string, k *ledgerCoupon, at time.Time) string {
	expires := k.own
	if expires == "" {
		expires, _ = g.settings[campaign]["expires_at"].(string)
	}
	end, err := time.Parse(time.RFC3339Nano, expires)
	switch {
	case k.void:
		return "voided"
	case float64(k.uses) >= g.settings[campaign]["max_redemptions"].(float64):
		return "redeemed"
	case err == nil && !at.Before(end):
		return "expired"
	}
	return "claimed"
}

func (g *ledger) fold(line []byte) error {
	var e map[string]any
	if err := json.Unmarshal(line, &e); err != nil {
		return err
	}
	text := func(name string) string { s, _ := e[name].(string); return s }
	number := func(name string) float64 { f, _ := e[name].(float64); return f }
	at, err := time.Parse(time.RFC3339Nano, text("at"))
	if err != nil || at.Before(g.last) {
		return fmt.Errorf("at %q, after %s", text("at"), g.last)
	}
	g.last = at
	c := text("campaign")
	code := text("code")
	// The last 14 characters of a generated code are the code; imported ones are unique within their campaign.
	key := c + " " + code
	if n := len(code); n > 14 {
		key = c + " " + code[n-14:]
	}
	k := g.coupons[key]
	kind := text("type")
	switch kind {
	case "coupon.redeemed", "coupon.rolled_back", "coupon.voided", "coupon.extended":
		if k == nil {
			return fmt.Errorf("coupon %s was never claimed", key)
		}
	}
	switch kind {
	case "campaign.created", "campaign.updated":
		g.settings[c] = e
		if g.pending[c] == nil {
			g.pending[c] = make(map[uint64]string)
		}
	case "coupon.claimed":
		if g.holder[key] != "" {
			return fmt.Errorf("promise 1: code %s belongs to %s and to %s", key, g.holder[key], text("customer_id"))
		}
		if number("n") != g.lastN[c]+1 {
			return fmt.Errorf("coupon %v follows %v", number("n"), g.lastN[c])
		}
		g.lastN[c]++
		g.holder[key], g.coupons[key] = text("customer_id"), &ledgerCoupon{own: text("expires_at")}
	case "coupon.redeemed":
		expires := k.own
		if expires == "" {
			expires, _ = g.settings[c]["expires_at"].(string)
		}
		if expires != "" {
			if end, err := time.Parse(time.RFC3339Nano, expires); err != nil || !at.Before(end) {
				return fmt.Errorf("promise 3: %s redeemed at %s, expires at %s", key, at, expires)
			}
		}
		if by := text("customer_id"); by != "" && by != g.holder[key] {
			return fmt.Errorf("%s redeemed by %s, held by %s", key, by, g.holder[key])
		}
		k.uses++
		if most := g.settings[c]["max_redemptions"].(float64); float64(k.uses) > most || k.void {
			return fmt.Errorf("promise 3: %s used %d times of %v, void %v", key, k.uses, most, k.void)
		}
	case "coupon.rolled_back":
		if k.uses--; k.uses < 0 {
			return fmt.Errorf("%s rolled back more often than redeemed", key)
		}
	case "coupon.voided":
		k.void = true
	case "coupon.extended":
		k.own = text("expires_at")
	}
	switch kind {
	case "coupon.rolled_back", "coupon.voided", "coupon.extended":
		if want := g.status(c, k, at); text("status") != want {
			return fmt.Errorf("%s is %s after it, not %s", key, want, text("status"))
		}
	case "coupons.expired":
		through, err := time.Parse(time.RFC3339Nano, text("through"))
		if err != nil || through.After(at) {
			return fmt.Errorf("promise 3: expired through %s at %s", text("through"), at)
		}
		if !through.After(g.through[c]) {
			return fmt.Errorf("the watermark does not rise: %s", through)
		}
		g.through[c] = through
	case "reminder.set":
		r := uint64(number("r"))
		if r != uint64(g.set[c])+1 {
			return fmt.Errorf("reminder %d follows %d", r, g.set[c])
		}
		g.set[c]++
		g.pending[c][r] = text("customer_id")
	case "reminder.cancelled":
		r := uint64(number("r"))
		if _, ok := g.pending[c][r]; !ok {
			return fmt.Errorf("promise 4: reminder %d is cancelled and was not pending", r)
		}
		delete(g.pending[c], r)
		g.gone[c]++
	case "reminders.due":
		fired, dropped := number("fired"), number("dropped")
		if fired != 0 && dropped != 0 || fired+dropped == 0 {
			return fmt.Errorf("fired %v and dropped %v", fired, dropped)
		}
		if due, err := time.Parse(time.RFC3339Nano, text("due_at")); err != nil || due.After(at) {
			return fmt.Errorf("fired at %s what is due at %s", at, due)
		}
		g.gone[c] += int(fired + dropped)
	}
	return nil
}
