package reminder

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// naiveScheduler is a list of what is pending, looked through from one end to the other for every question.
type naiveScheduler struct {
	list []Subscription
}

func (l *naiveScheduler) due(s Subscription, a Anchors) wire.Instant {
	anchor := a.Opens
	if s.Kind == wire.KindExpires {
		if anchor = a.Expires; s.Own != 0 {
			anchor = s.Own
		}
	}
	if anchor == 0 || anchor == wire.Never {
		return wire.Never
	}
	return anchor - wire.Instant(s.Before/time.Microsecond)
}

func (l *naiveScheduler) get(r uint64) Subscription {
	return l.list[slices.IndexFunc(l.list, func(s Subscription) bool { return s.R == r })]
}

func (l *naiveScheduler) set(s Subscription) {
	l.cancel(s.R)
	l.list = append(l.list, s)
	slices.SortFunc(l.list, func(x, y Subscription) int { return cmp.Compare(x.R, y.R) })
}

func (l *naiveScheduler) cancel(r uint64) bool {
	was := len(l.list)
	l.list = slices.DeleteFunc(l.list, func(s Subscription) bool { return s.R == r })
	return len(l.list) < was
}

func (l *naiveScheduler) ofCoupon(n uint32) (rs []uint64) {
	for _, s := range l.list {
		if s.Kind == wire.KindExpires && s.N == n {
			rs = append(rs, s.R)
		}
	}
	return rs
}

// twice reports whether two have the same key and lead time.
func (l *naiveScheduler) twice(notes Notes) bool {
	seen := make(map[Subscription]bool)
	for _, s := range l.list {
		key := Subscription{Kind: s.Kind, Before: s.Before, N: s.N}
		if s.Kind == wire.KindOpens {
			if notes == nil {
				continue
			}
			key = Subscription{Own: wire.Instant(notes.NoteHash(s.N, s.Before)), Before: s.Before}
		}
		if seen[key] {
			return true
		}
		seen[key] = true
	}
	return false
}

// dues is all that falls due at or before now.
func (l *naiveScheduler) dues(a Anchors, now wire.Instant) (list []DueReminders) {
	for _, s := range l.list {
		at := l.due(s, a)
		if at > now || at == wire.Never {
			continue
		}
		i := slices.IndexFunc(list, func(d DueReminders) bool { return d.Kind == s.Kind && d.DueAt == at })
		if i < 0 {
			i = len(list)
			list = append(list, DueReminders{Kind: s.Kind, DueAt: at, FromR: s.R})
		}
		list[i].LastR = s.R
		list[i].Subscriptions++
		list[i].Announces = max(list[i].Announces, at.Add(s.Before))
	}
	slices.SortFunc(list, func(x, y DueReminders) int {
		return cmp.Or(cmp.Compare(x.DueAt, y.DueAt), -cmp.Compare(x.Kind, y.Kind))
	})
	return list
}

// some is what belongs to the set, at most so many.
func (l *naiveScheduler) some(set wire.DueSet, most int, a Anchors) (DueReminders, []uint64) {
	d, rs := DueReminders{Kind: set.Kind, DueAt: set.DueAt}, []uint64(nil)
	for _, s := range l.list {
		announces := set.DueAt.Add(s.Before)
		if s.Kind == set.Kind && l.due(s, a) == set.DueAt && s.R >= set.FromR && s.R <= set.ThroughR && len(rs) < most &&
			(set.Passed == 0 || announces <= set.Passed) {
			rs = append(rs, s.R)
			d.Announces = max(d.Announces, announces)
		}
	}
	if len(rs) > 0 {
		d.FromR, d.LastR, d.Subscriptions = rs[0], rs[len(rs)-1], uint64(len(rs))
	}
	return d, rs
}

// subscriptionsRig keeps both side by side.
type subscriptionsRig struct {
	subs    Subscriptions
	naive   naiveScheduler
	anchors Anchors
	now     wire.Instant
	lastR   uint64
	frozen  []frozenPair
	notes   Notes // nil as in the scheduler, else as in a lane
}

// crowdedNotes lets some hashes meet.
type crowdedNotes struct{}

func (crowdedNotes) NoteHash(n uint32, _ time.Duration) uint64 {
	return uint64(n/2) * 0x9e3779b97f4a7c15
}

type frozenPair struct {
	is   FrozenSubscriptions
	want []Subscription
}

func listed(all func(func(r uint64, kind string, before time.Duration, n uint32, own wire.Instant))) (list []Subscription) {
	all(func(r uint64, kind string, before time.Duration, n uint32, own wire.Instant) {
		list = append(list, Subscription{r, kind, before, n, own})
	})
	return list
}

