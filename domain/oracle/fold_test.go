package oracle

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

const second = wire.Instant(1_000_000)

// t0 is when the stories begin; times in events are relative to it.
var t0 = wire.At(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))

// story is a campaign s of three coupons, each for two uses, that end at 100 s; alice and bob have one each, alice used
// hers for order a and is reminded 10 s before the end.
func story() []wire.Event {
	settings := wire.Settings{Codes: 3, PerCustomer: 1, MaxRedemptions: 2, ExpiresAt: t0 + 100*second, OpensAt: t0 - second}
	return []wire.Event{
		{Type: wire.CampaignCreated, Campaign: "s", ID: "create", Number: 4, Settings: settings},
		{Type: wire.CouponClaimed, Campaign: "s", At: 1, ID: "c1", N: 1, Code: "AAAA-AAAA-AAAA", CustomerID: "alice"},
		{Type: wire.CouponClaimed, Campaign: "s", At: 2, ID: "c2", N: 2, Code: "BBBB-BBBB-BBBB", CustomerID: "bob"},
		{Type: wire.CouponRedeemed, Campaign: "s", At: 3, ID: "r1", N: 1, OrderID: "a", RedeemedCount: 1},
		{Type: wire.ReminderSet, Campaign: "s", At: 4, ID: "m1", R: 1, CustomerID: "alice", Kind: wire.KindExpires, Before: 10 * time.Second, DueAt: 90, N: 1},
		{Type: wire.ReminderSet, Campaign: "s", At: 4, ID: "m2", R: 2, CustomerID: "bob", Kind: wire.KindExpires, Before: 10 * time.Second, DueAt: 90, N: 2},
	}
}

// foldEvents folds events whose times, but for those of settings, are seconds after t0.
func foldEvents(events ...wire.Event) *Fold {
	f := New()
	for _, ev := range events {
		for _, at := range []*wire.Instant{&ev.ExpiresAt, &ev.DueAt, &ev.Through} {
			if *at != 0 {
				*at = t0 + *at*second
			}
		}
		ev.At = t0 + ev.At*second
		if ev.Type.ChangesCoupon() && ev.Code == "" {
			ev.Code = []string{"", "AAAA-AAAA-AAAA", "SUMMER-BBBB-BBBB-BBBB", "CCCC-CCCC-CCCC"}[ev.N] // a prefix may be new
		}
		switch {
		case ev.Status != "":
		case ev.Type == wire.CouponVoided:
			ev.Status = wire.StatusVoided
		case ev.Type.ChangesCoupon() && ev.Type != wire.CouponRedeemed:
			ev.Status = wire.StatusClaimed
		}
		f.Apply("here", &ev)
	}
	return f
}

func TestAGoodLogBreaksNothing(t *testing.T) {
	f := foldEvents(append(story(),
		wire.Event{Type: wire.CouponRolledBack, Campaign: "s", At: 5, ID: "b1", N: 1, OrderID: "a"},
		wire.Event{Type: wire.CouponRedeemed, Campaign: "s", At: 6, ID: "r2", N: 1, OrderID: "a", RedeemedCount: 1},
		wire.Event{Type: wire.CouponExtended, Campaign: "s", At: 7, ID: "x", N: 2, ExpiresAt: 200},
		wire.Event{Type: wire.CouponClaimed, Campaign: "s", At: 8, ID: "c3", N: 3, Code: "CCCC-CCCC-CCCC", CustomerID: "carol"},
		wire.Event{Type: wire.CouponVoided, Campaign: "s", At: 9, ID: "v", N: 3},
		wire.Event{Type: wire.CampaignUpdated, Campaign: "s", At: 10, ID: "u", Settings: wire.Settings{Codes: 4, PerCustomer: 1, MaxRedemptions: 2, ExpiresAt: t0 + 100*second, OpensAt: t0 - second}},
		wire.Event{Type: wire.CouponClaimed, Campaign: "s", At: 11, ID: "c4", N: 4, Replaces: 3, Code: "DDDD-DDDD-DDDD", CustomerID: "carol"},
		wire.Event{Type: wire.RemindersDue, Campaign: "s", At: 91, Kind: wire.KindExpires, DueAt: 90, FromR: 1, ThroughR: 2, Fired: 1},
		wire.Event{Type: wire.CouponsExpired, Campaign: "s", At: 101, ID: "e", Through: 100, Count: 2},
		wire.Event{Type: wire.CouponRedeemed, Campaign: "s", At: 102, ID: "r3", N: 2, OrderID: "late", RedeemedCount: 1, CustomerID: "bob"},
	)...)
	f.CheckTallies()
	if len(f.Violations) != 0 {
		t.Errorf("%q", f.Violations)
	}
	if want := (Tally{Set: 2, Fired: 1, Pending: 1}); f.Tally() != want || f.Campaigns["s"].Reminders[1].State != Pending {
		t.Errorf("%s, bob's reminder is %s", f.Tally(), f.Campaigns["s"].Reminders[1].State)
	}
	if bob := f.Campaigns["s"].Reminders[1]; bob.Due != t0+190*second {
		t.Errorf("bob's coupon was extended to 200 s, his reminder is due at %s", bob.Due)
	}
}

