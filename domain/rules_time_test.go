package domain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

func TestExpire(t *testing.T) {
	stories(t, map[string]string{
		"never ahead of the lane's time": `
			0   create_campaign codes=9 expires_at=+1h
			0   claim customer_id=a
			59m expire through=+2h                            => expired events=expired
			59m redeem code=$1 order_id=o                     => redeemed
			1h  expire through=+2h                            => expired`,
	})
}

func TestReminders(t *testing.T) {
	stories(t, map[string]string{
		"before claims open": `
			0   remind customer_id=ann kind=opens before=1m                 => campaign_not_found
			0   create_campaign codes=9 opens_at=+10m
			0   remind customer_id=ann kind=opens before=1m id=r            => reminder_set due_at=+9m events=set
			0   remind customer_id=ann kind=opens before=1m id=r            => reminder_set due_at=+9m repeat
			0   remind customer_id=ann kind=opens before=1m                 => reminder_set due_at=+9m repeat
			0   remind customer_id=ann kind=opens before=2m id=r            => idempotency_key_reused
			0   remind customer_id=bob kind=opens before=1m id=r            => idempotency_key_reused
			0   claim customer_id=ann id=r                                  => idempotency_key_reused
			0   remind customer_id=bob kind=opens before=1m                 => reminder_set
			1m  remind_due kind=opens due_at=+9m through_r=9                => reminder_set repeat
			9m  remind_due kind=opens due_at=+9m through_r=1                => reminder_set count=1 events=due
			9m  remind_due kind=opens due_at=+9m through_r=1                => reminder_set repeat
			9m  unremind customer_id=ann kind=opens before=1m               => too_late
			9m  unremind customer_id=bob kind=opens before=1m               => reminder_cancelled events=cancelled
			9m  remind_due kind=opens due_at=+9m through_r=2                => reminder_set repeat
			9m  remind customer_id=cy kind=opens before=1m                  => too_late
			9m  remind customer_id=ann kind=opens before=1m id=r            => outdated`,
		"as many as the campaign may have": `
			0   create_campaign codes=9 opens_at=+10m reminders=2
			0   remind customer_id=ann kind=opens before=1m id=r            => reminder_set
			0   remind customer_id=bob kind=opens before=1m                 => reminder_set
			0   remind customer_id=cy kind=opens before=1m                  => limit_reached message=raise
			0   remind customer_id=ann kind=opens before=1m id=r            => reminder_set repeat
			0   remind customer_id=bob kind=opens before=1m                 => reminder_set repeat
			0   unremind customer_id=bob kind=opens before=1m               => reminder_cancelled
			0   remind customer_id=cy kind=opens before=1m                  => reminder_set
			1m  update_campaign reminders=1
			1m  remind customer_id=dan kind=opens before=1m                 => limit_reached
			1m  update_campaign reminders=null
			1m  remind customer_id=dan kind=opens before=1m                 => reminder_set`,
		"a rolled back redemption sets its reminders again": `
			0   create_campaign codes=9 expires_at=+48h
			0   claim customer_id=ann
			0   remind customer_id=ann kind=expires before=1h id=first
			0   remind customer_id=ann kind=expires before=40h
			1m  redeem code=$1 order_id=o1                                  => redeemed events=redeemed,cancelled,cancelled
			2m  rollback code=$1 order_id=o1                                => rolled_back events=rolled_back,set,set
			2m  rollback code=$1 order_id=o1                                => rolled_back repeat
			3m  remind customer_id=ann kind=expires before=1h id=first      => reminder_set repeat
			3m  remind customer_id=ann kind=expires before=40h              => reminder_set repeat
			4m  redeem code=$1 order_id=o2                                  => redeemed events=redeemed,cancelled,cancelled
			9h  rollback code=$1 order_id=o2                                => rolled_back events=rolled_back,set
			47h remind_due kind=expires due_at=+47h through_r=9             => reminder_set count=1`,
		"not wanted any more while the coupon never expires": `
			0   create_campaign codes=9 expires_at=+48h
			0   claim customer_id=ann
			0   remind customer_id=ann kind=expires before=1h
			0   update_campaign expires_at=null valid_for=1h
			0   redeem code=$1 order_id=o1                                  => redeemed events=redeemed,cancelled
			1m  unremind customer_id=ann kind=expires before=1h             => reminder_cancelled events=set,cancelled
			1m  unremind customer_id=ann kind=expires before=1h             => reminder_cancelled repeat
			2m  update_campaign expires_at=+48h valid_for=null
			3m  rollback code=$1 order_id=o1                                => rolled_back events=rolled_back
			47h remind_due kind=expires due_at=+47h through_r=9             => reminder_set repeat`,
		"at most eight of an opening for a customer": `
			0 create_campaign codes=9 opens_at=+48h
			0 remind customer_id=ann kind=opens before=1h
			0 remind customer_id=ann kind=opens before=2h
			0 remind customer_id=ann kind=opens before=3h
			0 remind customer_id=ann kind=opens before=4h
			0 remind customer_id=ann kind=opens before=5h
			0 remind customer_id=ann kind=opens before=6h
			0 remind customer_id=ann kind=opens before=7h
			0 remind customer_id=ann kind=opens before=8h
			0 remind customer_id=ann kind=opens before=8h                   => reminder_set repeat
			0 remind customer_id=ann kind=opens before=9h                   => limit_reached
			0 remind customer_id=bob kind=opens before=9h                   => reminder_set
			0 unremind customer_id=ann kind=opens before=2h
			0 remind customer_id=ann kind=opens before=9h                   => reminder_set
			0 remind customer_id=ann kind=opens before=2h                   => limit_reached`,
		"at most three on a coupon": `
			0 create_campaign codes=9 expires_at=+48h
			0 claim customer_id=ann
			0 remind customer_id=ann kind=expires before=1h
			0 remind customer_id=ann kind=expires before=2h
			0 remind customer_id=ann kind=expires before=3h
			0 remind customer_id=ann kind=expires before=4h                 => limit_reached
			0 unremind customer_id=ann kind=expires before=2h
			0 remind customer_id=ann kind=expires before=4h                 => reminder_set`,
		"exactly at the instant, before=0s": `
			0   create_campaign codes=9 opens_at=+10m
			0   remind customer_id=ann kind=opens before=0s                 => reminder_set due_at=+10m
			10m remind_due kind=opens due_at=+10m through_r=1               => reminder_set count=1`,
	})
}

