package domain

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// remindersLane is a lane with many pending reminders: of an opening and of coupons with and without expiries of their own.
func remindersLane(t testing.TB, customers int) *Lane {
	t.Helper()
	l := testLane()
	s := wire.DefaultSettings(uint32(customers))
	s.ExpiresAt = start + 30*day
	create := wire.Command{Type: wire.CreateCampaign, ID: "c", Campaign: "c", Patch: wire.PatchOf(s)}
	decided(t, l, create, start, wire.StatusCreated)
	s.OpensAt, s.ExpiresAt = start+day, 0
	decided(t, l, wire.Command{Type: wire.CreateCampaign, ID: "o", Campaign: "o", Patch: wire.PatchOf(s)}, start, wire.StatusCreated)
	for i := range customers {
		out := decided(t, l, wire.Command{Type: wire.Claim, ID: fmt.Sprint("c", i), Campaign: "c", CustomerID: fmt.Sprint("customer", i)}, start, wire.StatusClaimed)
		if i%3 == 0 {
			at := start + wire.Instant(2+i%7)*day + wire.Instant(i%2)
			decided(t, l, wire.Command{Type: wire.Extend, ID: fmt.Sprint("e", i), Code: out.Code, ExpiresAt: at}, start, wire.StatusExtended)
		}
		decided(t, l, remindOf(i, "c", wire.KindExpires, time.Hour), start, wire.StatusReminderSet)
		decided(t, l, remindOf(i, "o", wire.KindOpens, time.Duration(i%5)*time.Minute), start, wire.StatusReminderSet)
	}
	return l
}

func remindOf(customer int, campaign, kind string, before time.Duration) wire.Command {
	return wire.Command{Type: wire.Remind, ID: fmt.Sprint(campaign, kind, before, customer), Campaign: campaign, CustomerID: fmt.Sprint("customer", customer), Kind: kind, Before: before}
}

func decided(t testing.TB, l *Lane, cmd wire.Command, at wire.Instant, status string) wire.Outcome {
	t.Helper()
	_, out := l.Decide(&cmd, at, nil)
	if out.Status != status {
		t.Fatalf("%s by %s is answered %s", cmd.Type, cmd.CustomerID, outcomeText(out))
	}
	return out
}

// TestManyRemindersAreFoundAgain: where there are too many to look through, and after a snapshot, a customer's reminder is
// still the one that was set, and no other customer's.
func TestManyRemindersAreFoundAgain(t *testing.T) {
	const customers = 1000
	l := remindersLane(t, customers)
	raw := snapshot(t, l)
	read := readLane(t, raw)
	if !bytes.Equal(snapshot(t, read), raw) {
		t.Fatal("the snapshot of what was read has other bytes")
	}
	for name, l := range map[string]*Lane{"as it was": l, "read": read} {
		t.Run(name, func(t *testing.T) {
			frozen := l.Freeze()
			done := make(chan []byte)
			go func() {
				var buf bytes.Buffer
				if _, err := frozen.WriteTo(&buf); err != nil {
					t.Error(err)
				}
				done <- buf.Bytes()
			}()
			for i := range customers {
				again := remindOf(i, "c", wire.KindExpires, time.Hour)
				again.ID += "again"
				if out := decided(t, l, again, start, wire.StatusReminderSet); !out.Repeat || out.N != uint32(i+1) {
					t.Fatalf("customer %d subscribes again: %s", i, outcomeText(out))
				}
				for lead := range 5 {
					un := remindOf(i, "o", wire.KindOpens, time.Duration(lead)*time.Minute)
					un.Type, un.ID = wire.Unremind, un.ID+"un"
					if i%2 == 0 {
						if out := decided(t, l, un, start, wire.StatusReminderCancelled); out.Repeat != (lead != i%5) {
							t.Fatalf("customer %d cancels %d minutes: %s", i, lead, outcomeText(out))
						}
					}
				}
			}
			for lead := range 5 {
				due := wire.Command{Type: wire.RemindDue, Campaign: "o", Kind: wire.KindOpens, DueAt: start + day - wire.Instant(lead)*minute, ThroughR: reminder.MaxReminder}
				if out := decided(t, l, due, start+day, wire.StatusReminderSet); out.Count != customers/10 {
					t.Fatalf("%d fire %d minutes before, want %d", out.Count, lead, customers/10)
				}
			}
			fired := uint64(0)
			c := l.campaigns["c"].reminders()
			for next := c.Next(l.campaigns["c"].anchors()); next != wire.Never; next = l.campaigns["c"].reminders().Next(l.campaigns["c"].anchors()) {
				part := l.campaigns["c"].reminders().Chunk(wire.KindExpires, next, 0, 70, l.campaigns["c"].anchors())
				due := wire.Command{Type: wire.RemindDue, Campaign: "c", Kind: wire.KindExpires, DueAt: next, ThroughR: part.LastR}
				out := decided(t, l, due, next, wire.StatusReminderSet)
				if out.Count != part.Subscriptions || out.Count == 0 {
					t.Fatalf("%d fire, requested %d", out.Count, part.Subscriptions)
				}
				fired += out.Count
			}
			if fired != customers || l.reminders != 0 {
				t.Fatalf("%d coupons' reminders fire, %d are left in the lane", fired, l.reminders)
			}
			if !bytes.Equal(<-done, raw) {
				t.Fatal("the snapshot is not the lane at the moment of Freeze")
			}
		})
	}
}