// check compares the results of all reads.
func (g *subscriptionsRig) check(t failer) {
	if g.subs.Len() != len(g.naive.list) {
		t.Fatalf("%d are pending, want %d", g.subs.Len(), len(g.naive.list))
	}
	if got := listed(g.subs.All); !slices.Equal(got, g.naive.list) {
		t.Fatalf("pending are\n%v, want\n%v", got, g.naive.list)
	}
	for _, now := range []wire.Instant{math.MinInt64, 0, g.now, g.now + hour, wire.MaxInstant, wire.Never} {
		next, dues := wire.Never, g.naive.dues(g.anchors, wire.Never)
		count := [2]uint64{}
		for _, d := range dues {
			if d.DueAt > now {
				next = min(next, d.DueAt)
			}
			if d.DueAt < now {
				count[0] += d.Subscriptions
			} else if d.DueAt < now+hour {
				count[1] += d.Subscriptions
			}
		}
		if got := g.subs.NextAfter(g.anchors, now); got != next {
			t.Fatalf("next after %d is %d, want %d", now, got, next)
		}
		if got := g.subs.Count(g.anchors, math.MinInt64, now); got != count[0] {
			t.Fatalf("%d fall due before %d, want %d", got, now, count[0])
		}
		if now > math.MinInt64 && now < wire.Never {
			if got := g.subs.Count(g.anchors, now, now+hour); got != count[1] {
				t.Fatalf("%d fall due in the hour from %d on, want %d", got, now, count[1])
			}
		}
	}
	if all := g.naive.dues(g.anchors, wire.Never); len(all) > 0 && g.subs.Next(g.anchors) != all[0].DueAt {
		t.Fatalf("next is %d, want %d", g.subs.Next(g.anchors), all[0].DueAt)
	}
	g.due(t, g.now)
	g.structure(t)
}

func (g *subscriptionsRig) due(t failer, now wire.Instant) []DueReminders {
	want := g.naive.dues(g.anchors, now)
	if got := slices.Collect(g.subs.Due(g.anchors, now)); !slices.Equal(got, want) {
		t.Fatalf("due by %d are\n%v, want\n%v", now, got, want)
	}
	for d := range g.subs.Due(g.anchors, now) { // and may be ended early
		if d != want[0] {
			t.Fatalf("first due is %v, want %v", d, want[0])
		}
		break
	}
	return want
}

// structure looks at what is inside: nothing may be left over.
func (g *subscriptionsRig) structure(t failer) {
	p := g.subs.p
	if p == nil {
		return
	}
	groups := make(map[uint32]uint32)
	p.each(func(r uint32, e *subscription) bool {
		groups[e.group]++
		return true
	})
	seen, sum := 0, 0
	for i := range p.series {
		last, lastLead := wire.Instant(math.MinInt64), uint32(0)
		for c := p.series[i].first(); c.group() != 0; c.next() {
			x := p.group(c.group())
			if seen > 0 && !less(last, lastLead, x.key(), x.lead) && last != math.MinInt64 {
				t.Fatalf("series %d: group %d is out of order", i, c.group())
			}
			last, lastLead = x.key(), x.lead
			if x.count() != groups[c.group()] || x.count() == 0 || p.leads.list[x.lead].series != series(i) {
				t.Fatalf("group %d counts %d, %d belong to it", c.group(), x.count(), groups[c.group()])
			}
			r := x.first
			for range x.count() {
				if e := p.at(r); e == nil || e.group != c.group() || p.at(e.next).previous != r {
					t.Fatalf("group %d: %d is linked wrongly", c.group(), r)
				}
				if next := p.at(r).next; x.size&unsorted == 0 && next <= r && next != x.first {
					t.Fatalf("group %d: %d follows %d", c.group(), next, r)
				}
				r = p.at(r).next
			}
			if r != x.first {
				t.Fatalf("group %d is not a ring", c.group())
			}
			seen++
		}
	}
	if seen != len(groups) {
		t.Fatalf("%d groups in order, %d have members", seen, len(groups))
	}
	live := 0
	for k := range p.groups.pages {
		live += int(p.groups.pages[k].live)
		if page := &p.groups.pages[k]; page.listed != (page.live < groupsPage) || page.listed != slices.Contains(p.groups.roomy, uint32(k)) {
			t.Fatalf("page of groups %d: %d live, listed %v", k, page.live, page.listed)
		}
	}
	if live != seen {
		t.Fatalf("%d groups are kept, %d are in order", live, seen)
	}
	for i, page := range p.pages {
		sum += int(page.live)
		if page.live == 0 || len(page.records) > 1 && int(page.live)*2 <= len(page.records)-1 || i > 0 && p.pages[i-1].number >= page.number {
			t.Fatalf("page %d: %d live of %d", page.number, page.live, len(page.records))
		}
	}
	if sum != int(p.live) {
		t.Fatalf("%d lie in pages, %d are pending", sum, p.live)
	}
	if p.keys != nil {
		keyed := 0
		for _, s := range g.naive.list {
			if s.Kind == wire.KindExpires || g.notes != nil {
				keyed++
			}
		}
		if p.keys.Len() != keyed {
			t.Fatalf("%d are found by a key, want %d", p.keys.Len(), keyed)
		}
	}
}