// dueOf runs a story that ends in one remind_due and returns what it fired and dropped.
func dueOf(t *testing.T, story string) (fired, dropped uint64) {
	s := newScript(t)
	s.run(story)
	for line := range strings.Lines(string(s.step.Events)) {
		var ev wire.Event
		if err := wire.ParseEvent([]byte(line), &ev); err != nil {
			t.Fatal(err)
		}
		if ev.Type == wire.RemindersDue {
			fired, dropped = fired+ev.Fired, dropped+ev.Dropped
			if ev.FromR != 1 || ev.ThroughR != 2 {
				t.Fatalf("from %d through %d", ev.FromR, ev.ThroughR)
			}
		}
	}
	return fired, dropped
}

func TestRemindersAreDroppedOnceTheyAreOfNoUse(t *testing.T) {
	const opening = `
		0   create_campaign codes=9 opens_at=+24h
		0   remind customer_id=ann kind=opens before=12h
		0   remind customer_id=bob kind=opens before=12h
		`
	const soon = `
		0   create_campaign codes=9 opens_at=+10m
		0   remind customer_id=ann kind=opens before=1m
		0   remind customer_id=bob kind=opens before=1m
		`
	const coupons = `
		0   create_campaign codes=9 expires_at=+24h
		0   claim customer_id=ann
		0   claim customer_id=bob
		0   remind customer_id=ann kind=expires before=12h
		0   remind customer_id=bob kind=expires before=12h
		`
	const due = " remind_due kind=opens due_at=+12h through_r=9 => reminder_set count=2"
	const dueSoon = " remind_due kind=opens due_at=+9m through_r=9 => reminder_set count=2"
	const dueExpires = " remind_due kind=expires due_at=+12h through_r=9 => reminder_set count=2"
	for _, tc := range []struct {
		name, given, then string
		dropped           bool
	}{
		{"the lane was away, the opening is to come", opening, "23h59m59s" + due, false},
		{"the lane was away, the opening has passed", opening, "24h" + due, true},
		{"the lane was away, the coupons are to expire", coupons, "23h59m59s" + dueExpires, false},
		{"the lane was away, the coupons have expired", coupons, "24h" + dueExpires, true},
		{"the opening is moved to sooner", opening, "0 update_campaign opens_at=+13h\n10h remind_due kind=opens due_at=+1h through_r=9 => reminder_set count=2", false},
		{"at the campaign's late_after", opening, "0 update_campaign late_after=2m\n12h2m" + due, false},
		{"later than the campaign's late_after", opening, "0 update_campaign late_after=2m\n12h2m0.000001s" + due, true},
		{"late_after taken back", opening, "0 update_campaign late_after=2m\n0 update_campaign late_after=null\n13h" + due, false},
		{"late_after keeps nothing that has passed", opening, "0 update_campaign late_after=8000h\n24h" + due, true},
		{"waiting for the rate is not lateness", opening, "40h remind_due kind=opens due_at=+12h ready_at=+12h1s through_r=9 => reminder_set count=2", false},
		{"waiting for the rate is not later than late_after", opening, "0 update_campaign late_after=2m\n13h remind_due kind=opens due_at=+12h ready_at=+12h1m through_r=9", false},
		{"it was of no use before it waited", opening, "40h remind_due kind=opens due_at=+12h ready_at=+24h through_r=9", true},
		{"ready ahead of the lane's time", opening, "24h remind_due kind=opens due_at=+12h ready_at=+90h through_r=9", true},
		{"at the grace", soon, "14m" + dueSoon, false},
		{"after the grace", soon, "14m0.000001s" + dueSoon, true},
		{"after the end", soon, "0 end_campaign\n9m" + dueSoon, true},
		{"while paused", soon, "0 pause_campaign\n9m" + dueSoon, false},
		{"ready before it was due", opening, "40h remind_due kind=opens due_at=+12h ready_at=+1h through_r=9", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fired, dropped := dueOf(t, tc.given+tc.then)
			if fired+dropped != 2 || (dropped == 2) != tc.dropped {
				t.Fatalf("fired %d, dropped %d; want them dropped: %v", fired, dropped, tc.dropped)
			}
		})
	}
}