// A reminder that a redemption cancelled is set again without an instant while its coupon never expires.
func TestSetAgainWithoutAnInstant(t *testing.T) {
	for _, c := range []struct {
		due  wire.Instant
		want int
	}{{0, 0}, {90, 1}} {
		f := foldEvents(append(story(),
			wire.Event{Type: wire.CampaignUpdated, Campaign: "s", At: 5, ID: "u", Settings: wire.Settings{Codes: 3, PerCustomer: 1, MaxRedemptions: 2}},
			wire.Event{Type: wire.CouponRedeemed, Campaign: "s", At: 6, ID: "r2", N: 1, OrderID: "b", RedeemedCount: 2},
			wire.Event{Type: wire.ReminderCancelled, Campaign: "s", At: 6, R: 1, N: 1},
			wire.Event{Type: wire.ReminderSet, Campaign: "s", At: 7, R: 3, Kind: wire.KindExpires, Before: 10 * time.Second, DueAt: c.due, N: 1},
			wire.Event{Type: wire.ReminderCancelled, Campaign: "s", At: 7, ID: "m3", R: 3, CustomerID: "alice", Kind: wire.KindExpires, Before: 10 * time.Second, N: 1})...)
		if len(f.Violations) != c.want {
			t.Errorf("due at %d: %q", c.due, f.Violations)
		}
	}
}

