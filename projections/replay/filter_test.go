package replay

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Each filter lets pass what a naive one lets pass, in the order of the log, whatever the size of batches.
func TestFilters(t *testing.T) {
	r := newRig(t)
	r.work()
	middle := wire.At(startTime.Add(12 * time.Second))
	at := func(e map[string]any) wire.Instant {
		i, err := wire.ParseInstant(e["at"].(string))
		streamtest.Must(t, err)
		return i
	}
	for name, c := range map[string]struct {
		filter Filter
		keep   func(p Position, e map[string]any) bool
	}{
		"all":      {Filter{}, func(Position, map[string]any) bool { return true }},
		"campaign": {Filter{Campaigns: []string{campaigns[1]}}, func(_ Position, e map[string]any) bool { return e["campaign"] == campaigns[1] }},
		"two campaigns": {Filter{Campaigns: campaigns[:]}, func(_ Position, e map[string]any) bool {
			return e["campaign"] == campaigns[0] || e["campaign"] == campaigns[1]
		}},
		"types": {Filter{Types: []wire.EventType{wire.CouponClaimed, wire.CommandRejected}}, func(_ Position, e map[string]any) bool {
			return e["type"] == "coupon.claimed" || e["type"] == "command.rejected"
		}},
		"since": {Filter{Since: middle}, func(_ Position, e map[string]any) bool { return at(e) >= middle }},
		"until": {Filter{Until: middle}, func(_ Position, e map[string]any) bool { return at(e) < middle }},
		"lane":  {Filter{Lanes: []int{1}}, func(p Position, _ map[string]any) bool { return p.Lane == 1 }},
		"from":  {Filter{From: map[int]uint64{0: 3}}, func(p Position, _ map[string]any) bool { return p.Lane == 0 && p.Sequence >= 3 }},
		"from and to": {Filter{From: map[int]uint64{0: 3}, To: map[int]uint64{0: 4}}, func(p Position, _ map[string]any) bool {
			return p.Lane == 0 && p.Sequence >= 3 && p.Sequence <= 4
		}},
		"from one, to another": {Filter{From: map[int]uint64{0: 3}, To: map[int]uint64{1: 2}}, func(p Position, _ map[string]any) bool {
			return p.Lane == 0 && p.Sequence >= 3 || p.Lane == 1 && p.Sequence <= 2
		}},
		"from, and another lane whole": {Filter{From: map[int]uint64{0: 3}, Lanes: []int{0, 1}}, func(p Position, _ map[string]any) bool {
			return p.Lane == 1 || p.Sequence >= 3
		}},
		"to": {Filter{To: map[int]uint64{0: 3, 1: 2}}, func(p Position, _ map[string]any) bool {
			return p.Lane == 0 && p.Sequence <= 3 || p.Lane == 1 && p.Sequence <= 2
		}},
		"nothing":       {Filter{Campaigns: []string{"unknown"}}, func(Position, map[string]any) bool { return false }},
		"after the end": {Filter{From: map[int]uint64{0: r.Last[0] + 1, 1: r.Last[1] + 1}}, func(Position, map[string]any) bool { return false }},
		"together": {Filter{Campaigns: []string{campaigns[0]}, Types: []wire.EventType{wire.CouponRedeemed}, Since: middle - 8_000_000, Until: middle, Lanes: []int{0}},
			func(p Position, e map[string]any) bool {
				return p.Lane == 0 && e["campaign"] == campaigns[0] && e["type"] == "coupon.redeemed" && at(e) < middle && at(e) >= middle-8_000_000
			}},
	} {
		for _, lines := range []int{0, 1} {
			var got []Event
			sum := r.run(collect(&got), Options{Filter: c.filter, Limits: fill.Limits{Lines: lines}})
			want := r.naive(c.keep)
			equalPositions(t, name, got, want)
			if sum.Events != uint64(len(want)) {
				t.Errorf("%s: the summary has %d events, want %d", name, sum.Events, len(want))
			}
		}
	}
}

