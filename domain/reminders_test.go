package domain

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// remindersLane is a lane with many pending reminders: of an opening and of coupons with and without expiries of their own.
func remindersLane(t testing.TB, customers int) *Lane {
	t.Helper()
	l := testLane()
	s := DefaultSettings(uint32(customers))
	s.ExpiresAt = start + 30*day
	create := Command{Type: CreateCampaign, ID: "c", Campaign: "c", Patch: PatchOf(s)}
	decided(t, l, create, start, StatusCreated)
	s.OpensAt, s.ExpiresAt = start+day, 0
	decided(t, l, Command{Type: CreateCampaign, ID: "o", Campaign: "o", Patch: PatchOf(s)}, start, StatusCreated)
	for i := range customers {
		out := decided(t, l, Command{Type: Claim, ID: fmt.Sprint("c", i), Campaign: "c", CustomerID: fmt.Sprint("customer", i)}, start, StatusClaimed)
		if i%3 == 0 {
			at := start + Instant(2+i%7)*day + Instant(i%2)
			decided(t, l, Command{Type: Extend, ID: fmt.Sprint("e", i), Code: out.Code, ExpiresAt: at}, start, StatusExtended)
		}
		decided(t, l, remindOf(i, "c", KindExpires, time.Hour), start, StatusReminderSet)
		decided(t, l, remindOf(i, "o", KindOpens, time.Duration(i%5)*time.Minute), start, StatusReminderSet)
	}
	return l
}

func remindOf(customer int, campaign, kind string, before time.Duration) Command {
	return Command{Type: Remind, ID: fmt.Sprint(campaign, kind, before, customer), Campaign: campaign, CustomerID: fmt.Sprint("customer", customer), Kind: kind, Before: before}
}

func decided(t testing.TB, l *Lane, cmd Command, at Instant, status string) Outcome {
	t.Helper()
	_, out := l.Decide(&cmd, at, nil)
	if out.Status != status {
		t.Fatalf("%s by %s is answered %s", cmd.Type, cmd.CustomerID, outcomeText(out))
	}
	return out
}

// TestManyRemindersAreFoundAgain: where there are too many to look through, and after a snapshot, a customer's reminder is
// still the one that was set, and nobody else's.
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
				again := remindOf(i, "c", KindExpires, time.Hour)
				again.ID += "again"
				if out := decided(t, l, again, start, StatusReminderSet); !out.Repeat || out.N != uint32(i+1) {
					t.Fatalf("customer %d subscribes again: %s", i, outcomeText(out))
				}
				for lead := range 5 {
					un := remindOf(i, "o", KindOpens, time.Duration(lead)*time.Minute)
					un.Type, un.ID = Unremind, un.ID+"un"
					if i%2 == 0 {
						if out := decided(t, l, un, start, StatusReminderCancelled); out.Repeat != (lead != i%5) {
							t.Fatalf("customer %d cancels %d minutes: %s", i, lead, outcomeText(out))
						}
					}
				}
			}
			for lead := range 5 {
				due := Command{Type: RemindDue, Campaign: "o", Kind: KindOpens, DueAt: start + day - Instant(lead)*minute, ThroughR: MaxReminder}
				if out := decided(t, l, due, start+day, StatusReminderSet); out.Count != customers/10 {
					t.Fatalf("%d fire %d minutes before, want %d", out.Count, lead, customers/10)
				}
			}
			fired := uint64(0)
			c := l.campaigns["c"].reminders()
			for next := c.Next(l.campaigns["c"].anchors()); next != Never; next = l.campaigns["c"].reminders().Next(l.campaigns["c"].anchors()) {
				part := l.campaigns["c"].reminders().Chunk(KindExpires, next, 0, 70, l.campaigns["c"].anchors())
				due := Command{Type: RemindDue, Campaign: "c", Kind: KindExpires, DueAt: next, ThroughR: part.LastR}
				out := decided(t, l, due, next, StatusReminderSet)
				if out.Count != part.Subscriptions || out.Count == 0 {
					t.Fatalf("%d fire, asked for %d", out.Count, part.Subscriptions)
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
	c, o := l.campaigns["c"].rare, l.campaigns["o"].rare
	c.reminders, o.reminders = Subscriptions{}, Subscriptions{}
	if each := float64(with-len(snapshot(t, l))) / (2 * customers); each > 4 {
		t.Errorf("%.1f bytes each, want at most 4", each)
	}
}

func TestGraceMayChange(t *testing.T) {
	for _, tc := range []struct {
		grace  time.Duration
		late   Instant
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
		due := Command{Type: RemindDue, Campaign: "o", Kind: KindOpens, DueAt: start + day, ThroughR: 99}
		evs, _ := l.Decide(&due, start+day+tc.late, nil)
		if evs[0].Fired+evs[0].Dropped != 2 || (evs[0].Dropped > 0) != tc.behind {
			t.Errorf("grace %s, %d µs late: %d fired, %d dropped", tc.grace, tc.late, evs[0].Fired, evs[0].Dropped)
		}
	}
}

// TestReminderNumbersEnd: numbers have 32 bits; whoever asks for one more is told so, and a log that has one is not folded.
func TestReminderNumbersEnd(t *testing.T) {
	l := remindersLane(t, 1)
	c := l.campaigns["o"]
	c.lastReminder = MaxReminder - 1
	decided(t, l, remindOf(7, "o", KindOpens, 0), start, StatusReminderSet)
	_, out := l.Decide(&Command{Type: Remind, ID: "x", Campaign: "o", CustomerID: "x", Kind: KindOpens}, start, nil)
	if out.Refusal != LimitReached || !strings.Contains(out.Message, "4294967294 reminders") {
		t.Errorf("one more is answered %s", outcomeText(out))
	}
	for _, r := range []uint64{0, MaxReminder + 1} {
		before := c.acts.len()
		err := l.Apply(&Event{Type: ReminderSet, ID: "y", Campaign: "o", R: r, CustomerID: "y", Kind: KindOpens})
		if err == nil || c.acts.len() != before {
			t.Errorf("reminder %d: %v", r, err)
		}
	}
}
