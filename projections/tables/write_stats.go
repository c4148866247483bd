package tables

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
)

// copyTotals writes the totals of new campaigns, none of which can exist yet.
func (f *fold) copyTotals(ctx context.Context, tx pgx.Tx) error {
	var rows pgcopy.Rows
	for _, c := range f.sorted {
		if c.created == nil {
			continue
		}
		for _, t := range c.totals {
			rows.Row(8)
			rows.Instant(t.day)
			for _, count := range [...]int64{t.claimed, t.redeemed, t.rolledBack, t.voided} {
				rows.Int64(count)
			}
			rows.Text(c.name)
			rows.Text("")
			rows.Text("")
		}
	}
	return rows.Send(ctx, tx, in(f.schema, "scrip.campaign_stats"), "day, claimed, redeemed, rolled_back, voided, campaign, attribute, value")
}

const writeStatsSQL = `
INSERT INTO scrip.campaign_stats AS s (campaign, day, attribute, value, claimed, redeemed, rolled_back, voided)
SELECT * FROM unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
ON CONFLICT (campaign, day, attribute, value) DO UPDATE SET claimed = s.claimed + excluded.claimed,
    redeemed = s.redeemed + excluded.redeemed, rolled_back = s.rolled_back + excluded.rolled_back, voided = s.voided + excluded.voided`

// Totals that exist for certain: a plain update costs less than the statement above. OFFSET 0 hides from the planner
// that attribute and value are constants: it would use them to find rows of all campaigns.
const changeTotalsSQL = `
UPDATE scrip.campaign_stats s SET claimed = s.claimed + d.claimed, redeemed = s.redeemed + d.redeemed,
    rolled_back = s.rolled_back + d.rolled_back, voided = s.voided + d.voided
FROM (SELECT *, '' AS none FROM unnest($1::text[], $2::timestamptz[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
    u (campaign, day, claimed, redeemed, rolled_back, voided) OFFSET 0) d
WHERE s.campaign = d.campaign AND s.day = d.day AND s.attribute = d.none AND s.value = d.none`

// The same for one day and only claims.
//
// $1 = day   $2, $3 = campaign, by how much
const changeClaimedTotalsSQL = `
UPDATE scrip.campaign_stats s SET claimed = s.claimed + d.claimed
FROM (SELECT *, $1::timestamptz AS day, '' AS none FROM unnest($2::text[], $3::bigint[]) u (campaign, claimed) OFFSET 0) d
WHERE s.campaign = d.campaign AND s.day = d.day AND s.attribute = d.none AND s.value = d.none`

// statColumns are the arrays of writeStatsSQL and, without attribute and value, of changeTotalsSQL.
type statColumns struct {
	campaign, attribute, value            []string
	day                                   instants
	claimed, redeemed, rolledBack, voided []int64
}

// key adds a row without counts.
func (s *statColumns) key(c *campaign, k statKey) {
	s.campaign, s.day = append(s.campaign, c.name), s.day.add(k.day)
	s.attribute, s.value = append(s.attribute, k.attribute), append(s.value, k.value)
}

func (s *statColumns) add(campaign string, day wire.Instant, d *stat) {
	s.campaign, s.day = append(s.campaign, campaign), s.day.add(day)
	s.claimed, s.redeemed = append(s.claimed, d.claimed), append(s.redeemed, d.redeemed)
	s.rolledBack, s.voided = append(s.rolledBack, d.rolledBack), append(s.voided, d.voided)
}

// writeStats adds to campaign_stats.
func (f *fold) writeStats(w *writer) {
	var made, there statColumns
	var claimedNames []string
	var claimed []int64
	var day wire.Instant // of those
	for _, c := range f.sorted {
		for _, t := range c.totals {
			switch {
			case c.created != nil: // copied
			case t.day != c.hasTotal:
				made.add(c.name, t.day, &t.stat)
				made.attribute, made.value = append(made.attribute, ""), append(made.value, "")
			case t.stat == stat{claimed: t.claimed} && (day == 0 || day == t.day):
				day = t.day
				claimedNames, claimed = append(claimedNames, c.name), append(claimed, t.claimed)
			default:
				there.add(c.name, t.day, &t.stat)
			}
		}
		for key, s := range c.stats {
			made.add(c.name, key.day, s)
			made.attribute, made.value = append(made.attribute, key.attribute), append(made.value, key.value)
		}
	}
	if len(made.campaign) > 0 {
		w.queue(writeStatsSQL, made.campaign, made.day, made.attribute, made.value, made.claimed, made.redeemed, made.rolledBack, made.voided)
	}
	if len(there.campaign) > 0 {
		w.queue(changeTotalsSQL, there.campaign, there.day, there.claimed, there.redeemed, there.rolledBack, there.voided)
	}
	if len(claimed) > 0 {
		w.queue(changeClaimedTotalsSQL, timestamp(day), claimedNames, claimed)
	}
}

const writeRefusalsSQL = `
INSERT INTO scrip.refusal_stats AS s (lane, campaign, day, reason, refused)
SELECT $5::bigint, * FROM unnest($1::text[], $2::timestamptz[], $3::text[], $4::bigint[])
ON CONFLICT (lane, campaign, day, reason) DO UPDATE SET refused = s.refused + excluded.refused`

// writeRefusals adds to refusal_stats.
func (f *fold) writeRefusals(w *writer) {
	if len(f.refusals) == 0 {
		return
	}
	var campaigns, reasons []string
	var days instants
	var counts []int64
	for key, n := range f.refusals {
		campaigns, days, reasons, counts = append(campaigns, key.campaign), days.add(key.day), append(reasons, key.reason), append(counts, n)
	}
	w.queue(writeRefusalsSQL, campaigns, days, reasons, counts, int64(f.lane))
}
