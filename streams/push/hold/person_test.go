package hold

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/priority"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

// noon is one in UTC, before the clocks of Berlin are set back on 2026-10-25 at 03:00 and forward on 2027-03-28 at 02:00.
var noon = time.Date(2026, 10, 20, 12, 0, 0, 0, time.UTC)

// book is a set of shards with what was let out.
type book struct {
	shards
	rules rules
	now   time.Time
	n     uint64
	lines map[string]*line
}

func newBook(r rules) *book {
	if r.zone == nil {
		r.zone = time.UTC
	}
	return &book{shards: newShards(3), rules: r, now: noon, lines: map[string]*line{}}
}

// fires is a reminder of a campaign: "name", "name!" with high priority, "name@zone". The coupon expires in a day.
func (b *book) fires(customer, campaign string) {
	l := b.lines[campaign]
	if l == nil {
		l = &line{n: uint64(len(b.lines) + 1), class: priority.Normal}
		l.event = wire.Event{Type: wire.ReminderDue, Campaign: campaign, Kind: wire.KindExpires, Before: 24 * time.Hour}
		b.lines[campaign] = l
		name, zone, _ := cut(campaign, '@')
		if name[len(name)-1] == '!' {
			l.class = priority.High
		}
		l.event.Zone = zone
	}
	l.event.At, l.event.DueAt = wire.At(b.now), wire.At(b.now)
	b.n++
	b.add(l, &input{}, []string{customer}, []uint64{b.n}, b.now, &b.rules, nil)
}