// What happened to a customer's coupons is theirs, also where the line does not name them; also from the middle on.
func TestCustomer(t *testing.T) {
	r := newRig(t)
	r.work()
	for _, c := range []struct {
		filter Filter
		want   []string // types per lane
	}{
		{Filter{Customer: "ann"}, []string{"coupon.claimed", "coupon.redeemed"}},
		{Filter{Customer: "bob"}, []string{"coupon.claimed", "coupon.redeemed", "coupon.rolled_back"}},
		{Filter{Customer: "cy"}, []string{"coupon.claimed", "reminder.set", "reminder.cancelled"}},
		{Filter{Customer: "bob", Types: []wire.EventType{wire.CouponRolledBack}}, []string{"coupon.rolled_back"}},
		{Filter{Customer: "bob", From: map[int]uint64{0: 4, 1: 4}}, []string{"coupon.redeemed", "coupon.rolled_back"}},
		{Filter{Customer: "unknown"}, nil},
	} {
		var events []Event
		r.run(collect(&events), Options{Filter: c.filter, Limits: fill.Limits{Lines: 2}})
		var got [lanes][]string
		for _, e := range events {
			got[e.Lane] = append(got[e.Lane], e.Type.String())
		}
		for n := range lanes {
			if strings.Join(got[n], " ") != strings.Join(c.want, " ") {
				t.Errorf("%s, lane %d: %v, want %v", c.filter.String(), n, got[n], c.want)
			}
		}
	}
}

// A reminder that a rollback set again is the holder's, although its line names the coupon only; so is what becomes of it.
func TestCustomerOfARestoredReminder(t *testing.T) {
	m := newMatcher(&Filter{Customer: "cy"})
	for i, c := range []struct {
		event wire.Event
		want  bool
	}{
		{wire.Event{Type: wire.CouponClaimed, Campaign: "c", N: 1, CustomerID: "cy"}, true},
		{wire.Event{Type: wire.CouponClaimed, Campaign: "c", N: 2, CustomerID: "di"}, false},
		{wire.Event{Type: wire.CouponRolledBack, Campaign: "c", N: 1}, true},
		{wire.Event{Type: wire.ReminderSet, Campaign: "c", N: 1, R: 7}, true},
		{wire.Event{Type: wire.ReminderSet, Campaign: "c", N: 2, R: 8}, false},
		{wire.Event{Type: wire.ReminderCancelled, Campaign: "c", R: 7}, true},
		{wire.Event{Type: wire.ReminderCancelled, Campaign: "c", R: 8}, false},
	} {
		if got := m.match(&c.event); got != c.want {
			t.Errorf("event %d, %s: %v, want %v", i, c.event.Type, got, c.want)
		}
	}
}

// Events of one lane time may be in several messages; the binary search skips none, foreign messages included.
func TestSinceIsFoundByBinarySearch(t *testing.T) {
	r := newRig(t)
	for range 40 {
		r.Write(0, `{"type":"campaign.paused","campaign":"x","at":"@"}`)
		r.Publish(0, nil, []byte("not ours"))
		r.Clock = r.Clock.Add(-time.Second) // the next step has the same time
		r.Write(0, `{"type":"campaign.resumed","campaign":"x","at":"@"}`)
	}
	for _, seconds := range []int{0, 1, 2, 20, 40, 41} {
		since := wire.At(startTime.Add(time.Duration(seconds) * time.Second))
		var got []Event
		sum := r.run(collect(&got), Options{Filter: Filter{Since: since}})
		if want := 2 * (41 - max(seconds, 1)); len(got) != want || sum.Messages > uint64(want) {
			t.Errorf("since second %d: %d events of %d messages, want %d", seconds, len(got), sum.Messages, want)
		}
	}
}