// TestSubscriptionsAreANaiveScheduler holds what the lane and the scheduler plan with to a list that is looked through,
// over random sets, cancels, re-timings, firings whole and in chunks, and freezes.
func TestSubscriptionsAreANaiveScheduler(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := &subscriptionsRig{now: start, anchors: Anchors{Opens: start + hour, Expires: start + day}}
		choose := rapidChooser(rt)
		if choose(2) == 0 {
			g.notes = crowdedNotes{}
		}
		far := choose(4) == 0 // numbers with gaps: pages come and go
		befores := []time.Duration{0, time.Minute, time.Hour, 25 * time.Hour, time.Microsecond, 90*time.Minute + 7*time.Microsecond, wire.MaxBefore}
		if choose(4) == 0 { // customers choose what they like
			for i := range 3 * manyLeads {
				befores = append(befores, time.Duration(i)*time.Second)
			}
		}
		instant := func() wire.Instant {
			return pick(choose, 0, 0, start+hour, start+2*hour, start+day, start+day+1, start+day+minute, wire.MaxInstant, start-hour, 3, wire.Never, start+wire.Instant(choose(40))*hour)
		}
		for range rapid.IntRange(1, 150).Draw(rt, "steps") {
			switch choose(12) {
			case 0, 1, 2, 3:
				for range 1 + choose(1+choose(60)) {
					g.lastR++
					if far {
						g.lastR += uint64(choose(1000))
					}
					s := Subscription{R: g.lastR, Kind: pick(choose, wire.KindOpens, wire.KindExpires), Before: befores[choose(len(befores))], N: uint32(1 + choose(30))}
					if s.Kind == wire.KindExpires {
						s.Own = instant()
					}
					if choose(20) == 0 && len(g.naive.list) > 0 {
						s.R = g.naive.list[choose(len(g.naive.list))].R // again
					}
					if set := g.subs.SetNoted(s, g.notes); !set {
						rt.Fatalf("%v is refused", s)
					}
					g.naive.set(s)
				}
			case 4:
				for range choose(8) {
					r := uint64(choose(int(g.lastR + 2)))
					if len(g.naive.list) > 0 && choose(4) > 0 {
						r = g.naive.list[choose(len(g.naive.list))].R
					}
					if got, want := g.subs.CancelNoted(r, g.notes), g.naive.cancel(r); got != want {
						rt.Fatalf("cancelling %d: %v, want %v", r, got, want)
					}
				}
			case 5, 6:
				for range choose(20) {
					n, own := uint32(1+choose(32)), instant()
					g.subs.Move(n, own)
					for i := range g.naive.list {
						if s := &g.naive.list[i]; s.Kind == wire.KindExpires && s.N == n {
							s.Own = own
						}
					}
				}
			case 7:
				g.anchors = Anchors{Opens: instant(), Expires: instant()}
			case 8:
				g.now += pick(choose, 0, 1, minute, hour, 5*hour, -hour)
			case 9:
				g.fire(rt, choose)
			case 10:
				n := uint32(1 + choose(32))
				want := g.naive.ofCoupon(n)
				if got := g.subs.OfCoupon(n); !slices.Equal(got, want) {
					rt.Fatalf("of coupon %d are %v, want %v", n, got, want)
				}
				before := befores[choose(len(befores))]
				r, ok := g.subs.FindOfCoupon(n, before)
				found := slices.ContainsFunc(g.naive.list, func(s Subscription) bool {
					return s.Kind == wire.KindExpires && s.N == n && s.Before == before && (s.R == r || !ok)
				})
				if ok != found {
					rt.Fatalf("of coupon %d and %s: %d, %v", n, before, r, ok)
				}
				if g.notes != nil {
					r, ok := g.subs.OfNote(g.notes.NoteHash(n, before), before, g.notes)
					count := 0
					found := slices.ContainsFunc(g.naive.list, func(s Subscription) bool {
						return s.Kind == wire.KindOpens && s.N/2 == n/2 && s.Before == before && (s.R == r || !ok)
					})
					for _, s := range g.naive.list {
						if s.Kind == wire.KindOpens && s.N/2 == n/2 {
							count++
						}
					}
					if got := g.subs.CountOfNote(g.notes.NoteHash(n, before), g.notes); got != count {
						rt.Fatalf("of note %d: %d, want %d", n, got, count)
					}
					if ok != found {
						rt.Fatalf("of note %d: %d, %v", n, r, ok)
					}
				}
			case 11:
				if len(g.frozen) < 3 {
					g.frozen = append(g.frozen, frozenPair{g.subs.Freeze(), slices.Clone(g.naive.list)})
				}
			}
			g.check(rt)
		}
		for _, f := range g.frozen {
			if got := listed(f.is.All); !slices.Equal(got, f.want) || f.is.Len() != len(f.want) {
				rt.Fatalf("frozen are\n%v, want\n%v", got, f.want)
			}
		}
		var restored Subscriptions
		ok, twice := restored.RestoreNoted(slices.Values(g.naive.list), g.notes)
		if !ok || twice != g.naive.twice(g.notes) {
			rt.Fatalf("restored: %v, two are alike: %v", ok, twice)
		}
		g.subs = restored
		g.check(rt)
	})
}

