package timers

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/lanetest"
)

// However instants come and go, instants know the same as a sorted list.
func TestFallsEqualASortedList(t *testing.T) {
	for seed := range 3 * *rounds {
		rng := rand.New(rand.NewPCG(seed, 1))
		var f instants
		var list []wire.Instant
		end := start
		for step := range 6000 {
			var at wire.Instant
			switch rng.IntN(10) {
			case 0, 1, 2, 3, 4, 5:
				end += seconds(rng.IntN(3))
				at = end
			case 6, 7:
				at = start + seconds(rng.IntN(5000))
			case 8:
				at = start + wire.Instant(rng.IntN(5e9)) // fractional
			default:
				at = []wire.Instant{1, 1e6, 4294967295e6, 4294967296e6, 253402300799_999999}[rng.IntN(5)]
			}
			switch i, found := slices.BinarySearch(list, at); {
			case f.insert(at) == found:
				t.Fatalf("seed %d step %d: %s inserted, known %t", seed, step, at, found)
			case !found:
				list = slices.Insert(list, i, at)
			}
			if step%500 == 499 && seed%2 == 0 && len(list) > 0 {
				through := list[rng.IntN(len(list))] - wire.Instant(rng.IntN(2))
				f.forget(through)
				i, _ := slices.BinarySearch(list, through+1)
				list = list[i:]
			}
			if step%100 != 99 || len(list) == 0 {
				continue
			}
			if f.n != len(list) {
				t.Fatalf("seed %d step %d: %d instants, expected %d", seed, step, f.n, len(list))
			}
			for range 10 {
				now := start + wire.Instant(rng.IntN(6e9))
				switch rng.IntN(4) {
				case 0:
					now = list[rng.IntN(len(list))]
				case 1:
					now = []wire.Instant{0, 1, 4294967295e6, 253402300799_999999, wire.Never}[rng.IntN(5)]
				}
				i, found := slices.BinarySearch(list, now)
				if found {
					i++
				}
				next, last := wire.Never, wire.Instant(0)
				if i < len(list) {
					next = list[i]
				}
				if i > 0 {
					last = list[i-1]
				}
				if f.after(now) != next || f.upTo(now) != last {
					t.Fatalf("seed %d step %d: around %s are %s and %s, expected %s and %s", seed, step, now, f.upTo(now), f.after(now), last, next)
				}
			}
			whole, fractional := f.frozen()
			if len(whole)+len(fractional) != len(list) || !slices.IsSorted(whole) || !slices.IsSorted(fractional) {
				t.Fatalf("seed %d step %d: frozen %d and %d of %d", seed, step, len(whole), len(fractional), len(list))
			}
		}
		f.forget(wire.Never)
		if f.n != 0 || f.few != nil || f.many != nil || f.fractional != nil {
			t.Fatalf("seed %d: %d left in the end", seed, f.n)
		}
	}
}

// Which coupons have an expiry of their own is kept as sets of numbers are.
func TestOwnExpiriesEqualASet(t *testing.T) {
	for seed := range 3 * *rounds {
		rng := rand.New(rand.NewPCG(seed, 2))
		var o ownExpiries
		set := map[uint32]bool{}
		claimed := uint32(0)
		for step := range 3000 {
			switch k := rng.IntN(20); {
			case k < 12:
				claimed++
				if step/300%2 == 0 {
					o.add(claimed)
					set[claimed] = true
				}
			case k < 19:
				n := rng.Uint32N(claimed + 3)
				o.add(n + 1)
				set[n+1] = true
				claimed = max(claimed, n+1)
			default:
				n := rng.Uint32N(claimed + 3)
				o.remove(n)
				delete(set, n)
			}
			if step%300 == 200 { // read back
				var back ownExpiries
				runs := 0
				frozen := o.frozen()
				frozen.runs(func(from, through uint32) {
					back.load(from, through)
					runs++
				})
				back.runs(func(uint32, uint32) { runs-- })
				if runs != 0 {
					t.Fatalf("seed %d step %d: another number of runs came back", seed, step)
				}
				o = back
			}
			n := rng.Uint32N(claimed + 2)
			if o.has(n) != set[n] {
				t.Fatalf("seed %d step %d: has coupon %d %t", seed, step, n, o.has(n))
			}
		}
		for n := range claimed + 2 {
			if o.has(n) != set[n] {
				t.Fatalf("seed %d: has coupon %d %t", seed, n, o.has(n))
			}
		}
	}
}

