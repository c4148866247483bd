package tables

import (
	"encoding/json"
	"sort"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain"
)

// statKey names a row of campaign_stats within its campaign.
type statKey struct {
	day       domain.Instant
	attribute string
	value     string
}

// stat is by how much a batch changes one.
type stat struct{ claimed, redeemed, rolledBack, voided int64 }

type refusalKey struct {
	campaign, reason string
	day              domain.Instant
}

// pair is one attribute of a claim.
type pair struct{ name, value string }

const dayLength domain.Instant = 24 * 60 * 60 * 1_000_000

// dayOf is the UTC day of an instant, at its start.
func dayOf(at domain.Instant) domain.Instant { return at - at%dayLength }

// count counts something that happened to coupon k: in the campaign's total of that day, and once per attribute that
// the claim carried.
func (f *fold) count(c *campaign, k *coupon, at domain.Instant, add func(*stat)) {
	day := dayOf(at)
	if c.total == nil || c.day != day {
		c.total, c.day = c.stat(statKey{day: day}), day
	}
	add(c.total)
	if len(k.attributes) == 0 {
		return
	}
	for _, p := range f.pairs(k.attributes) {
		add(c.stat(statKey{day, p.name, p.value}))
	}
}

func (c *campaign) stat(key statKey) *stat {
	s := c.stats[key]
	if s == nil {
		if c.stats == nil {
			c.stats = make(map[statKey]*stat)
		}
		s = &stat{}
		c.stats[key] = s
	}
	return s
}

// pairs takes attributes apart. Many claims carry the same, so each is read once per batch. Attributes that are not a
// flat object count in the total only.
func (f *fold) pairs(attributes []byte) []pair {
	if list, known := f.attributes[string(attributes)]; known {
		return list
	}
	var fields map[string]json.RawMessage
	var list []pair
	if json.Unmarshal(attributes, &fields) == nil {
		for name, raw := range fields {
			if name == "" {
				continue // is the total's name
			}
			value := string(raw)
			if raw[0] == '"' && json.Unmarshal(raw, &value) != nil {
				continue
			}
			list = append(list, pair{clean(name), clean(strings.TrimSpace(value))})
		}
		sort.Slice(list, func(i, j int) bool { return list[i].name < list[j].name })
	}
	if f.attributes == nil {
		f.attributes = make(map[string][]pair)
	}
	f.attributes[string(attributes)] = list
	return list
}

func (f *fold) refused(e *domain.Event, reason string, n int64) {
	if f.refusals == nil {
		f.refusals = make(map[refusalKey]int64)
	}
	f.refusals[refusalKey{e.Campaign, clean(reason), dayOf(e.At)}] += n
}