// fire reads what is due as a scheduler does, in chunks, and fires it.
func (g *subscriptionsRig) fire(t failer, choose chooser) {
	for _, d := range g.due(t, pick(choose, g.now, g.now+day, wire.MaxInstant)) {
		if choose(3) == 0 {
			continue
		}
		most, after := 1+choose(20), uint64(0)
		for range choose(4) { // requested ahead
			want, _ := g.naive.some(wire.DueSet{Kind: d.Kind, DueAt: d.DueAt, FromR: after + 1, ThroughR: math.MaxInt64}, most, g.anchors)
			want.Announces = 0
			if got := g.subs.Chunk(d.Kind, d.DueAt, after, most, g.anchors); got != want {
				t.Fatalf("chunk of %d after %d is %v, want %v", most, after, got, want)
			}
			if want.Subscriptions > 0 {
				after = want.LastR
			}
		}
		through := pick(choose, after, after, d.LastR, d.LastR+5, math.MaxUint64, d.FromR+uint64(choose(40)))
		set := wire.DueSet{Kind: d.Kind, DueAt: d.DueAt, ThroughR: through, Passed: pick(choose, 0, 0, d.DueAt, d.DueAt+minute, d.Announces-1, d.Announces)}
		want, _ := g.naive.some(set, math.MaxInt, g.anchors)
		if got := g.subs.At(set, g.anchors); got != want {
			t.Fatalf("at %d through %d: %v, want %v", d.DueAt, through, got, want)
		}
		set.FromR = pick(choose, want.FromR, want.FromR, 0, want.FromR+uint64(choose(10)))
		_, rs := g.naive.some(set, math.MaxInt, g.anchors)
		all, each := g.subs.Leads(set, g.anchors)
		for _, r := range rs {
			if before, ok := each[r]; each != nil && (!ok || before != g.naive.get(r).Before) || each == nil && all != g.naive.get(r).Before {
				t.Fatalf("reminder %d has the lead %s or %s of %v, want %s", r, all, before, each, g.naive.get(r).Before)
			}
		}
		if g.notes != nil && choose(2) == 0 {
			if fired := g.subs.FireNoted(set, g.anchors, g.notes, nil); fired != len(rs) {
				t.Fatalf("%d are fired, want %d", fired, len(rs))
			}
		} else if g.notes != nil {
			fired := []uint64{7}
			g.subs.FireNoted(set, g.anchors, g.notes, &fired)
			if slices.Sort(fired[1:]); fired[0] != 7 || !slices.Equal(fired[1:], rs) {
				t.Fatalf("fired are %v, want %v", fired[1:], rs)
			}
		} else if fired := g.subs.Fire(set, g.anchors, []uint64{7}); fired[0] != 7 || !slices.Equal(fired[1:], rs) {
			t.Fatalf("fired are %v, want %v", fired[1:], rs)
		}
		for _, r := range rs {
			g.naive.cancel(r)
		}
	}
}

