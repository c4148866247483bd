package tables

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	// countedValues is how many values of one attribute have rows of their own in campaign_stats, per campaign and day: the
	// first in the order of the log. A producer chooses the values, and each row is kept.
	countedValues = 1000
	// furtherValues is the value under which the others are counted together. A claim with this text as its value is
	// counted there too.
	furtherValues = "…"
)

// $1..$4 = day, campaign, attribute, value
const knownValuesSQL = `
SELECT k.i FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::text[]) WITH ORDINALITY k (day, campaign, attribute, value, i)
JOIN scrip.campaign_stats s ON s.campaign = k.campaign AND s.day = k.day AND s.attribute = k.attribute AND s.value = k.value`

// $1..$3 = day, campaign, attribute   $4 = countedValues   $5 = furtherValues
const countValuesSQL = `
SELECT k.i, (SELECT count(*) FROM (SELECT 1 FROM scrip.campaign_stats s
    WHERE s.campaign = k.campaign AND s.day = k.day AND s.attribute = k.attribute AND s.value <> $5::text LIMIT $4::bigint) x)
FROM unnest($1::timestamptz[], $2::text[], $3::text[]) WITH ORDINALITY k (day, campaign, attribute, i)`

// boundValues moves counts of values beyond countedValues to furtherValues. Which values have rows depends only on the
// order of their first occurrence in the log: on the rows written before this batch and, within it, on the order of
// calls of fold.count. So live tables, a rebuild and verify agree, whatever their batches.
func (f *fold) boundValues(ctx context.Context, tx pgx.Tx) error {
	type group struct { // the values of one attribute of a campaign on one day
		campaign *campaign
		rows     int64
	}
	type entry struct {
		group *group
		key   statKey
		known bool // has a row
	}
	var entries []entry
	var found []*group
	var keys, groups statColumns
	for _, c := range f.sorted {
		if len(c.statOrder) == 0 {
			continue
		}
		byName := make(map[statKey]*group) // without value
		for _, key := range c.statOrder {
			if key.value == furtherValues {
				continue
			}
			name := statKey{day: key.day, attribute: key.attribute}
			g := byName[name]
			if g == nil {
				g = &group{campaign: c}
				byName[name], found = g, append(found, g)
				groups.day, groups.campaign = groups.day.add(key.day), append(groups.campaign, c.name)
				groups.attribute = append(groups.attribute, key.attribute)
			}
			entries = append(entries, entry{group: g, key: key})
			keys.day, keys.campaign = keys.day.add(key.day), append(keys.campaign, c.name)
			keys.attribute, keys.value = append(keys.attribute, key.attribute), append(keys.value, key.value)
		}
	}
	if len(entries) == 0 {
		return nil
	}
	batch := &pgx.Batch{}
	var place int64 // from 1
	batch.Queue(in(f.schema, knownValuesSQL), keys.day, keys.campaign, keys.attribute, keys.value).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&place}, func() error {
			entries[place-1].known = true
			return nil
		})
		return err
	})
	var count int64
	batch.Queue(in(f.schema, countValuesSQL), groups.day, groups.campaign, groups.attribute, countedValues, furtherValues).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&place, &count}, func() error {
			found[place-1].rows = count
			return nil
		})
		return err
	})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("counting the values of attributes: %w", err)
	}
	for _, e := range entries {
		switch {
		case e.known:
		case e.group.rows < countedValues:
			e.group.rows++
		default:
			c := e.group.campaign
			further := e.key
			further.value = furtherValues
			c.stat(further).add(*c.stats[e.key])
			delete(c.stats, e.key)
		}
	}
	return nil
}
