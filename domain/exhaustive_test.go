package domain

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/oracle"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/domain/worldtest"
)

// A new command or event is a row of package wire. These tests fail until the lane has a rule for it.

// laneWithCoupon has the campaign s with one claimed coupon.
func laneWithCoupon(t *testing.T) *Lane {
	l := testLane()
	for _, cmd := range []wire.Command{
		{Type: wire.CreateCampaign, ID: "create", Campaign: "s", Patch: wire.PatchOf(wire.DefaultSettings(5))},
		{Type: wire.Claim, ID: "claim", Campaign: "s", CustomerID: "ann"},
	} {
		if _, out := l.Decide(&cmd, start, nil); out.Refused() {
			t.Fatalf("%s: %s", cmd.Type, out.Message)
		}
	}
	return l
}

func TestEveryCommandIsDecided(t *testing.T) {
	for c := range wire.Commands() {
		l := laneWithCoupon(t)
		_, out := l.Decide(&wire.Command{Type: c, ID: "id", Campaign: "s", CustomerID: "ann", Count: 1, Batch: "b"}, start, nil)
		if out.Message == unknownCommand {
			t.Errorf("no rule decides %s", c)
		}
	}
	if _, out := laneWithCoupon(t).Decide(&wire.Command{Campaign: "s"}, start, nil); out.Message != unknownCommand {
		t.Errorf("what is no command is answered %+v", out)
	}
}

func TestEveryEventIsApplied(t *testing.T) {
	for e := range wire.Events() {
		if err := laneWithCoupon(t).Apply(&wire.Event{Type: e, Campaign: "s", N: 1}); errors.Is(err, errNotApplied) {
			t.Errorf("no rule applies %s", e)
		}
	}
	for _, e := range []wire.EventType{wire.NoEvent, wire.ReminderDue} {
		l := laneWithCoupon(t)
		before := snapshot(t, l)
		if err := l.Apply(&wire.Event{Type: e, Campaign: "s", N: 1}); !errors.Is(err, errNotApplied) {
			t.Errorf("%q is applied: %v", e, err)
		}
		if string(snapshot(t, l)) != string(before) {
			t.Errorf("%q changes the lane", e)
		}
	}
}

// decide lets a lane decide a random command, one of the scheduler's about what is due now, and learns its events.
func (w *world) decide(l *Lane) (cmd wire.Command, evs []wire.Event, out wire.Outcome) {
	cmd = w.Command()
	if cmd.Type == wire.RemindDue || cmd.Type == wire.Expire {
		w.dueNow(l, &cmd)
	}
	evs, out = l.Decide(&cmd, w.Now, nil)
	w.Learn(evs)
	return cmd, evs, out
}

// TestTheTableIsWhatTheLaneDoes: an accepted command is answered with the status of its row, and makes at most one event
// that accepts it; its other events accept nothing. The scheduler's remind_due may make two.
func TestTheTableIsWhatTheLaneDoes(t *testing.T) {
	done := map[wire.CommandType]bool{}
	for seed := range uint64(20) {
		w, l := newWorld(worldtest.Random(seed)), testLane()
		for range 400 {
			cmd, evs, out := w.decide(l)
			if out.Refused() {
				if len(evs) != 0 {
					t.Fatalf("%s is refused and makes %s", cmd.Type, eventTexts(evs))
				}
				continue
			}
			done[cmd.Type] = true
			if out.Status != cmd.Type.Spec().Status {
				t.Fatalf("%s is answered %s, its row has %s", cmd.Type, out.Status, cmd.Type.Spec().Status)
			}
			accepting := 0
			for i := range evs {
				if e := &evs[i]; e.Type == wire.ReminderCancelled && e.Accepts() == wire.NoCommand && !cmd.Type.Spec().Cancels {
					t.Fatalf("%s cancels reminders of a coupon, which its row lacks: %s", cmd.Type, eventTexts(evs))
				}
				switch evs[i].Accepts() {
				case cmd.Type:
					accepting++
				case wire.NoCommand:
				default:
					t.Fatalf("%s makes an event that accepts %s: %s", cmd.Type, evs[i].Accepts(), eventTexts(evs))
				}
			}
			if want := min(len(evs), 1); accepting != want && (cmd.Type != wire.RemindDue || accepting > 2) {
				t.Fatalf("%s makes %d events that accept it: %s", cmd.Type, accepting, eventTexts(evs))
			}
		}
	}
	for c := range wire.Commands() {
		if !done[c] {
			t.Errorf("%s was never done", c)
		}
	}
}

// TestWhatChangesTheDueHasDue: the scheduler does not parse the events whose rows lack Due, so by none of them may an instant come,
// go or move at which something is due. Events are those of random histories, what is due is the oracle's.
func TestWhatChangesTheDueHasDue(t *testing.T) {
	changed := map[wire.EventType]bool{}
	for seed := range uint64(20) {
		w, l, f := newWorld(worldtest.Random(seed)), testLane(), oracle.New()
		for range 400 {
			_, evs, _ := w.decide(l)
			for i := range evs {
				e := &evs[i]
				before := due(f.Campaigns[e.Campaign])
				f.Apply(fmt.Sprint("seed ", seed), e)
				if slices.Equal(before, due(f.Campaigns[e.Campaign])) {
					continue
				}
				changed[e.Type] = true
				if line := e.AppendJSON(nil); !wire.MayChangeDue(line) {
					t.Fatalf("%s changes what is due, and the scheduler passes over it: its row in wire needs Due: true\n%s", e.Type, line)
				}
			}
		}
		if len(f.Violations) > 0 {
			t.Fatal(f.Violations[0])
		}
	}
	for e := range wire.Events() {
		if e.Spec().Due && !changed[e] {
			t.Errorf("%s has Due in its row, and changed nothing that is due", e)
		}
	}
}

// due is what a campaign has to do by itself: the instants at which coupons expire, those of redeemed and voided ones too, and the
// pending reminders.
func due(c *oracle.Campaign) (all []string) {
	if c == nil {
		return nil
	}
	expiries := []wire.Instant{c.Settings.Expires()}
	for _, k := range c.Coupons {
		expiries = append(expiries, c.Expires(k))
	}
	slices.Sort(expiries)
	for _, at := range slices.Compact(expiries) {
		if at > c.Through && at != wire.Never {
			all = append(all, "expire "+at.String())
		}
	}
	for i, r := range c.Reminders {
		if r.State == oracle.Pending {
			all = append(all, fmt.Sprintf("reminder %d %s", i+1, r.Due))
		}
	}
	return all
}
