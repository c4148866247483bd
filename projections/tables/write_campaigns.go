package tables

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
)

// copyCampaigns writes new campaigns with all their changes in this batch except expired coupons: their number is known
// later, and writeCounts writes it.
func (f *fold) copyCampaigns(ctx context.Context, tx pgx.Tx) error {
	var rows pgcopy.Rows
	for _, c := range f.sorted {
		if c.created == nil {
			continue
		}
		set := c.settings
		opens := set.OpensAt
		if opens == 0 {
			opens = c.created.at
		}
		rows.Row(27)
		rows.Text(c.name)
		rows.Text(c.status)
		rows.TextOrNull(set.Category)
		for _, count := range [...]int64{c.claimed, c.redeemed, c.expired, c.voided} {
			rows.Int64(count)
		}
		rows.Instant(opens)
		rows.Instant(closing(set))
		rows.Instant(set.ExpiresAt)
		rows.Instant(c.created.at)
		rows.Int64(int64(f.lane))
		rows.Int64(int64(c.created.number))
		rows.Int64(int64(set.PerCustomer))
		rows.Int64(int64(c.maxRedemptions))
		rows.Int64OrNull(int64(set.ValidFor / time.Microsecond))
		rows.TextOrNull(set.Prefix)
		rows.TextOrNull(set.Priority)
		rows.TextOrNull(pgcopy.Clean(string(set.Benefit)))
		rows.Instant(c.soldOutAt)
		rows.Instant(c.expiredThrough)
		rows.Instant(set.OpensAt)
		rows.Instant(c.statsDay)
		for _, count := range [...]int64{int64(set.Codes), c.imported, c.inheritingLive, c.inheritingRedeemed} {
			rows.Int64(count)
		}
	}
	return rows.Send(ctx, tx, in(f.schema, "scrip.campaign"), `campaign, status, category, claimed, redeemed, expired, voided, opens_at, closes_at, expires_at,
		created_at, lane, number, per_customer, max_redemptions, valid_for_us, prefix, priority, benefit, sold_out_at, expired_through,
		named_opens_at, stats_day, generated_codes, imported_codes, inheriting_live, inheriting_redeemed`)
}

func closing(s *wire.Settings) wire.Instant {
	if s.ClosesAt != 0 {
		return s.ClosesAt
	}
	return s.ExpiresAt
}

// settingsColumns are the arguments of changeSettingsSQL, one array each.
type settingsColumns struct {
	campaign, category, prefix, priority, benefit    []string
	generated, perCustomer, maxRedemptions, validFor []int64
	namedOpens, closes, expires                      instants
}

func (s *settingsColumns) add(c *campaign) {
	set := c.settings
	s.campaign = append(s.campaign, c.name)
	s.category = append(s.category, set.Category)
	s.prefix = append(s.prefix, set.Prefix)
	s.priority = append(s.priority, set.Priority)
	s.benefit = append(s.benefit, pgcopy.Clean(string(set.Benefit)))
	s.generated = append(s.generated, int64(set.Codes))
	s.perCustomer = append(s.perCustomer, int64(set.PerCustomer))
	s.maxRedemptions = append(s.maxRedemptions, int64(c.maxRedemptions))
	s.validFor = append(s.validFor, int64(set.ValidFor/time.Microsecond))
	s.namedOpens = s.namedOpens.add(set.OpensAt)
	s.closes = s.closes.add(closing(set))
	s.expires = s.expires.add(set.ExpiresAt)
}

const changeSettingsSQL = `
UPDATE scrip.campaign c SET category = nullif(d.category, ''), prefix = nullif(d.prefix, ''), priority = nullif(d.priority, ''),
    benefit = nullif(d.benefit, ''), generated_codes = d.generated, per_customer = d.per_customer, max_redemptions = d.most,
    valid_for_us = nullif(d.valid_for, 0), named_opens_at = d.opens, opens_at = coalesce(d.opens, c.created_at),
    closes_at = d.closes, expires_at = d.expires
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[],
    $9::bigint[], $10::timestamptz[], $11::timestamptz[], $12::timestamptz[])
    d (campaign, category, prefix, priority, benefit, generated, per_customer, most, valid_for, opens, closes, expires)
WHERE c.campaign = d.campaign`

func (f *fold) changeSettings(w *writer) {
	var s settingsColumns
	for _, c := range f.sorted {
		if c.settings != nil && c.created == nil {
			s.add(c)
		}
	}
	if len(s.campaign) > 0 {
		w.queue(changeSettingsSQL, s.campaign, s.category, s.prefix, s.priority, s.benefit, s.generated, s.perCustomer, s.maxRedemptions,
			s.validFor, s.namedOpens, s.closes, s.expires)
	}
}

const writeCountsSQL = `
UPDATE scrip.campaign c SET status = d.status, sold_out_at = d.sold_out_at, expired_through = d.expired_through, stats_day = d.stats_day,
    claimed = d.claimed, redeemed = d.redeemed, expired = d.expired, voided = d.voided, imported_codes = d.imported,
    inheriting_live = d.live, inheriting_redeemed = d.spent
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::bigint[], $7::bigint[], $8::bigint[],
    $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[])
    d (campaign, status, sold_out_at, expired_through, stats_day, claimed, redeemed, expired, voided, imported, live, spent)
WHERE c.campaign = d.campaign`

// The columns that a claim changes. Most batches need no more, and each further array costs time.
const writeClaimedSQL = `
UPDATE scrip.campaign c SET claimed = d.claimed, inheriting_live = d.live
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) d (campaign, claimed, live)
WHERE c.campaign = d.campaign`

// writeCounts writes the columns of a campaign that every batch changes.
func (f *fold) writeCounts(w *writer) {
	var names, statuses, countedNames []string
	var soldOut, through, days instants
	var claimed, redeemed, expired, voided, imported, live, spent, countedClaimed, countedLive []int64
	for _, c := range f.sorted {
		switch {
		case c.created != nil && len(c.crossings) == 0: // already copied
		case c.changed:
			names, statuses = append(names, c.name), append(statuses, c.status)
			soldOut, through, days = soldOut.add(c.soldOutAt), through.add(c.expiredThrough), days.add(c.statsDay)
			claimed, redeemed, expired, voided = append(claimed, c.claimed), append(redeemed, c.redeemed), append(expired, c.expired), append(voided, c.voided)
			imported, live, spent = append(imported, c.imported), append(live, c.inheritingLive), append(spent, c.inheritingRedeemed)
		case c.counted:
			countedNames = append(countedNames, c.name)
			countedClaimed, countedLive = append(countedClaimed, c.claimed), append(countedLive, c.inheritingLive)
		}
	}
	if len(names) > 0 {
		w.queue(writeCountsSQL, names, statuses, soldOut, through, days, claimed, redeemed, expired, voided, imported, live, spent)
	}
	if len(countedNames) > 0 {
		w.queue(writeClaimedSQL, countedNames, countedClaimed, countedLive)
	}
}
