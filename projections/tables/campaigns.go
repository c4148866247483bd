package tables

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
)

func (f *fold) created(e *wire.Event) error {
	if f.campaigns[e.Campaign] != nil {
		return duplicateRow("campaign_key")
	}
	s := e.Settings
	f.campaigns[e.Campaign] = &campaign{
		name: e.Campaign, status: "active", created: &creation{at: e.At, number: e.Number}, settings: &s, changed: true,
		maxRedemptions: max(s.MaxRedemptions, 1), expiresAt: s.ExpiresAt, namedOpensAt: s.OpensAt,
	}
	return nil
}

// updated replaces the settings. Coupons that inherit the campaign's expiry, and reminders anchored to its opening or
// end, move with it.
func (f *fold) updated(c *campaign, e *wire.Event) (recount string) {
	s := e.Settings
	if s.ExpiresAt != c.expiresAt {
		f.remindersMove(c, reminderMove{kind: wire.KindExpires, anchor: s.ExpiresAt})
	}
	if s.OpensAt != c.namedOpensAt {
		f.remindersMove(c, reminderMove{kind: wire.KindOpens, anchor: s.OpensAt})
	}
	if s.ExpiresAt != c.expiresAt { // those that inherit it are counted in the campaign's row
		c.expiresAt, c.endProcessedAt = s.ExpiresAt, 0
	}
	c.namedOpensAt = s.OpensAt
	if int64(s.Codes)+c.imported > c.claimed {
		c.soldOutAt = 0
	}
	c.settings, c.changed = &s, true
	if most := max(s.MaxRedemptions, 1); most != c.maxRedemptions {
		c.maxRedemptions = most
		return c.name
	}
	return ""
}

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
		rows.Add(c.name, c.status, orNull(set.Category), c.claimed, c.redeemed, c.voided, opens, closing(set), set.ExpiresAt, c.created.at,
			f.lane, c.created.number, set.PerCustomer, c.maxRedemptions, orNull(int64(set.ValidFor/time.Microsecond)), orNull(set.Prefix),
			orNull(set.Priority), orNull(pgcopy.Clean(string(set.Benefit))), c.soldOutAt, c.expiredThrough, set.OpensAt,
			set.Codes, c.imported, c.highest, c.inheritingLive, c.inheritingRedeemed, c.endProcessedAt,
			c.statsDay, c.today.claimed, c.today.redeemed, c.today.rolledBack, c.today.voided)
	}
	return rows.Send(ctx, tx, In(f.schema, "scrip.campaign"), `campaign, status, category, claimed, redeemed, voided, opens_at, closes_at, expires_at,
		created_at, lane, number, per_customer, max_redemptions, valid_for_us, prefix, priority, benefit, sold_out_at, expired_through,
		named_opens_at, generated_codes, imported_codes, highest, inheriting_live, inheriting_redeemed, end_processed_at,
		stats_day, day_claimed, day_redeemed, day_rolled_back, day_voided`)
}

// orNull is a value, NULL if it is zero.
func orNull[T comparable](v T) any {
	var zero T
	if v == zero {
		return nil
	}
	return v
}

func closing(s *wire.Settings) wire.Instant {
	if s.ClosesAt != 0 {
		return s.ClosesAt
	}
	return s.ExpiresAt
}

const changeSettingsSQL = `
UPDATE scrip.campaign c SET category = nullif(d.category, ''), prefix = nullif(d.prefix, ''), priority = nullif(d.priority, ''),
    benefit = nullif(d.benefit, ''), generated_codes = d.generated, per_customer = d.per_customer, max_redemptions = d.most,
    valid_for_us = nullif(d.valid_for, 0), named_opens_at = d.opens, opens_at = coalesce(d.opens, c.created_at),
    closes_at = d.closes, expires_at = d.expires, removed = false
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[],
    $9::bigint[], $10::timestamptz[], $11::timestamptz[], $12::timestamptz[])
    d (campaign, category, prefix, priority, benefit, generated, per_customer, most, valid_for, opens, closes, expires)
WHERE c.campaign = d.campaign`

func (f *fold) changeSettings(w *writer) {
	var rows arrays
	for _, c := range f.sorted {
		if set := c.settings; set != nil && c.created == nil {
			rows.add(c.name, set.Category, set.Prefix, set.Priority, pgcopy.Clean(string(set.Benefit)), set.Codes, set.PerCustomer, c.maxRedemptions,
				int64(set.ValidFor/time.Microsecond), set.OpensAt, closing(set), set.ExpiresAt)
		}
	}
	w.change(changeSettingsSQL, &rows)
}

const writeCountsSQL = `
UPDATE scrip.campaign c SET status = d.status, sold_out_at = d.sold_out_at, expired_through = d.expired_through, end_processed_at = d.end_processed_at,
    end_removed = c.end_removed AND c.end_processed_at IS NOT DISTINCT FROM d.end_processed_at, claimed = d.claimed, redeemed = d.redeemed, own_expired = d.own_expired, voided = d.voided, imported_codes = d.imported,
    highest = d.highest, inheriting_live = d.live, inheriting_redeemed = d.spent,
    stats_day = d.day, day_claimed = d.day_claimed, day_redeemed = d.day_redeemed, day_rolled_back = d.day_rolled_back, day_voided = d.day_voided
FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::bigint[], $7::bigint[], $8::bigint[],
    $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::timestamptz[], $15::bigint[], $16::bigint[],
    $17::bigint[], $18::bigint[])
    d (campaign, status, sold_out_at, expired_through, end_processed_at, claimed, redeemed, own_expired, voided, imported, highest, live, spent,
    day, day_claimed, day_redeemed, day_rolled_back, day_voided)
WHERE c.campaign = d.campaign`

// The columns that a claim changes. Most batches need no more, and each further array costs time.
const writeClaimedSQL = `
UPDATE scrip.campaign c SET claimed = d.claimed, highest = d.highest, inheriting_live = d.live, stats_day = d.day, day_claimed = d.today
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::timestamptz[], $6::bigint[]) d (campaign, claimed, highest, live, day, today)
WHERE c.campaign = d.campaign`

// writeCounts writes the columns of a campaign that every batch changes.
func (f *fold) writeCounts(w *writer) {
	var changed, counted arrays
	for _, c := range f.sorted {
		switch {
		case c.created != nil && len(c.crossings) == 0: // already copied
		case c.changed:
			changed.add(c.name, c.status, c.soldOutAt, c.expiredThrough, c.endProcessedAt, c.claimed, c.redeemed, c.ownExpired, c.voided, c.imported, c.highest,
				c.inheritingLive, c.inheritingRedeemed, c.statsDay, c.today.claimed, c.today.redeemed, c.today.rolledBack, c.today.voided)
		case c.counted:
			counted.add(c.name, c.claimed, c.highest, c.inheritingLive, c.statsDay, c.today.claimed)
		}
	}
	w.change(writeCountsSQL, &changed)
	w.change(writeClaimedSQL, &counted)
}

// campaignEvent is a new row of campaign_event.
type campaignEvent struct {
	campaign, kind, by string
	position           int64
	at                 wire.Instant
}

func (f *fold) copyCampaignEvents(ctx context.Context, tx pgx.Tx) error {
	var rows pgcopy.Rows
	for _, e := range f.changes {
		rows.Add(e.position, e.at, e.campaign, e.kind, orNull(e.by))
	}
	return rows.Send(ctx, tx, In(f.schema, "scrip.campaign_event"), "place, at, campaign, type, by")
}
