package tables

import (
	"encoding/json"
	"sort"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
)

// statKey identifies a row of campaign_stats within its campaign.
type statKey struct {
	day       wire.Instant
	attribute string
	value     string
}

// stat has the changes of a batch to one such row.
type stat struct{ claimed, redeemed, rolledBack, voided int64 }

func (s *stat) add(d stat) {
	s.claimed += d.claimed
	s.redeemed += d.redeemed
	s.rolledBack += d.rolledBack
	s.voided += d.voided
}

// total has the changes to the row of a day that counts the whole campaign.
type total struct {
	day wire.Instant
	stat
}

type refusalKey struct {
	campaign, reason string
	day              wire.Instant
}

// pair is one attribute of a claim.
type pair struct{ name, value string }

const dayLength wire.Instant = 24 * 60 * 60 * 1_000_000

// dayOf is the UTC day of an instant, at its start.
func dayOf(at wire.Instant) wire.Instant { return at - at%dayLength }

// count counts an event of coupon k: in the campaign's total of that day, and once per attribute of the claim.
func (f *fold) count(c *campaign, k *coupon, at wire.Instant, d stat) {
	day := dayOf(at)
	c.total(day).add(d)
	if len(k.attributes) == 0 {
		return
	}
	for _, p := range f.pairs(k.attributes) {
		c.stat(statKey{day, p.name, p.value}).add(d)
	}
}

// total returns the total of a day, creating it if needed. A batch changes one, seldom two.
func (c *campaign) total(day wire.Instant) *stat {
	for _, t := range c.totals {
		if t.day == day {
			return &t.stat
		}
	}
	t := &total{day: day}
	c.totals = append(c.totals, t)
	if day > c.statsDay {
		c.statsDay, c.changed = day, true
	}
	return &t.stat
}

func (c *campaign) stat(key statKey) *stat {
	s := c.stats[key]
	if s == nil {
		if c.stats == nil {
			c.stats = make(map[statKey]*stat)
		}
		s = &stat{}
		c.stats[key] = s
		c.statOrder = append(c.statOrder, key)
	}
	return s
}

// countedAttributes is how many attributes of a claim are counted, the first by name: each may add a row that is never
// deleted.
const countedAttributes = 8

// pairs parses attributes. Many claims have the same, so each is parsed once per batch. Attributes that are not a flat
// object are counted in the total only.
func (f *fold) pairs(attributes []byte) []pair {
	if list, known := f.attributes[string(attributes)]; known {
		return list
	}
	var fields map[string]json.RawMessage
	var list []pair
	if json.Unmarshal(attributes, &fields) == nil {
		for name, raw := range fields {
			if name == "" {
				continue // the total has this name
			}
			value := string(raw)
			if raw[0] == '"' && json.Unmarshal(raw, &value) != nil {
				continue
			}
			list = append(list, pair{pgcopy.Clean(name), pgcopy.Clean(strings.TrimSpace(value))})
		}
		sort.Slice(list, func(i, j int) bool { return list[i].name < list[j].name })
		list = list[:min(len(list), countedAttributes)]
	}
	if f.attributes == nil {
		f.attributes = make(map[string][]pair)
	}
	f.attributes[string(attributes)] = list
	return list
}

func (f *fold) refused(e *wire.Event, reason string, n int64) {
	if f.refusals == nil {
		f.refusals = make(map[refusalKey]int64)
	}
	f.refusals[refusalKey{e.Campaign, pgcopy.Clean(reason), dayOf(e.At)}] += n
}
