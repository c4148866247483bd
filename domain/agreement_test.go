package domain

import (
	"bytes"
	"fmt"
	"sort"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/domain/oracle"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/domain/worldtest"
)

func TestLaneAgreesWithTheContractWrittenDownTwice(t *testing.T) {
	t.Run("short and shrinking", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			checkAgainstModel(t, rt, newWorld(rapidChooser(rt)), rapid.IntRange(1, 90).Draw(rt, "commands"))
		})
	})
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("long, seed ", seed), func(t *testing.T) {
			checkAgainstModel(t, t, newWorld(worldtest.Random(seed)), 500)
		})
	}
	allShapes.complete(t)
}

// failer is what testing.T and rapid.T have in common.
type failer interface {
	Fatal(...any)
	Fatalf(string, ...any)
}

// checkAgainstModel runs random commands through a Step, from JSON to JSON, beside the model, checks the promises on the
// event log, and at the end folds the log into a second lane.
//
// Where the lane makes indexes is another place each time, and what a step was given is overwritten when it returns.
func checkAgainstModel(t *testing.T, rt failer, w *world, commands int) {
	l, m, judge := testLane(), newModel(), oracle.New()
	l.scanLimit = uint8(worldtest.Pick(w.Choose, 0, 1, 5, linearScanLimit))
	step := NewStep(l)
	var log []byte
	for range commands {
		cmd := w.Command()
		w.dueNow(l, &cmd)
		line := cmd.AppendJSON(nil)
		var parsed wire.Command
		if err := wire.ParseCommand(line, wire.Defaults{}, &parsed); err != nil {
			continue // settings that contradict each other
		}
		scope := wire.ScopeTrusted
		if cmd.Type == wire.Expire || cmd.Type == wire.RemindDue {
			scope = wire.ScopeScheduler
		}
		want := m.decide(&cmd, w.Now)
		had := len(step.Events)
		reply := step.Add(Message{Sequence: 1, Scope: scope, Payload: line}, w.Now, nil)
		scribble(line)
		got, err := wire.ParseOutcome(bytes.TrimSpace(reply))
		if err != nil {
			rt.Fatalf("%s: %v", reply, err)
		}
		if got.Code != "" && m.campaigns[got.Campaign].coupons[got.N-1].code == "" {
			if err := m.learn(got); err != nil {
				rt.Fatal(err)
			}
			want.Code = m.campaigns[got.Campaign].coupons[got.N-1].shown()
		}
		allShapes.outcome(rt, cmd.Type, reply, &got)
		got.Message = ""
		if x, y := outcomeText(got), outcomeText(want); x != y {
			rt.Fatalf("at %s\n%s\n got %s\nwant %s", w.Now, cmd.AppendJSON(nil), x, y)
		}
		for line := range bytes.Lines(step.Events[had:]) {
			var ev wire.Event
			if err := wire.ParseEvent(bytes.Clone(line), &ev); err != nil {
				rt.Fatal(err)
			}
			if ev.ByN != (cmd.N != 0 && ev.Type.ChangesCoupon()) {
				rt.Fatalf("%s makes %s", cmd.AppendJSON(nil), line)
			}
			allShapes.event(rt, ev.Type, line)
			w.Learn([]wire.Event{ev})
		}
		if made := step.Events[had:]; len(made) > 0 && (got.Repeat || got.Refused()) {
			rt.Fatalf("%s is answered %s and makes %s", line, reply, made)
		}
	}
	step.Close()
	log = step.Events
	second, third := testLane(), testLane()
	whole := bytes.Clone(log)
	if n, err := third.Fold(whole); err != nil || n != step.Lines {
		rt.Fatalf("%d of %d lines folded: %v", n, step.Lines, err)
	}
	scribble(whole)
	for _, line := range bytes.Split(bytes.TrimSpace(log), []byte{'\n'}) {
		if len(line) == 0 {
			continue
		}
		var ev wire.Event
		if err := wire.ParseEvent(line, &ev); err != nil {
			rt.Fatal(err)
		}
		judge.Apply(string(line), &ev)
		if again := ev.AppendJSON(nil); !bytes.Equal(again, line) {
			rt.Fatalf("%s\nis written again as\n%s", line, again)
		}
		if err := second.Apply(&ev); err != nil {
			rt.Fatal(err)
		}
	}
	if judge.CheckTallies(); len(judge.Violations) > 0 {
		rt.Fatalf("the oracle finds %s", judge.Violations)
	}
	for name, c := range m.campaigns {
		if t := judge.Campaigns[name].Tally(); t.Pending != uint64(len(c.reminders)) {
			rt.Fatalf("%s: reminders %s; %d are pending in the model", name, t, len(c.reminders))
		}
		compareView(rt, l, c, m.clock)
	}
	second.Advance(l.Clock())
	third.Advance(l.Clock())
	if !bytes.Equal(snapshot(t, third), snapshot(t, l)) {
		rt.Fatal("the lane folded from the lines of the log differs from the one that wrote it")
	}
	compareDerived(rt, l, third)
	if !bytes.Equal(snapshot(t, second), snapshot(t, l)) {
		rt.Fatal("the lane folded from the log differs from the one that wrote it")
	}
	compareDerived(rt, l, second)
	bothDecide(t, w, l, second, 30)
}

// compareView compares show and validate with the model.
func compareView(t failer, l *Lane, c *mCampaign, now wire.Instant) {
	v, ok := l.Campaign(c.name)
	redeemed, void := 0, 0
	for _, k := range c.coupons {
		switch {
		case k.void:
			void++
		case !k.live():
			redeemed++
		}
		code := k.shown()
		if code == "" { // printed, and never named by its code
			byN, _ := l.Coupon(c.name, "", k.n, now)
			code = byN.Code
		}
		view, ok := l.Coupon(c.name, code, 0, now)
		if byN, there := l.Coupon(c.name, "", k.n, now); !there || byN.Code != view.Code || byN.Status != view.Status || byN.Batch != k.batch {
			t.Fatalf("coupon %d of %s is shown by its number as %+v", k.n, c.name, byN)
		}
		status := k.status(now)
		if !ok || view.Status != status || view.RedeemedCount != k.count() || view.N != k.n {
			t.Fatalf("coupon %d of %s is shown as %+v, %v; want %s, redeemed %d times", k.n, c.name, view, ok, status, k.count())
		}
	}
	if !ok || v.Status != c.state || int(v.Claimed) != len(c.coupons) || int(v.Redeemed) != redeemed || int(v.Voided) != void ||
		int(v.Codes) != c.total() || v.Reminders != len(c.reminders) {
		t.Fatalf("%s is shown as %+v; want %s, %d claimed, %d redeemed, %d void", c.name, v, c.state, len(c.coupons), redeemed, void)
	}
	for _, customer := range []string{"ann", "bob", "cy", "dée"} {
		var want []uint32
		for _, k := range c.coupons {
			if k.customer == customer && k.batch == "" {
				want = append(want, k.n)
			}
		}
		sort.Slice(want, func(i, j int) bool { return want[i] > want[j] })
		var got []uint32
		views, _, done := l.CustomerAfter(customer, now, CouponPlace{}, 100, 1<<20)
		if !done && len(views) < 100 {
			t.Fatalf("the coupons of %s have no end", customer)
		}
		for _, view := range views {
			if view.Campaign == c.name {
				got = append(got, view.N)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%s has coupons %v of %s, shown are %v", customer, want, c.name, got)
		}
	}
}
