package tables

import (
	"encoding/json"
	"sort"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
)

// statKey identifies a row of day_stats within its campaign.
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

// total returns the total of a day. That of the newest one is in the campaign's row; with another day it moves to day_stats.
func (c *campaign) total(day wire.Instant) *stat {
	switch {
	case day == c.statsDay:
		return &c.today
	case day > c.statsDay:
		if c.statsDay != 0 {
			c.totals = append(c.totals, &total{c.statsDay, c.today})
			c.changed = true
		}
		c.statsDay, c.today = day, stat{}
		return &c.today
	}
	t := &total{day: day}
	c.totals = append(c.totals, t)
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

const writeStatsSQL = `
INSERT INTO scrip.day_stats AS s (campaign, day, attribute, value, claimed, redeemed, rolled_back, voided)
SELECT * FROM unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
ON CONFLICT (campaign, day, attribute, value) DO UPDATE SET claimed = s.claimed + excluded.claimed,
    redeemed = s.redeemed + excluded.redeemed, rolled_back = s.rolled_back + excluded.rolled_back, voided = s.voided + excluded.voided`

// writeStats adds to day_stats.
func (f *fold) writeStats(w *writer) {
	for _, c := range f.sorted {
		// One statement has a row once.
		for _, t := range c.totals {
			c.stat(statKey{day: t.day}).add(t.stat)
		}
	}
	var rows arrays
	for _, c := range f.sorted {
		for key, s := range c.stats {
			rows.add(c.name, key.day, key.attribute, key.value, s.claimed, s.redeemed, s.rolledBack, s.voided)
		}
	}
	w.change(writeStatsSQL, &rows)
}

const writeRefusalsSQL = `
INSERT INTO scrip.refusal_stats AS s (lane, campaign, day, reason, refused)
SELECT $5::bigint, * FROM unnest($1::text[], $2::timestamptz[], $3::text[], $4::bigint[])
ON CONFLICT (lane, campaign, day, reason) DO UPDATE SET refused = s.refused + excluded.refused`

// writeRefusals adds to refusal_stats.
func (f *fold) writeRefusals(w *writer) {
	var rows arrays
	for key, n := range f.refusals {
		rows.add(key.campaign, key.day, key.reason, n)
	}
	w.change(writeRefusalsSQL, &rows, int64(f.lane))
}
