package scheduler

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

// The forecast counts what a list looked through from end to end would, in however many parts.
func TestForecast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newPlannerRig(t)
		var want outlook
		var perSecond [3600]int
		paused := map[string]bool{"c1": true}
		add := func(c class, p timers.Priority, at wire.Instant, n int) {
			for i, h := range horizons {
				if in := time.Duration(at-start) * time.Microsecond; in > 0 && in <= h.span {
					want.within[c][p][i] += n
				}
			}
			if in := at - start; c == reminder && in > 0 && in <= seconds(3600) {
				s := int((in - 1) / 1e6)
				perSecond[s] += n
				want.peak = max(want.peak, perSecond[s])
			}
		}
		spans := rapid.SampledFrom([]wire.Instant{-seconds(5), 0, 1, 999_999, seconds(1), seconds(1) + 1, seconds(2), seconds(10), seconds(61), seconds(600), seconds(3000), seconds(3600) - 1, seconds(3600), seconds(3600) + 1, seconds(100_000)})
		for i := range rapid.IntRange(0, 8).Draw(t, "campaigns") {
			name := fmt.Sprint("c", i)
			setting := rapid.SampledFrom([]string{"high", "normal", "low"}).Draw(t, "priority")
			opens, end := start+spans.Draw(t, "opens"), start+spans.Draw(t, "expires")
			d.fold(wire.Event{Type: wire.CampaignCreated, Campaign: name, Settings: wire.Settings{OpensAt: opens, ExpiresAt: end, Priority: setting}})
			p := timers.PriorityOf(setting)
			if !paused[name] {
				add(expiry, p, end, 1)
			}
			for r := range rapid.IntRange(0, 20).Draw(t, "reminders") {
				before := time.Duration(rapid.SampledFrom([]int{0, 1, 1, 1, 60}).Draw(t, "before")) * time.Second
				d.fold(wire.Event{Type: wire.ReminderSet, Campaign: name, R: uint64(r + 1), CustomerID: "x", Kind: wire.KindOpens, Before: before})
				if !paused[name] {
					add(reminder, p, opens-wire.Instant(before/time.Microsecond), 1)
				}
			}
		}
		s := changed(func(s *settings.Settings) { s.ExpiryPaused, s.RemindersPaused = paused, paused })
		d.p.configure(s)
		d.p.requests(start) // each campaign has its place in the order
		var f forecast
		if !f.step(d.p.timers, s, start) {
			t.Fatal("not done at once")
		}
		if f.last != want {
			t.Fatalf("\n got %+v\nwant %+v", f.last, want)
		}
	})
}

// Coupons with expiries of their own, microseconds apart, are looked at by the second.
func TestForecastOfManyInstants(t *testing.T) {
	d := newPlannerRig(t)
	d.campaign("a", "", 0, 0)
	const coupons = 5_000
	for n := range coupons {
		d.fold(wire.Event{Type: wire.CouponClaimed, Campaign: "a", N: uint32(n + 1), ExpiresAt: start + 1 + wire.Instant(n)*2_000})
	}
	d.fold(wire.Event{Type: wire.CouponClaimed, Campaign: "a", N: coupons + 1, ExpiresAt: start + seconds(3600)})
	d.fold(wire.Event{Type: wire.CouponClaimed, Campaign: "a", N: coupons + 2, ExpiresAt: start + seconds(3600) + 1})
	f := forecast{from: start}
	if looked := f.count(d.p.timers.Campaign("a"), d.p.settings, start+seconds(3600)); looked != 11 {
		t.Errorf("%d looked at", looked)
	}
	if got, want := f.counted.within[expiry][timers.Normal], [5]int{1, 10, 10, 10, 11}; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// Of many timers it walks a part at a time, and publishes of all of it in the end; it begins again after a while, and at once
// when the clock was set back.
func TestForecastInParts(t *testing.T) {
	d := newPlannerRig(t)
	const campaigns = 3*forecastPart + 1
	for i := range campaigns {
		d.fold(wire.Event{Type: wire.CampaignCreated, Campaign: fmt.Sprint(i), Settings: wire.Settings{ExpiresAt: start + seconds(1+i%3000)}})
	}
	d.p.requests(start)
	var f forecast
	now, parts := start, 1
	for ; !f.step(d.p.timers, d.p.settings, now); parts++ {
		if !f.walking || f.last.within[expiry][timers.Normal] != [5]int{} || parts > 100 {
			t.Fatalf("part %d: %+v", parts, f.last)
		}
		if f.step(d.p.timers, d.p.settings, now) {
			t.Fatal("no break between two parts")
		}
		now = now.Add(forecastBreak)
	}
	if got := f.last.within[expiry][timers.Normal][4]; got != campaigns || parts < 4 {
		t.Errorf("%d of %d campaigns in %d parts", got, campaigns, parts)
	}
	if f.step(d.p.timers, d.p.settings, now.Add(forecastEvery-time.Microsecond)) || f.walking {
		t.Error("begins again too early")
	}
	if f.step(d.p.timers, d.p.settings, now.Add(forecastEvery)); !f.walking {
		t.Error("does not begin again")
	}
	if f.step(d.p.timers, d.p.settings, start-seconds(3600)); f.from != start-seconds(3600) {
		t.Error("does not begin again when the clock was set back")
	}
}
