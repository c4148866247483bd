package tables

import (
	"maps"
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
)

// settingsColumns are the arguments $1..$13 of the two statements below, one array each.
type settingsColumns struct {
	campaign, category, prefix, priority, benefit    []string
	generated, perCustomer, maxRedemptions, validFor []int64
	namedOpens, closes, expires, created             instants
	lane, number                                     []int64
}

func (s *settingsColumns) add(c *campaign, lane int) {
	set := c.settings
	s.campaign = append(s.campaign, c.name)
	s.category = append(s.category, set.Category)
	s.prefix = append(s.prefix, set.Prefix)
	s.priority = append(s.priority, set.Priority)
	s.benefit = append(s.benefit, clean(string(set.Benefit)))
	s.generated = append(s.generated, int64(set.Codes))
	s.perCustomer = append(s.perCustomer, int64(set.PerCustomer))
	s.maxRedemptions = append(s.maxRedemptions, int64(c.maxRedemptions))
	s.validFor = append(s.validFor, int64(set.ValidFor/time.Microsecond))
	s.namedOpens = s.namedOpens.add(set.OpensAt)
	closes := set.ClosesAt
	if closes == 0 {
		closes = set.ExpiresAt
	}
	s.closes = s.closes.add(closes)
	s.expires = s.expires.add(set.ExpiresAt)
	if c.created != nil {
		s.created = s.created.add(c.created.at)
		s.lane, s.number = append(s.lane, int64(lane)), append(s.number, int64(c.created.number))
	}
}

func (s *settingsColumns) args() []any {
	args := []any{s.campaign, s.category, s.prefix, s.priority, s.benefit, s.generated, s.perCustomer, s.maxRedemptions,
		s.validFor, s.namedOpens, s.closes, s.expires}
	if len(s.created) > 0 {
		args = append(args, s.created, s.lane, s.number)
	}
	return args
}

// Counts come with writeCounts, as for every other campaign.
const createCampaignsSQL = `
INSERT INTO scrip.campaign (campaign, category, prefix, priority, benefit, generated_codes, per_customer, max_redemptions,
    valid_for_us, named_opens_at, opens_at, closes_at, expires_at, created_at, lane, number,
    status, claimed, redeemed, expired, voided, imported_codes, inheriting_live, inheriting_redeemed)
SELECT campaign, nullif(category, ''), nullif(prefix, ''), nullif(priority, ''), nullif(benefit, ''), generated, per_customer, most,
    nullif(valid_for, 0), opens, coalesce(opens, created), closes, expires, created, lane, number,
    'active', 0, 0, 0, 0, 0, 0, 0
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[],
    $9::bigint[], $10::timestamptz[], $11::timestamptz[], $12::timestamptz[], $13::timestamptz[], $14::bigint[], $15::bigint[])
    d (campaign, category, prefix, priority, benefit, generated, per_customer, most, valid_for, opens, closes, expires, created, lane, number)`

const changeSettingsSQL = `
UPDATE scrip.campaign c SET category = nullif(d.category, ''), prefix = nullif(d.prefix, ''), priority = nullif(d.priority, ''),
    benefit = nullif(d.benefit, ''), generated_codes = d.generated, per_customer = d.per_customer, max_redemptions = d.most,
    valid_for_us = nullif(d.valid_for, 0), named_opens_at = d.opens, opens_at = coalesce(d.opens, c.created_at),
    closes_at = d.closes, expires_at = d.expires
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[],
    $9::bigint[], $10::timestamptz[], $11::timestamptz[], $12::timestamptz[])
    d (campaign, category, prefix, priority, benefit, generated, per_customer, most, valid_for, opens, closes, expires)
WHERE c.campaign = d.campaign`

// writeCampaigns makes new campaigns and changes settings.
func (f *fold) writeCampaigns(w *writer) {
	var created, changed settingsColumns
	for _, c := range f.campaigns {
		switch {
		case c.settings == nil:
		case c.created != nil:
			created.add(c, f.lane)
		default:
			changed.add(c, f.lane)
		}
	}
	if len(created.campaign) > 0 {
		w.queue(createCampaignsSQL, created.args()...)
	}
	if len(changed.campaign) > 0 {
		w.queue(changeSettingsSQL, changed.args()...)
	}
}

const writeCountsSQL = `
UPDATE scrip.campaign c SET status = d.status, sold_out_at = d.sold_out_at, expired_through = d.expired_through,
    claimed = d.claimed, redeemed = d.redeemed, expired = d.expired, voided = d.voided, imported_codes = d.imported,
    inheriting_live = d.live, inheriting_redeemed = d.spent
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[])
    d (campaign, status, sold_out_at, expired_through, claimed, redeemed, expired, voided, imported, live, spent)
WHERE c.campaign = d.campaign`

// writeCounts writes what every batch changes of a campaign.
func (f *fold) writeCounts(w *writer) {
	var names, statuses []string
	var soldOut, through instants
	var claimed, redeemed, expired, voided, imported, live, spent []int64
	for _, c := range f.campaigns {
		if !c.changed {
			continue
		}
		names, statuses = append(names, c.name), append(statuses, c.status)
		soldOut, through = soldOut.add(c.soldOutAt), through.add(c.expiredThrough)
		claimed, redeemed, expired, voided = append(claimed, c.claimed), append(redeemed, c.redeemed), append(expired, c.expired), append(voided, c.voided)
		imported, live, spent = append(imported, c.imported), append(live, c.inheritingLive), append(spent, c.inheritingRedeemed)
	}
	if len(names) > 0 {
		w.queue(writeCountsSQL, names, statuses, soldOut, through, claimed, redeemed, expired, voided, imported, live, spent)
	}
}

// writeStats adds to campaign_stats.
func (f *fold) writeStats(w *writer) {
	var campaigns, attributes, values []string
	var days instants
	var claimed, redeemed, rolledBack, voided []int64
	for _, c := range f.campaigns {
		for key, s := range c.stats {
			campaigns, attributes, values, days = append(campaigns, c.name), append(attributes, key.attribute), append(values, key.value), days.add(key.day)
			claimed, redeemed = append(claimed, s.claimed), append(redeemed, s.redeemed)
			rolledBack, voided = append(rolledBack, s.rolledBack), append(voided, s.voided)
		}
	}
	if len(campaigns) > 0 {
		w.queue(writeStatsSQL, campaigns, days, attributes, values, claimed, redeemed, rolledBack, voided)
	}
}

const writeStatsSQL = `
INSERT INTO scrip.campaign_stats AS s (campaign, day, attribute, value, claimed, redeemed, rolled_back, voided)
SELECT * FROM unnest($1::text[], $2::timestamptz[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[])
ON CONFLICT (campaign, day, attribute, value) DO UPDATE SET claimed = s.claimed + excluded.claimed,
    redeemed = s.redeemed + excluded.redeemed, rolled_back = s.rolled_back + excluded.rolled_back, voided = s.voided + excluded.voided`

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

// sortedDues lists the tasks a batch changes in the order of their instants.
func (c *campaign) sortedDues() []domain.Instant { return slices.Sorted(maps.Keys(c.tasks)) }
