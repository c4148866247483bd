package hold

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/priority"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

const (
	// mostOfOne bounds what is held back of one customer: with as many, what may go goes, and what comes then waits for a
	// message of its own.
	mostOfOne = 32
	// step is how exact instants are.
	step = 50 * time.Millisecond
	// fewItems are folded without other goroutines.
	fewItems = 500
)

// seed makes hashes, of this process only.
var seed = maphash.MakeSeed()

// hashOf is the hash of a line's key or of a customer, never 0.
func hashOf(text string) uint64 { return max(maphash.String(seed, text), 1) }

// line is what the reminders of one line have in common.
type line struct {
	event wire.Event // without customers
	class priority.Priority
	n     uint64 // rising in the order in which lines came
	key   string // in run.lines
	hash  uint64 // of the event
	held  int    // reminders
}

// input is a message of a lane with reminders that may be held.
type input struct {
	sequence uint64
	left     int    // reminders that are not let out
	out      uint64 // what SCRIP_PUSH_OUT ended with when it was read
}

// item is a reminder that is held.
type item struct {
	of   *line
	from *input
	r    uint64
}

// identity is a hash of all that a reminder is.
func identity(line uint64, customer string, r uint64) uint64 {
	return maphash.Comparable(seed, struct {
		line, r  uint64
		customer string
	}{line, r, customer})
}

// passes is when a reminder is of no use any more; zero = never.
func (i *item) passes() time.Time {
	if ev := &i.of.event; ev.Kind == wire.KindExpires {
		return ev.DueAt.Time().Add(ev.Before)
	}
	return time.Time{}
}

// person has what is held back of one customer.
type person struct {
	id    string
	zone  *time.Location // nil = not known
	items []item
	due   wire.Instant // when it is looked at next
	why   string       // it had to wait longer than the window, for this reason
}

// rules are the settings in force.
type rules struct {
	merge time.Duration
	most  int // messages a day; 0 = no limit
	quiet settings.Quiet
	zone  *time.Location
}

func rulesOf(s *settings.Settings) rules {
	zone, ok := wire.Zone(s.PushZone)
	if !ok {
		zone = time.UTC
	}
	return rules{merge: s.PushMerge, most: s.PushCap, quiet: s.PushQuiet, zone: zone}
}

// day is how many messages a customer got on one.
type day struct {
	n    int32 // as dayOf
	sent int32
}

func dayOf(t time.Time) int32 {
	y, m, d := t.Date()
	return int32(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400)
}

// shard has some of the customers. It is owned by one goroutine at a time and does no I/O.
type shard struct {
	people map[string]*person
	at     map[wire.Instant][]*person // by due; those that are not due then have been moved
	order  []wire.Instant             // the instants of at, rising
	over   parcels                    // what is let out next, whatever is due
	days   map[uint64]day             // by the hash of the customer
}

func newShard() *shard {
	return &shard{people: map[string]*person{}, at: map[wire.Instant][]*person{}, over: parcels{}, days: map[uint64]day{}}
}

// add takes in a reminder, at an instant of the machine's clock.
func (s *shard) add(customer string, it item, now time.Time, r *rules) {
	p := s.people[customer]
	if p == nil {
		p = &person{id: customer}
		s.people[customer] = p
		s.schedule(p, now.Add(window(it.of, now, r)))
	}
	if zone, ok := wire.Zone(it.of.event.Zone); ok {
		p.zone = zone
	}
	p.items = append(p.items, it)
	switch full := len(p.items) > mostOfOne; {
	case p.why != "" && full:
		s.over.add(p.id, p.items[:1:1], p.why)
		p.items = append([]item(nil), p.items[1:]...)
	case p.why == "" && (full || it.of.class == priority.High):
		s.schedule(p, now)
	}
}

// window is how long what is first of a customer waits for others: from when it fired, also if it is read late.
func window(l *line, now time.Time, r *rules) time.Duration {
	if l.class == priority.High {
		return 0
	}
	return min(max(l.event.At.Time().Add(r.merge).Sub(now), 0), r.merge)
}

// schedule makes a customer due at an instant, rounded to a step.
func (s *shard) schedule(p *person, at time.Time) {
	const of = wire.Instant(step / time.Microsecond)
	p.due = (wire.At(at) + of - 1) / of * of
	if s.at[p.due] == nil {
		i, _ := slices.BinarySearch(s.order, p.due)
		s.order = slices.Insert(s.order, i, p.due)
	}
	s.at[p.due] = append(s.at[p.due], p)
}

// next is when the first is due; ok is false if none is.
func (s *shard) next() (first time.Time, ok bool) {
	if len(s.order) == 0 {
		return first, false
	}
	return s.order[0].Time(), true
}

// parcel is what customers get who get the same: a message about some reminders, or, with withheld, nothing.
type parcel struct {
	lines     []*line
	withheld  string
	customers []string
	items     [][]item // of each customer, one for each line
}

// parcels are by what is in them.
type parcels map[string]*parcel

func (all parcels) add(customer string, items []item, withheld string) {
	key := []byte(withheld)
	for i := range items {
		key = binary.LittleEndian.AppendUint64(key, items[i].of.n)
	}
	p := all[string(key)]
	if p == nil {
		p = &parcel{withheld: withheld}
		for i := range items {
			p.lines = append(p.lines, items[i].of)
		}
		all[string(key)] = p
	}
	p.customers, p.items = append(p.customers, customer), append(p.items, items)
}

