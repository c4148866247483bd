package tables

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

const (
	// countedValues is how many values of one attribute have rows of their own in campaign_stats, per campaign and day: the
	// first in the order of the log. A producer chooses the values, and each row is kept.
	countedValues = 1000
	// countedNames is how many attributes have rows of their own, per campaign and day: the first in the order of the log.
	countedNames = 64
	// further is the value under which the other values are counted together, and the name and value for the other
	// attributes. A claim with this text as a value or a name is counted there too.
	further = "…"
)

// $1..$4 = day, campaign, attribute, value
const knownValuesSQL = `
SELECT k.i FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY k (day, campaign, attribute, value, i)
JOIN scrip.day_stats s ON s.campaign = k.campaign AND s.day = k.day AND s.attribute = k.attribute AND s.value = k.value`

// The rows of an attribute, and the values among them.
//
// $1..$3 = day, campaign, attribute   $4 = countedValues   $5 = further
const countValuesSQL = `
SELECT k.i, EXISTS (SELECT FROM scrip.day_stats s WHERE s.campaign = k.campaign AND s.day = k.day AND s.attribute = k.attribute),
    (SELECT count(*) FROM (SELECT 1 FROM scrip.day_stats s
    WHERE s.campaign = k.campaign AND s.day = k.day AND s.attribute = k.attribute AND s.value <> $5::text LIMIT $4::bigint) x)
FROM unnest($1::timestamptz[], $2::text[], $3::text[]) WITH ORDINALITY k (day, campaign, attribute, i)`

// The attributes of a day. It steps from name to name in the primary key: an attribute may have 1,000 rows.
//
// $1, $2 = day, campaign   $3 = further
const countNamesSQL = `
SELECT k.i, (WITH RECURSIVE name (attribute) AS (
        SELECT '' COLLATE "C"
    UNION ALL
        SELECT (SELECT s.attribute FROM scrip.day_stats s WHERE s.campaign = k.campaign AND s.day = k.day AND s.attribute > n.attribute
            ORDER BY s.attribute LIMIT 1) FROM name n WHERE n.attribute IS NOT NULL)
    SELECT count(*) FROM name WHERE attribute NOT IN ('', $3::text))
FROM unnest($1::timestamptz[], $2::text[]) WITH ORDINALITY k (day, campaign, i)`

// boundStats moves counts of attributes beyond countedNames, and of values beyond countedValues, to further. Which have
// rows of their own depends only on the order of their first occurrence in the log: on the rows written before this
// batch and, within it, on the order of calls of fold.count. So live tables, a rebuild and verify agree, whatever their
// batches.
func (f *fold) boundStats(ctx context.Context, tx pgx.Tx) error {
	type today struct { // a campaign on one day
		campaign *campaign
		names    int64
	}
	type group struct { // the values of one attribute on that day
		*today
		named bool // has a row
		rows  int64
	}
	type entry struct {
		*group
		key   statKey
		known bool // has a row
	}
	var days []*today
	var groups []*group
	var entries []entry
	var dayRows, groupRows, keyRows arrays
	for _, c := range f.sorted {
		byDay, byName := make(map[wire.Instant]*today), make(map[statKey]*group) // without value
		for _, key := range c.statOrder {
			d := byDay[key.day]
			if d == nil {
				d = &today{campaign: c}
				byDay[key.day], days = d, append(days, d)
				dayRows.add(key.day, c.name)
			}
			name := statKey{day: key.day, attribute: key.attribute}
			g := byName[name]
			if g == nil {
				g = &group{today: d}
				byName[name], groups = g, append(groups, g)
				groupRows.add(key.day, c.name, key.attribute)
			}
			entries = append(entries, entry{group: g, key: key})
			keyRows.add(key.day, c.name, key.attribute, key.value)
		}
	}
	if len(entries) == 0 {
		return nil
	}
	w := &writer{tx: tx, schema: f.schema}
	var ordinal, count int64 // ordinals start at 1
	var named bool
	scanned := func(into []any, do func()) func(pgx.Rows) error {
		return func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, into, func() error { do(); return nil })
			return err
		}
	}
	w.change(countNamesSQL, &dayRows, further).
		Query(scanned([]any{&ordinal, &count}, func() { days[ordinal-1].names = count }))
	w.change(countValuesSQL, &groupRows, countedValues, further).
		Query(scanned([]any{&ordinal, &named, &count}, func() { groups[ordinal-1].named, groups[ordinal-1].rows = named, count }))
	w.change(knownValuesSQL, &keyRows).
		Query(scanned([]any{&ordinal}, func() { entries[ordinal-1].known = true }))
	if err := w.flush(ctx); err != nil {
		return fmt.Errorf("counting the attributes of claims: %w", err)
	}
	for _, e := range entries {
		to := e.key
		switch {
		case e.key.attribute == further, !e.named && e.names >= countedNames:
			to.attribute, to.value = further, further
		case !e.named:
			e.named = true
			e.names++
		}
		switch {
		case e.known || to.value == further:
		case e.rows < countedValues:
			e.rows++
		default:
			to.value = further
		}
		if c := e.campaign; to != e.key {
			c.stat(to).add(*c.stats[e.key])
			delete(c.stats, e.key)
		}
	}
	return nil
}