// The lane knows each coupon's expiry; the timers know one bit of it. Whatever happens to coupons and campaigns, what is due
// in the timers, the lane fires, all of it, and nothing is left that they do not wake for.
func TestRemindersOfCouponsFallDueAsInTheLane(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, b := lanetest.New(), New("")
		now := start
		var codes []string
		fold := func(events []wire.Event) (gone int) {
			for i := range events {
				if events[i].Type == wire.CouponClaimed {
					codes = append(codes, events[i].Code)
				}
				fired, err := b.Fold(&events[i])
				if err != nil {
					t.Fatal(err)
				}
				if events[i].Type == wire.RemindersDue && uint64(len(fired)) != events[i].Fired+events[i].Dropped {
					t.Fatalf("%s: the timers know of %d", events[i].AppendJSON(nil), len(fired))
				}
				gone += len(fired)
			}
			return gone
		}
		do := func(format string, args ...any) { fold(s.Do(t, now, format, args...)) }
		later := func() wire.Instant {
			switch rapid.IntRange(0, 5).Draw(t, "when") {
			case 0:
				return 253402300799_999999
			case 1:
				return now + 1 + wire.Instant(rapid.IntRange(0, 3e6).Draw(t, "µs"))
			default: // few, so that own expiries and the campaign's end meet
				return (now/60e6 + wire.Instant(rapid.IntRange(1, 4).Draw(t, "minutes"))) * 60e6
			}
		}
		life := func() string {
			return rapid.SampledFrom([]string{"1s", "90s", "3m0.5s", "1h", "1h1.0000005s", "878400h"}).Draw(t, "life")
		}
		do(`"type":"create_campaign","campaign":"a","codes":1000,"per_customer":0,"valid_for":%q`, life())
		t.Repeat(map[string]func(*rapid.T){
			"claim": func(*rapid.T) {
				for range rapid.IntRange(1, 4).Draw(t, "times") {
					do(`"type":"claim","campaign":"a","customer_id":"c%d"`, rapid.IntRange(1, 4).Draw(t, "customer"))
				}
			},
			"end": func(*rapid.T) { do(`"type":"update_campaign","campaign":"a","expires_at":%q`, later()) },
			"live": func(*rapid.T) {
				do(`"type":"update_campaign","campaign":"a","valid_for":%q`, life())
			},
			"noEnd": func(*rapid.T) { do(`"type":"update_campaign","campaign":"a","expires_at":null,"valid_for":null`) },
			"extend": func(*rapid.T) {
				if len(codes) > 0 {
					do(`"type":"extend","code":%q,"expires_at":%q`, rapid.SampledFrom(codes).Draw(t, "code"), later())
				}
			},
			"remind": func(*rapid.T) {
				before := rapid.SampledFrom([]string{"0s", "1ns", "999ns", "1.5µs", "1s", "59.9999999s", "1m", "1h"}).Draw(t, "before")
				do(`"type":"remind","campaign":"a","customer_id":"c%d","kind":"expires","before":%q`, rapid.IntRange(1, 4).Draw(t, "customer"), before)
			},
			"sleep": func(*rapid.T) { now += wire.Instant(rapid.IntRange(1, 100e6).Draw(t, "µs")) },
			"": func(*rapid.T) {
				// The lane has as many as the timers, of what is due next.
				e := b.campaigns["a"]
				next := e.pending.Next(e.Anchors)
				if next > start+400*366*86400e6 { // no command can be given at the end of time
					return
				}
				for _, due := range slices.Collect(e.pending.Due(e.Anchors, next)) {
					now = max(now, due.DueAt)
					if fold(s.Do(t, now, `"type":"remind","campaign":"a","customer_id":"none","kind":"opens","before":"1s"`)) != 0 {
						t.Fatal("something fired")
					}
					if rapid.IntRange(0, 3).Draw(t, "not yet") > 0 {
						continue
					}
					cmd := wire.Command{ID: "s", Type: wire.RemindDue, Campaign: "a", Kind: due.Kind, DueAt: due.DueAt, ThroughR: due.LastR}
					if gone := fold(s.Events(t, now, &cmd)); uint64(gone) != due.Subscriptions {
						t.Fatalf("due at %s: %d, the lane fires %d", due.DueAt, due.Subscriptions, gone)
					}
				}
			},
		})
		// To the end of time: whatever can fall due, does.
		e := b.campaigns["a"]
		for next := e.pending.Next(e.Anchors); next != wire.Never; next = e.pending.Next(e.Anchors) {
			now = max(now, next)
			for _, due := range slices.Collect(e.pending.Due(e.Anchors, next)) {
				cmd := wire.Command{ID: "s", Type: wire.RemindDue, Campaign: "a", Kind: due.Kind, DueAt: due.DueAt, ThroughR: due.LastR}
				if gone := fold(s.Events(t, now, &cmd)); uint64(gone) != due.Subscriptions {
					t.Fatalf("due at %s: %d, the lane fires %d", due.DueAt, due.Subscriptions, gone)
				}
			}
		}
	})
}

// BenchmarkInstants feeds the timers with claims of coupons that live for three days, spread over ten thousand campaigns.
// COUPONS has how many; 500,000,000 take some minutes.
//
//	COUPONS=500000000 go test ./streams/scheduler/timers -run '^$' -bench Instants -benchtime 1x
func BenchmarkInstants(b *testing.B) {
	const campaigns = 10_000
	coupons := 20_000_000
	if s := os.Getenv("COUPONS"); s != "" {
		var err error
		if coupons, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		bk := New("")
		ev := wire.Event{Type: wire.CampaignCreated}
		for i := range campaigns {
			ev.Campaign = fmt.Sprintf("campaign-%04d", i)
			if _, err := bk.Fold(&ev); err != nil {
				b.Fatal(err)
			}
		}
		names := make([]string, campaigns)
		for i := range names {
			names[i] = fmt.Sprintf("campaign-%04d", i)
		}
		empty := heapInUse()
		began := time.Now()
		ev = wire.Event{Type: wire.CouponClaimed}
		// Three days pass in which all of them are claimed: all live at the end.
		for n := range coupons {
			ev.Campaign, ev.N = names[n%campaigns], uint32(n/campaigns+1)
			claimed := start + wire.Instant(float64(n)/float64(coupons)*72*3600e6)
			ev.ExpiresAt = (claimed + 72*3600e6 + 60e6 - 1) / 60e6 * 60e6
			if _, err := bk.Fold(&ev); err != nil {
				b.Fatal(err)
			}
		}
		took := time.Since(began)
		full := heapInUse()
		b.ReportMetric(float64(full-empty)/float64(bk.instants), "B/instant")
		b.ReportMetric(float64(full-empty)/float64(coupons), "B/coupon")
		b.ReportMetric(float64(bk.instants), "instants")
		b.ReportMetric(float64(full)/(1<<20), "MiB")
		b.ReportMetric(float64(took.Nanoseconds())/float64(coupons), "ns/coupon")
		b.ReportMetric(0, "ns/op")
		runtime.KeepAlive(bk)
	}
}