// TestOnlyThoseWhoseCouponHasExpiredAreDropped: reminders that fall due at one instant may announce different ones.
func TestOnlyThoseWhoseCouponHasExpiredAreDropped(t *testing.T) {
	s := newScript(t)
	s.run(`
		0   create_campaign codes=9 per_customer=0
		0   claim customer_id=ann
		0   claim customer_id=bob
		0   claim customer_id=cy
		0   extend code=$1 expires_at=+13h
		0   extend code=$2 expires_at=+24h
		0   extend code=$3 expires_at=+13h
		0   remind customer_id=ann kind=expires before=1h
		0   remind customer_id=bob kind=expires before=12h
		0   remind customer_id=cy kind=expires before=1h
		14h remind_due kind=expires due_at=+12h through_r=9 => reminder_set count=3 events=due,due
		14h remind_due kind=expires due_at=+12h through_r=9 => reminder_set repeat`)
	var got []string
	folded := testLane()
	for line := range strings.Lines(string(s.step.Events)) {
		var ev wire.Event
		if err := wire.ParseEvent([]byte(line), &ev); err != nil {
			t.Fatal(err)
		}
		if err := folded.Apply(&ev); err != nil {
			t.Fatal(err)
		}
		if ev.Type == wire.RemindersDue {
			got = append(got, fmt.Sprintf("%d-%d: fired %d, dropped %d, passed %s", ev.FromR, ev.ThroughR, ev.Fired, ev.Dropped, ev.Passed))
		}
	}
	want := []string{"1-3: fired 0, dropped 2, passed " + (start + 14*hour).String(), "2-2: fired 1, dropped 0, passed " + wire.Instant(0).String()}
	if !slices.Equal(got, want) || folded.reminders != 0 {
		t.Fatalf("got %q, %d left; want %q", got, folded.reminders, want)
	}
}