// TestEveryRuleCanFail plants one violation each.
func TestEveryRuleCanFail(t *testing.T) {
	expires := wire.KindExpires
	for _, c := range []struct {
		want string
		then []wire.Event
	}{
		// Promise 1: one holder per code.
		{"is claimed as s/1 and as s/3", []wire.Event{{Type: wire.CouponClaimed, At: 5, ID: "c3", N: 3, Code: "SUMMER-AAAA-AAAA-AAAA", CustomerID: "carol"}}},
		{"coupon 2 of s follows 2", []wire.Event{{Type: wire.CouponClaimed, At: 5, ID: "c3", N: 2, Code: "CCCC-CCCC-CCCC", CustomerID: "carol"}}},
		{"coupon 4 of s, which has 3", []wire.Event{
			{Type: wire.CouponClaimed, At: 5, ID: "c3", N: 3, Code: "CCCC-CCCC-CCCC", CustomerID: "carol"},
			{Type: wire.CouponClaimed, At: 5, ID: "c4", N: 4, Code: "DDDD-DDDD-DDDD", CustomerID: "dave"}}},
		{"customer alice holds 2 coupons", []wire.Event{{Type: wire.CouponClaimed, At: 5, ID: "c3", N: 3, Code: "CCCC-CCCC-CCCC", CustomerID: "alice"}}},
		{"customer alice holds 2 coupons", []wire.Event{
			{Type: wire.CouponVoided, At: 5, ID: "v", N: 1},
			{Type: wire.CouponClaimed, At: 6, ID: "c3", N: 3, Code: "CCCC-CCCC-CCCC", CustomerID: "alice", Replaces: 1},
			{Type: wire.CampaignUpdated, At: 7, ID: "u", Settings: wire.Settings{Codes: 4, PerCustomer: 1, MaxRedemptions: 2}},
			{Type: wire.CouponClaimed, At: 8, ID: "c4", N: 4, Code: "DDDD-DDDD-DDDD", CustomerID: "alice"}}},
		{"replaces 1, the event has 0", []wire.Event{
			{Type: wire.CouponVoided, At: 5, ID: "v", N: 1},
			{Type: wire.CouponClaimed, At: 6, ID: "c3", N: 3, Code: "CCCC-CCCC-CCCC", CustomerID: "alice"}}},
		{"replaces 0, the event has 1", []wire.Event{{Type: wire.CouponClaimed, At: 5, ID: "c3", N: 3, Code: "CCCC-CCCC-CCCC", CustomerID: "carol", Replaces: 1}}},
		{"outside of the claim window", []wire.Event{{Type: wire.CouponClaimed, At: 100, ID: "c3", N: 3, Code: "CCCC-CCCC-CCCC", CustomerID: "carol"}}},
		{"outside of the claim window", []wire.Event{
			{Type: wire.CampaignPausedEvent, At: 5, ID: "p"},
			{Type: wire.CouponClaimed, At: 6, ID: "c3", N: 3, Code: "CCCC-CCCC-CCCC", CustomerID: "carol"}}},
		{"sold out with 2 of 3", []wire.Event{{Type: wire.CampaignSoldOut, At: 5}}},
		{"was never imported", []wire.Event{
			{Type: wire.CampaignCreated, Campaign: "i", At: 5, ID: "i", Number: 8, Settings: wire.Settings{MaxRedemptions: 1}},
			{Type: wire.CouponClaimed, Campaign: "i", At: 5, ID: "c", N: 1, Code: "FORGED", CustomerID: "carol"}}},
		{"is imported twice", []wire.Event{
			{Type: wire.CodesImported, At: 5, ID: "i1", Codes: []string{"ONE", "TWO"}},
			{Type: wire.CodesImported, At: 6, ID: "i2", Codes: []string{"TWO"}}}},
		{"have the number 4", []wire.Event{{Type: wire.CampaignCreated, Campaign: "other", At: 5, ID: "o", Number: 4}}},
		{"is created twice", []wire.Event{{Type: wire.CampaignCreated, At: 5, ID: "again", Number: 5}}},
		{"never created", []wire.Event{{Type: wire.CampaignEndedEvent, Campaign: "nowhere", At: 5, ID: "end"}}},
		{"codes of s shrink", []wire.Event{{Type: wire.CampaignUpdated, At: 5, ID: "u", Settings: wire.Settings{Codes: 2, MaxRedemptions: 2}}}},
		// Promise 2: an id does one thing, once.
		{"id c1 is accepted twice", []wire.Event{{Type: wire.CouponClaimed, At: 5, ID: "c1", N: 3, Code: "CCCC-CCCC-CCCC", CustomerID: "carol"}}},
		{"id r1 is accepted twice", []wire.Event{{Type: wire.CouponRedeemed, At: 5, ID: "r1", N: 2, OrderID: "b", RedeemedCount: 1}}},
		{"id create is accepted twice", []wire.Event{{Type: wire.CampaignPausedEvent, At: 5, ID: "create"}}},
		// Promise 3: neither early nor late nor too often.
		{"is redeemed while", []wire.Event{{Type: wire.CouponRedeemed, At: 100, ID: "r2", N: 2, OrderID: "b", RedeemedCount: 1}}},
		{"is redeemed while", []wire.Event{
			{Type: wire.CouponRedeemed, At: 5, ID: "r2", N: 1, OrderID: "b", RedeemedCount: 2},
			{Type: wire.CouponRedeemed, At: 6, ID: "r3", N: 1, OrderID: "c", RedeemedCount: 3}}},
		{"is redeemed while voided", []wire.Event{
			{Type: wire.CouponVoided, At: 5, ID: "v", N: 2},
			{Type: wire.CouponRedeemed, At: 6, ID: "r2", N: 2, OrderID: "b", RedeemedCount: 1}}},
		{"is redeemed while", []wire.Event{
			{Type: wire.CampaignPausedEvent, At: 5, ID: "p"},
			{Type: wire.CouponRedeemed, At: 6, ID: "r2", N: 2, OrderID: "b", RedeemedCount: 1}}},
		{"is redeemed twice for order a", []wire.Event{{Type: wire.CouponRedeemed, At: 5, ID: "r2", N: 1, OrderID: "a", RedeemedCount: 2}}},
		{"the event has 2", []wire.Event{{Type: wire.CouponRedeemed, At: 5, ID: "r2", N: 2, OrderID: "b", RedeemedCount: 2}}},
		{"is bob's and redeemed by eve", []wire.Event{{Type: wire.CouponRedeemed, At: 5, ID: "r2", N: 2, OrderID: "b", RedeemedCount: 1, CustomerID: "eve"}}},
		{"for which it was not redeemed", []wire.Event{{Type: wire.CouponRolledBack, At: 5, ID: "b", N: 1, OrderID: "other"}}},
		{"is claimed after it, the event has redeemed", []wire.Event{{Type: wire.CouponRolledBack, At: 5, ID: "b", N: 1, OrderID: "a", Status: wire.StatusRedeemed}}},
		{"0 fired and 0 were dropped", []wire.Event{{Type: wire.RemindersDue, At: 91, Kind: expires, DueAt: 90, FromR: 1, ThroughR: 2}}},
		{"which was never claimed", []wire.Event{{Type: wire.CouponVoided, At: 5, ID: "v", N: 3}}},
		{"has the code BBBB-BBBB-BBBB, the event has AAAA-AAAA-AAAA", []wire.Event{{Type: wire.CouponVoided, At: 5, ID: "v", N: 2, Code: "AAAA-AAAA-AAAA"}}},
		{"is voided twice", []wire.Event{{Type: wire.CouponVoided, At: 5, ID: "v", N: 1}, {Type: wire.CouponVoided, At: 6, ID: "v2", N: 1}}},
		{"extended after it was voided", []wire.Event{{Type: wire.CouponVoided, At: 5, ID: "v", N: 1}, {Type: wire.CouponExtended, At: 6, ID: "x", N: 1, ExpiresAt: 200}}},
		{"extended into the past", []wire.Event{{Type: wire.CouponExtended, At: 5, ID: "x", N: 1, ExpiresAt: 5}}},
		{"coupons 3 to 5 of s follow 2, of 3", []wire.Event{{Type: wire.CouponsAllotted, At: 5, ID: "p", FromN: 3, ThroughN: 5, Batch: "b"}}},
		{"coupon 3 of s is dee's and redeemed by eve", []wire.Event{
			{Type: wire.CouponsAllotted, At: 5, ID: "p", FromN: 3, ThroughN: 3, Batch: "b"},
			{Type: wire.CouponRedeemed, At: 6, ID: "r2", N: 3, OrderID: "b", RedeemedCount: 1, CustomerID: "dee"},
			{Type: wire.CouponRedeemed, At: 7, ID: "r3", N: 3, OrderID: "c", RedeemedCount: 2, CustomerID: "eve"}}},
		{"which is after", []wire.Event{{Type: wire.CouponsExpired, At: 99, Through: 100, Count: 2}}},
		{"does not rise", []wire.Event{{Type: wire.CouponsExpired, At: 101, Through: 100, Count: 2}, {Type: wire.CouponsExpired, At: 102, Through: 100}}},
		{"2 coupons of s expired, the event has 1", []wire.Event{{Type: wire.CouponsExpired, At: 101, Through: 100, Count: 1}}},
		{"lane time ran back", []wire.Event{{Type: wire.CampaignPausedEvent, At: 3, ID: "p"}}},
		// Promise 4: a reminder fires at most once, never after a cancel.
		{"fire before they are due", []wire.Event{{Type: wire.RemindersDue, At: 89, Kind: expires, DueAt: 90, FromR: 1, ThroughR: 2, Fired: 2}}},
		{"1 reminders of s were due, the event has 2", []wire.Event{
			{Type: wire.ReminderCancelled, At: 5, ID: "u", R: 1},
			{Type: wire.RemindersDue, At: 91, Kind: expires, DueAt: 90, FromR: 1, ThroughR: 2, Fired: 2}}},
		{"0 reminders of s were due, the event has 2", []wire.Event{
			{Type: wire.RemindersDue, At: 91, Kind: expires, DueAt: 90, FromR: 1, ThroughR: 2, Fired: 2},
			{Type: wire.RemindersDue, At: 92, Kind: expires, DueAt: 90, FromR: 1, ThroughR: 2, Fired: 2}}},
		{"fires for coupon 2, which is voided", []wire.Event{
			{Type: wire.CouponVoided, At: 5, ID: "v", N: 2},
			{Type: wire.RemindersDue, At: 91, Kind: expires, DueAt: 90, FromR: 1, ThroughR: 2, Fired: 2}}},
		{"fires for coupon 1, which is redeemed", []wire.Event{
			{Type: wire.CouponRedeemed, At: 5, ID: "r2", N: 1, OrderID: "b", RedeemedCount: 2},
			{Type: wire.RemindersDue, At: 91, Kind: expires, DueAt: 90, FromR: 1, ThroughR: 2, Fired: 2}}},
		{"fires for carol, but coupon 1 is alice's", []wire.Event{
			{Type: wire.ReminderSet, At: 5, ID: "m3", R: 3, CustomerID: "carol", Kind: expires, Before: time.Second, DueAt: 99, N: 1},
			{Type: wire.RemindersDue, At: 99, Kind: expires, DueAt: 99, FromR: 3, ThroughR: 3, Fired: 1}}},
		// Re-timed: due at 190 s, as the events before have it.
		{"0 reminders of s were due, the event has 2", []wire.Event{
			{Type: wire.CampaignUpdated, At: 5, ID: "u", Settings: wire.Settings{Codes: 3, PerCustomer: 1, MaxRedemptions: 2, ExpiresAt: t0 + 200*second, OpensAt: t0 - second}},
			{Type: wire.RemindersDue, At: 91, Kind: expires, DueAt: 90, FromR: 1, ThroughR: 2, Fired: 2}}},
		{"1 reminders of s were due, the event has 2", []wire.Event{
			{Type: wire.CouponExtended, At: 5, ID: "x", N: 1, ExpiresAt: 200},
			{Type: wire.RemindersDue, At: 91, Kind: expires, DueAt: 90, FromR: 1, ThroughR: 2, Fired: 2}}},
		{"1 fired and 1 were dropped", []wire.Event{{Type: wire.RemindersDue, At: 91, Kind: expires, DueAt: 90, FromR: 1, ThroughR: 2, Fired: 1, Dropped: 1}}},
		{"but was not pending", []wire.Event{{Type: wire.ReminderCancelled, At: 5, ID: "u", R: 9}}},
		{"is set twice", []wire.Event{{Type: wire.ReminderSet, At: 5, ID: "m3", R: 1, CustomerID: "alice", Kind: expires, Before: time.Second, DueAt: 99, N: 1}}},
		{"the event has", []wire.Event{{Type: wire.ReminderSet, At: 5, ID: "m3", R: 3, CustomerID: "alice", Kind: expires, Before: time.Second, DueAt: 98, N: 1}}},
		{"reminder 4 of s follows 2", []wire.Event{{Type: wire.ReminderSet, At: 5, ID: "m3", R: 4, CustomerID: "alice", Kind: expires, Before: time.Second, DueAt: 99, N: 1}}},
		{"is equal to reminder 1, which is pending", []wire.Event{{Type: wire.ReminderSet, At: 5, ID: "m3", R: 3, CustomerID: "alice", Kind: expires, Before: 10 * time.Second, DueAt: 90, N: 1}}},
		{"which is alice's", []wire.Event{{Type: wire.ReminderSet, At: 5, ID: "m3", R: 3, CustomerID: "carol", Kind: expires, Before: time.Second, DueAt: 99, N: 1}}},
		{"which has passed", []wire.Event{{Type: wire.ReminderSet, At: 95, ID: "m3", R: 3, CustomerID: "alice", Kind: expires, Before: 20 * time.Second, DueAt: 80, N: 1}}},
		{"by their events 2 set, 3 fired", []wire.Event{{Type: wire.RemindersDue, At: 91, Kind: expires, DueAt: 90, FromR: 1, ThroughR: 2, Fired: 3}}},
	} {
		events := story()
		for _, ev := range c.then {
			if ev.Campaign == "" {
				ev.Campaign = "s"
			}
			events = append(events, ev)
		}
		f := foldEvents(events...)
		f.CheckTallies()
		if len(f.Violations) == 0 || !strings.Contains(strings.Join(f.Violations, "\n"), c.want) {
			t.Errorf("%+v: found %q, want %q", c.then, f.Violations, c.want)
		}
	}
}