// release returns what is let out at an instant.
func (s *shard) release(now time.Time, r *rules) parcels {
	all := s.over
	s.over = parcels{}
	for len(s.order) > 0 && !s.order[0].Time().After(now) {
		at := s.order[0]
		people := s.at[at]
		delete(s.at, at)
		s.order = s.order[1:]
		for _, p := range people {
			if p.due == at && s.people[p.id] == p {
				s.look(p, now, r, all)
			}
		}
	}
	return all
}

// look lets a customer's reminders out, or schedules them again.
func (s *shard) look(p *person, now time.Time, r *rules, all parcels) {
	next, why := s.mayAt(p, now, r)
	if why == "" {
		why = p.why // they waited for it until now
	}
	if why != "" {
		left := p.items[:0]
		for _, it := range p.items {
			if passes := it.passes(); !passes.IsZero() && !passes.After(next) {
				all.add(p.id, []item{it}, why)
			} else {
				left = append(left, it)
			}
		}
		clear(p.items[len(left):])
		p.items = left
	}
	switch {
	case len(p.items) > 0 && next.After(now):
		p.why = why
		s.schedule(p, next)
		return
	case len(p.items) > 0:
		for some := range slices.Chunk(p.items, mostOfOne) { // one, unless they waited for long
			slices.SortStableFunc(some, func(a, b item) int { return cmp.Compare(a.of.n, b.of.n) })
			s.count(p.id, now.In(zoneOf(p, r)), r)
			all.add(p.id, some, "")
		}
	}
	delete(s.people, p.id)
}

// zoneOf is the customer's time zone, where it is known.
func zoneOf(p *person, r *rules) *time.Location { return cmp.Or(p.zone, r.zone) }

// mayAt is when a customer may get a message: now, or later, with the reason.
func (s *shard) mayAt(p *person, now time.Time, r *rules) (at time.Time, why string) {
	local := now.In(zoneOf(p, r))
	if r.most > 0 {
		if d := s.days[hashOf(p.id)]; d.n == dayOf(local) && int(d.sent) >= r.most {
			y, m, n := local.Date()
			at = time.Date(y, m, n+1, 0, 0, 0, 0, local.Location())
			if !at.After(now) { // that day has no midnight
				at = at.Add(time.Hour)
			}
			if end, quiet := r.quiet.End(at); quiet {
				at = end
			}
			return at, wire.WithheldCap
		}
	}
	if end, quiet := r.quiet.End(local); quiet {
		return end, wire.WithheldQuiet
	}
	return now, ""
}

// count counts a message of a customer's day.
func (s *shard) count(customer string, local time.Time, r *rules) {
	if r.most == 0 {
		return
	}
	key, today := hashOf(customer), dayOf(local)
	d := s.days[key]
	if d.n != today {
		d = day{n: today}
	}
	d.sent++
	s.days[key] = d
}

// forget drops days that are over everywhere.
func (s *shard) forget(now time.Time) {
	maps.DeleteFunc(s.days, func(_ uint64, d day) bool { return d.n < dayOf(now.UTC())-1 })
}

// shards are all customers.
type shards []*shard

func newShards(n int) shards {
	all := make(shards, n)
	for i := range all {
		all[i] = newShard()
	}
	return all
}

// of is the shard of a hash.
func (all shards) of(hash uint64) *shard { return all[hash%uint64(len(all))] }

// each calls f for all shards, at the same time.
func (all shards) each(f func(n int, s *shard)) {
	var group sync.WaitGroup
	for n, s := range all[1:] {
		group.Go(func() { f(n+1, s) })
	}
	f(0, all[0])
	group.Wait()
}

// add takes in the reminders of a line, without those that skip returns true for.
func (all shards) add(l *line, from *input, customers []string, rs []uint64, now time.Time, r *rules, skip func(identity uint64) bool) {
	hashes := make([]uint64, len(customers))
	for i, c := range customers {
		if skip != nil && skip(identity(l.hash, c, rs[i])) {
			continue
		}
		hashes[i] = hashOf(c)
		l.held, from.left = l.held+1, from.left+1
	}
	to := func(only *shard) {
		for i, h := range hashes {
			if h == 0 {
				continue
			}
			if s := all.of(h); s == only || only == nil {
				s.add(customers[i], item{of: l, from: from, r: rs[i]}, now, r)
			}
		}
	}
	if len(customers) < fewItems {
		to(nil)
		return
	}
	all.each(func(_ int, s *shard) { to(s) })
}

// divide returns the same customers in another number of shards.
func (all shards) divide(n int) shards {
	made := newShards(n)
	for _, s := range all {
		for id, p := range s.people {
			to := made.of(hashOf(id))
			to.people[id] = p
			to.schedule(p, p.due.Time())
		}
		for _, o := range s.over {
			for i, c := range o.customers {
				made[0].over.add(c, o.items[i], o.withheld)
			}
		}
		for key, d := range s.days {
			made.of(key).days[key] = d
		}
	}
	return made
}

// again looks at all customers again, within the window: the clock was set back, or other rules are in force.
func (all shards) again(now time.Time, r *rules) {
	all.each(func(_ int, s *shard) {
		clear(s.at)
		s.order = nil
		for _, p := range s.people {
			at := now
			if p.why == "" {
				at = now.Add(window(p.items[0].of, now, r))
			}
			s.schedule(p, at)
		}
	})
}