func TestSubscriptionNumbersHaveBounds(t *testing.T) {
	var s Subscriptions
	for _, r := range []uint64{0, MaxReminder + 1, math.MaxUint64} {
		if s.Set(r, wire.KindOpens, 0, 0, 0) || s.Cancel(r) || s.Len() != 0 {
			t.Errorf("number %d is taken", r)
		}
		if (&Subscriptions{}).Restore(slices.Values([]Subscription{{R: r}})) {
			t.Errorf("number %d is restored", r)
		}
	}
	a := Anchors{Opens: start, Expires: start}
	for _, kind := range []string{wire.KindOpens, wire.KindExpires} {
		for _, r := range []uint64{MaxReminder, 1} {
			if !s.Set(r, kind, 0, 1, 0) {
				t.Fatalf("number %d is refused", r)
			}
		}
		if d := s.Chunk(kind, start, 1, 9, a); d.FromR != MaxReminder || d.Subscriptions != 1 {
			t.Errorf("after the first comes %v", d)
		}
		if d := s.Chunk(kind, start, MaxReminder, 9, a); d.Subscriptions != 0 {
			t.Errorf("after the last comes %v", d)
		}
		if fired := s.Fire(wire.DueSet{Kind: kind, DueAt: start, ThroughR: math.MaxUint64}, a, nil); !slices.Equal(fired, []uint64{1, MaxReminder}) {
			t.Errorf("fired are %v", fired)
		}
	}
	if s.p != nil {
		t.Error("nothing is pending, and something is kept")
	}
	if (&Subscriptions{}).Restore(slices.Values([]Subscription{{R: 2}, {R: 2}})) {
		t.Error("the same number is restored twice")
	}
}

// TestMemoryFollowsWhatIsPending: numbers rise for ever, and what was pending once is not paid for.
func TestMemoryFollowsWhatIsPending(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for name, survives := range map[string]func(r int) bool{
		"the newest": func(r int) bool { return r >= 100_000 }, "one of a thousand": func(r int) bool { return r%1000 == 0 },
		"some": func(int) bool { return rnd.IntN(50) == 0 }, "the oldest": func(r int) bool { return r < 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			var s Subscriptions
			for r := range 101_000 {
				s.Set(uint64(r+1), wire.KindExpires, time.Hour, uint32(r+1), start+wire.Instant(r/4)*minute)
			}
			for r := range 101_000 {
				if !survives(r) {
					s.Cancel(uint64(r + 1))
				}
			}
			records, groups, ordered := 0, 0, 0
			for _, page := range s.p.pages {
				records += cap(page.records)
			}
			for _, page := range s.p.groups.pages {
				groups += cap(page.records)
			}
			for _, chunk := range s.p.series[atOwn].chunks {
				ordered += cap(chunk.ids)
			}
			slots, buckets := s.p.keys.Slots()
			what := fmt.Sprintf("%d pending: %d pages with %d records, %d groups, %d ordered, %d slots", s.Len(), len(s.p.pages), records, groups, ordered, slots)
			if n := s.Len(); records > 3*n || len(s.p.pages) > n || ordered > 4*n+16 || slots > 8*n+8*buckets {
				t.Error(what)
			}
			if groups > groupsPage*s.Len() {
				t.Error(what)
			}
		})
	}
}

// TestManyGroupsInAnyOrder: expiries that do not come in order split the lists of groups in their middle.
func TestManyGroupsInAnyOrder(t *testing.T) {
	for seed := range uint64(2) {
		choose := randomChooser(seed)
		g := &subscriptionsRig{now: start + day, anchors: Anchors{Opens: start + hour, Expires: start + day}}
		for range 3000 {
			g.lastR++
			s := Subscription{R: g.lastR, Kind: wire.KindExpires, Before: time.Hour, N: uint32(g.lastR), Own: start + wire.Instant(choose(3*int(day/second)))*second}
			g.subs.Set(s.R, s.Kind, s.Before, s.N, s.Own)
			g.naive.list = append(g.naive.list, s)
		}
		g.check(t)
		for i := range g.naive.list { // some of them all together, in any order
			if s := &g.naive.list[i]; i%3 == 0 {
				s.Own = start + 2*day
				g.subs.Move(s.N, s.Own)
			}
		}
		for range 2000 {
			r := 1 + uint64(choose(int(g.lastR)))
			if got, want := g.subs.Cancel(r), g.naive.cancel(r); got != want {
				t.Fatalf("cancelling %d: %v, want %v", r, got, want)
			}
		}
		g.check(t)
		g.fire(t, func(n int) int { return n - 1 })
		g.check(t)
	}
}