func TestWrongFilters(t *testing.T) {
	r := newRig(t)
	r.work()
	for _, c := range []struct {
		opts        Options
		field, want string
	}{
		{Options{Filter: Filter{Campaigns: []string{"bad.name"}}}, "campaign", "A-Z a-z 0-9 _ -"},
		{Options{Filter: Filter{Since: 10, Until: 10}}, "until", "give a later time"},
		{Options{Filter: Filter{Lanes: []int{2}}}, "lane", "lanes 0 to 1"},
		{Options{Filter: Filter{Lanes: []int{0}, From: map[int]uint64{1: 1}}}, "from", "add it there"},
		{Options{Filter: Filter{From: map[int]uint64{7: 1}}}, "from", "lanes 0 to 1"},
		{Options{Filter: Filter{From: map[int]uint64{0: 9}, To: map[int]uint64{0: 8}}}, "to", "give a later position"},
		{Options{Filter: Filter{From: map[int]uint64{0: 1000}}}, "from", "give at most 0:"},
		{Options{Filter: Filter{Until: 10}, Follow: true}, "follow", "leave out --until"},
	} {
		var got []Event
		_, err := r.try(collect(&got), c.opts)
		var wrong *InvalidError
		if !errors.As(err, &wrong) || wrong.Field != c.field || !strings.Contains(wrong.Problem, c.want) {
			t.Errorf("%+v: %v, want %s … %s", c.opts.Filter, err, c.field, c.want)
		}
	}
	if _, err := ParseType("coupon.gilded"); err == nil || !strings.Contains(err.Error(), "coupon.claimed") {
		t.Errorf("unknown type: %v", err)
	}
	if _, err := ParseType("reminder.due"); err == nil || !strings.Contains(err.Error(), "reminders.due") {
		t.Errorf("type of another stream: %v", err)
	}
}

// Unreadable lines are logged and counted, never passed on, and stop nothing.
func TestUnreadableLines(t *testing.T) {
	r := newRig(t)
	r.Write(0, `{"type":"campaign.paused","campaign":"x","at":"@"}`, `{"type":"coupon.gilded","campaign":"x","at":"@"}`, `{"type":`, ``,
		`{"type":"campaign.resumed","campaign":"x"}`, `{"type":"campaign.resumed","campaign":"x","at":"@"}`)
	r.Publish(0, nil, []byte("foreign"))
	var logged streamtest.Buffer
	var got []Event
	sum := r.run(collect(&got), Options{Logger: loggerTo(&logged)})
	equalPositions(t, "the readable ones", got, []Position{{0, 1, 1}, {0, 1, 6}})
	if sum.Unreadable != 3 || sum.Foreign != 1 || strings.Count(logged.String(), "ignored a line") != 3 || !strings.Contains(logged.String(), "coupon.gilded") {
		t.Errorf("%+v\n%s", sum, logged.String())
	}
}

// A newer format stops the reader; what came before it is there.
func TestNewerFormat(t *testing.T) {
	r := newRig(t)
	r.work()
	want := r.naive(func(p Position, _ map[string]any) bool { return p.Lane == 0 })
	newer := r.Header(0)
	newer.Set(topology.HeaderFormat, strconv.Itoa(topology.Format+1))
	newer.Set(topology.HeaderSeal, strings.Repeat("A", 43))
	r.Publish(0, newer, []byte("?"))
	var got []Event
	_, err := r.try(collect(&got), Options{Follow: true, Filter: Filter{Lanes: []int{0}}})
	if !errors.Is(err, eventlog.ErrNewerFormat) || !strings.Contains(err.Error(), "lane 0") || !strings.Contains(err.Error(), "use a newer scrip") {
		t.Errorf("error %v", err)
	}
	equalPositions(t, "before it", got, want)
}

// All that is there comes first, then what comes, also after a restart of the server.
func TestFollow(t *testing.T) {
	r := newRig(t)
	r.work()
	arrived := make(chan Position, 10_000)
	f := r.follow(Func(func(_ context.Context, b *Batch) error {
		for i := range b.Events {
			arrived <- b.Events[i].Position
		}
		return nil
	}), Options{})
	for range r.naive(func(Position, map[string]any) bool { return true }) {
		<-arrived
	}
	for i := range 20 {
		if i == 10 {
			r.Server.Restart(t)
		}
		lane := i % lanes
		r.claim(campaigns[lane], "new"+string(rune('a'+i)))
		if got, want := <-arrived, (Position{lane, r.Last[lane], 1}); got != want {
			t.Fatalf("followed %v, want %v", got, want)
		}
	}
	f.stop()
}