func TestSnapshotsOfRemindersAreSmall(t *testing.T) {
	const customers = 2000
	l := remindersLane(t, customers)
	with := len(snapshot(t, l))
	c, o := l.campaigns["c"].sparse, l.campaigns["o"].sparse
	c.reminders, o.reminders = reminder.Subscriptions{}, reminder.Subscriptions{}
	if each := float64(with-len(snapshot(t, l))) / (2 * customers); each > 4 {
		t.Errorf("%.1f bytes each, want at most 4", each)
	}
}

func TestGraceMayChange(t *testing.T) {
	for _, tc := range []struct {
		grace  time.Duration
		late   wire.Instant
		behind bool
	}{
		{0, 5 * minute, false},
		{0, 5*minute + 1, true},
		{time.Second, second, false},
		{time.Second, second + 1, true},
		{-time.Second, 5 * minute, false},
		{time.Hour, hour, false},
	} {
		l := remindersLane(t, 10)
		l.SetGrace(7 * time.Minute)
		l.SetGrace(tc.grace)
		due := wire.Command{Type: wire.RemindDue, Campaign: "o", Kind: wire.KindOpens, DueAt: start + day, ThroughR: 99}
		evs, _ := l.Decide(&due, start+day+tc.late, nil)
		if evs[0].Fired+evs[0].Dropped != 2 || (evs[0].Dropped > 0) != tc.behind {
			t.Errorf("grace %s, %d µs late: %d fired, %d dropped", tc.grace, tc.late, evs[0].Fired, evs[0].Dropped)
		}
	}
}

// TestInventedCustomersFillNoLane: reminders of an opening need no coupon, so a producer can set them for customers that do not
// exist. How many it can is bounded by the campaign's size; more codes, also imported ones, allow more.
func TestInventedCustomersFillNoLane(t *testing.T) {
	for _, tt := range []struct{ codes, imported, most int }{
		{1, 0, wire.MinPending}, {4000, 0, 12000}, {0, 3400, 10200}, {0, 1, wire.MinPending},
	} {
		l := testLane()
		s := wire.DefaultSettings(uint32(tt.codes))
		s.OpensAt = start + day
		decided(t, l, wire.Command{Type: wire.CreateCampaign, ID: "o", Campaign: "o", Patch: wire.PatchOf(s)}, start, wire.StatusCreated)
		var codes []string
		for i := range tt.imported {
			codes = append(codes, fmt.Sprint("IMPORTED-", 1000+i))
		}
		if tt.imported > 0 {
			decided(t, l, wire.Command{Type: wire.ImportCodes, ID: "i", Campaign: "o", Codes: codes}, start, wire.StatusImported)
		}
		for i := range tt.most {
			decided(t, l, remindOf(i, "o", wire.KindOpens, 0), start, wire.StatusReminderSet)
		}
		more := remindOf(tt.most, "o", wire.KindOpens, 0)
		if _, out := l.Decide(&more, start, nil); out.Refusal != wire.LimitReached || !strings.Contains(out.Message, fmt.Sprint(tt.most, " pending")) {
			t.Errorf("one more than %d: %s", tt.most, outcomeText(out))
		}
		p := wire.Patch{Settings: wire.Settings{Reminders: wire.MaxPending}}
		p.Set("reminders")
		decided(t, l, wire.Command{Type: wire.UpdateCampaign, ID: "u", Campaign: "o", Patch: p}, start, wire.StatusUpdated)
		decided(t, l, more, start, wire.StatusReminderSet)
	}
	for codes, most := range map[uint32]uint32{0: wire.MinPending, 3334: 10002, wire.MaxCodes: wire.MaxPending} {
		if got := (&wire.Settings{}).MostReminders(codes); got != most {
			t.Errorf("a campaign of %d codes may have %d reminders, want %d", codes, got, most)
		}
	}
}

// TestReminderNumbersEnd: numbers have 32 bits; a request for one more is refused, and a log that has one is not folded.
func TestReminderNumbersEnd(t *testing.T) {
	l := remindersLane(t, 1)
	c := l.campaigns["o"]
	c.lastReminder = reminder.MaxReminder - 1
	decided(t, l, remindOf(7, "o", wire.KindOpens, 0), start, wire.StatusReminderSet)
	_, out := l.Decide(&wire.Command{Type: wire.Remind, ID: "x", Campaign: "o", CustomerID: "x", Kind: wire.KindOpens}, start, nil)
	if out.Refusal != wire.LimitReached || !strings.Contains(out.Message, "4294967294 reminders") {
		t.Errorf("one more is answered %s", outcomeText(out))
	}
	for _, r := range []uint64{0, reminder.MaxReminder + 1} {
		before := c.acts.Len()
		err := l.Apply(&wire.Event{Type: wire.ReminderSet, ID: "y", Campaign: "o", R: r, CustomerID: "y", Kind: wire.KindOpens})
		if err == nil || c.acts.Len() != before {
			t.Errorf("reminder %d: %v", r, err)
		}
	}
}