func cut(s string, at byte) (string, string, bool) {
	if i := slices.Index([]byte(s), at); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// at moves the clock and returns what is let out: "customer campaign+campaign", "customer -campaign quiet".
func (b *book) at(now time.Time) (out []string) {
	b.now = now
	for _, s := range b.shards {
		for _, m := range messages([]parcels{s.release(now, &b.rules)}, 5000) {
			at := 0
			var group []string
			for text := range slices.Values(splitLines(m.payload)) {
				var ev wire.Event
				if err := wire.ParseEvent(text, &ev); err != nil {
					panic(err)
				}
				if !ev.Merged {
					at, group = len(out), ev.CustomerIDs
				}
				for i, c := range group {
					switch {
					case ev.Withheld != "":
						out = append(out, c+" -"+ev.Campaign+" "+ev.Withheld)
					case ev.Merged:
						out[at+i] += "+" + ev.Campaign
					default:
						out = append(out, c+" "+ev.Campaign)
					}
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

func splitLines(payload []byte) (all [][]byte) {
	start := 0
	for i, c := range payload {
		if c == '\n' {
			all, start = append(all, payload[start:i]), i+1
		}
	}
	return all
}

func (b *book) want(t *testing.T, what string, now time.Time, want ...string) {
	t.Helper()
	if got := b.at(now); !slices.Equal(got, want) {
		t.Errorf("%s, %s: %q, want %q", what, now, got, want)
	}
}

func TestMerging(t *testing.T) {
	b := newBook(rules{merge: time.Minute})
	b.fires("ann", "a")
	b.fires("bob", "a")
	b.now = noon.Add(30 * time.Second)
	b.fires("ann", "b")
	b.fires("cy", "b")
	b.want(t, "within the window", noon.Add(59*time.Second))
	b.want(t, "at its end", noon.Add(time.Minute), "ann a+b", "bob a")
	b.want(t, "the window of each", noon.Add(90*time.Second), "cy b")

	b.fires("ann", "a")
	b.fires("ann", "now!")
	b.fires("bob", "b")
	b.want(t, "high priority takes along what is held", b.now.Add(step), "ann a+now!")
	b.want(t, "and nothing is left", b.now.Add(time.Hour), "bob b")

	// What is read late waits from when it fired.
	b.fires("ann", "a")
	b.now = b.now.Add(time.Hour)
	b.add(b.lines["a"], &input{}, []string{"late"}, []uint64{99}, b.now, &b.rules, nil)
	b.want(t, "read late", b.now.Add(step), "ann a", "late a")
}

func TestQuietHours(t *testing.T) {
	berlin, _ := wire.Zone("Europe/Berlin")
	night := settings.Quiet{From: 22 * 60, To: 8 * 60}
	b := newBook(rules{quiet: night})
	b.now = time.Date(2026, 10, 20, 20, 30, 0, 0, time.UTC) // 22:30 in Berlin
	b.fires("ann", "a@Europe/Berlin")
	b.fires("bob", "a")
	b.fires("cy", "a@Nowhere/Town") // of another version's list: the log's zone
	b.want(t, "the customer's clock counts", b.now.Add(step), "bob a", "cy a@Nowhere/Town")
	b.fires("ann", "now!@Europe/Berlin")
	b.want(t, "also for high priority", b.now.Add(time.Hour))
	b.want(t, "it ends", time.Date(2026, 10, 21, 6, 0, 0, 0, time.UTC), "ann a@Europe/Berlin+now!@Europe/Berlin")

	// What is of no use when they end is withheld at once, the rest waits.
	b.now = time.Date(2026, 10, 21, 21, 0, 0, 0, time.UTC)
	b.fires("ann", "soon@Europe/Berlin")
	b.lines["soon@Europe/Berlin"].event.Before = time.Hour
	b.fires("ann", "a@Europe/Berlin")
	b.want(t, "of no use", b.now.Add(step), "ann -soon@Europe/Berlin quiet")
	b.want(t, "the rest", b.now.Add(10*time.Hour), "ann a@Europe/Berlin")

	// Over a change of clocks they end at eight by the customer's clock.
	for _, day := range []time.Time{time.Date(2026, 10, 24, 23, 0, 0, 0, berlin), time.Date(2027, 3, 27, 23, 0, 0, 0, berlin)} {
		b.now = day
		b.fires("ann", "a@Europe/Berlin")
		eight := time.Date(day.Year(), day.Month(), day.Day()+1, 8, 0, 0, 0, berlin)
		b.want(t, "before", eight.Add(-time.Second))
		b.want(t, "at eight", eight, "ann a@Europe/Berlin")
	}
	b.now = time.Date(2026, 10, 24, 23, 0, 0, 0, berlin)
	b.fires("ann", "a@Europe/Berlin")
	b.want(t, "they hold", b.now.Add(time.Minute))
	b.rules.quiet = settings.Quiet{}
	b.again(b.now, &b.rules)
	b.want(t, "and are not set any more", b.now.Add(step), "ann a@Europe/Berlin")
}

func TestTheCap(t *testing.T) {
	b := newBook(rules{most: 2})
	for n := range 4 {
		b.fires("ann", "a")
		b.lines["a"].event.Before = 24 * time.Hour
		want := []string{"ann a"}
		if n >= 2 {
			want = nil
		}
		b.want(t, "two a day", b.now.Add(time.Minute), want...)
	}
	b.fires("ann", "soon")
	b.lines["soon"].event.Before = time.Hour
	b.fires("bob", "a")
	b.want(t, "of another customer", b.now.Add(step), "bob a")
	midnight := time.Date(2026, 10, 21, 0, 0, 0, 0, time.UTC)
	b.want(t, "today", midnight.Add(-time.Second))
	b.want(t, "the next day they are one message", midnight, "ann -soon cap", "ann a+a")
	for _, s := range b.shards {
		s.forget(midnight.Add(72 * time.Hour))
		if len(s.days) > 0 {
			t.Errorf("%d days are kept", len(s.days))
		}
	}
}

// A customer for whom very much is held gets the newest.
func TestNobodyHoldsMuch(t *testing.T) {
	b := newBook(rules{quiet: settings.Quiet{From: 11 * 60, To: 13 * 60}})
	total := 0
	for n := range 3 * mostOfOne {
		b.fires("ann", fmt.Sprint("c", n))
		total += len(b.at(b.now.Add(step)))
	}
	if p := b.of(hashOf("ann")).people["ann"]; len(p.items) != mostOfOne || total != 2*mostOfOne {
		t.Errorf("%d are held and %d were let out", len(p.items), total)
	}
}

func TestAClockThatIsSetBack(t *testing.T) {
	b := newBook(rules{merge: time.Minute})
	b.fires("ann", "a")
	b.now = noon.Add(-24 * time.Hour)
	b.again(b.now, &b.rules)
	b.want(t, "the window starts again", b.now.Add(time.Minute), "ann a")
}

// Whatever comes in which order, under any rules and in any number of shards, is let out once, in the order of each customer.
func TestEachIsLetOutOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBook(rules{
			merge: rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(t, "merge"), most: rapid.IntRange(0, 2).Draw(t, "cap"),
			quiet: rapid.SampledFrom([]settings.Quiet{{}, {From: 22 * 60, To: 8 * 60}, {From: 12 * 60, To: 12*60 + 1}}).Draw(t, "quiet"),
		})
		fired, last := 0, map[string]uint64{}
		seen := map[uint64]bool{}
		release := func() {
			for _, s := range b.shards {
				for _, m := range messages([]parcels{s.release(b.now, &b.rules)}, rapid.SampledFrom([]int{1, 3, 5000}).Draw(t, "batch")) {
					for _, items := range m.items {
						for _, it := range items {
							if seen[it.r] {
								t.Fatalf("%d twice", it.r)
							}
							seen[it.r] = true
						}
					}
					var ev wire.Event
					for _, text := range splitLines(m.payload) {
						if err := wire.ParseEvent(text, &ev); err != nil {
							t.Fatal(err)
						}
						for i, c := range ev.CustomerIDs {
							if ev.Withheld == "" && !ev.Merged && ev.Rs[i] < last[c] {
								t.Fatalf("%d of %s after %d", ev.Rs[i], c, last[c])
							}
							if ev.Withheld == "" {
								last[c] = max(last[c], ev.Rs[i])
							}
						}
					}
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				b.now = b.now.Add(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Hour, 9 * time.Hour}).Draw(t, "later"))
				release()
			case 1:
				b.shards = b.divide(rapid.IntRange(1, 5).Draw(t, "shards"))
			default:
				b.fires(rapid.SampledFrom([]string{"ann", "bob", "cy", "dee"}).Draw(t, "customer"), rapid.SampledFrom([]string{"a", "b!", "c@Asia/Kathmandu"}).Draw(t, "campaign"))
				fired++
			}
		}
		for range 10 {
			b.now = b.now.Add(24 * time.Hour)
			release()
		}
		if len(seen) != fired {
			t.Fatalf("%d were let out of %d", len(seen), fired)
		}
	})
}
