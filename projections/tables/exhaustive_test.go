package tables

import (
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// TestEveryEventIsFolded: an event that the fold has no rule for becomes a dead letter, so a new one needs a rule; and
// what changes a coupon is kept for its history under the name that the table of events has for it.
func TestEveryEventIsFolded(t *testing.T) {
	for e := range wire.Events() {
		f := newFold(0)
		c := &campaign{name: "s", status: "active", maxRedemptions: 2, claimed: 1, highest: 1}
		c.keep(&coupon{n: 1, code: "AAAA-AAAA-AAAA", customer: "ann"})
		f.campaigns["s"] = c
		l := &Line{Sequence: 7, Number: 1, Event: wire.Event{Type: e, Campaign: "s", At: 2e6, N: 1, RedeemedCount: 1, ExpiresAt: 9e6, OrderID: "o", Reason: "r"}}
		l.Event.Settings = wire.Settings{MaxRedemptions: 3, OpensAt: 5e6, ExpiresAt: 9e6}
		_, err := f.event(l)
		if err != nil && strings.Contains(err.Error(), "is not known") {
			t.Errorf("no rule folds %s: %v", e, err)
		}
		if kept := len(f.changes) == 1; err == nil && kept != e.Spec().Campaign {
			t.Errorf("%s is kept for histories of campaigns: %t", e, kept)
		}
		if !e.ChangesCoupon() || e == wire.CouponRedeemed { // that one has a row of redemption
			continue
		}
		if len(f.couponEvents) != 1 || f.couponEvents[0].what != e.Spec().Change {
			t.Errorf("%s is kept for histories as %+v, want %s", e, f.couponEvents, e.Spec().Change)
		}
	}
}
