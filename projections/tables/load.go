package tables

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// $1 = campaigns
const loadCampaignsSQL = `
SELECT c.campaign, status, max_redemptions, expires_at, named_opens_at, expired_through, sold_out_at, end_processed_at,
       claimed, redeemed, own_expired, voided, imported_codes, highest, inheriting_live, inheriting_redeemed,
       stats_day, day_claimed, day_redeemed, day_rolled_back, day_voided,
       coalesce((SELECT m.through FROM scrip.removal m WHERE m.campaign = c.campaign), 0)
FROM unnest($1::text[]) k (campaign) JOIN scrip.campaign c ON c.campaign = k.campaign`

// A coupon is in one segment, or in a merged one and its sources with the same values: newer ones are looked at first, and
// the first that has it ends the search.
//
// $1, $2 = campaigns and numbers of coupons, pairwise
const loadCouponsSQL = `
SELECT k.campaign, k.n, r.code, r.customer_id, r.attributes, CASE WHEN s.n IS NULL THEN r.expires_at ELSE s.expires_at END,
    coalesce(s.redeemed_count, 0), s.redeemed_at, s.voided_at, s.void_reason
FROM unnest($1::text[], $2::bigint[]) k (campaign, n)
CROSS JOIN LATERAL (SELECT * FROM scrip.coupon_claim r WHERE r.campaign = k.campaign AND r.n = k.n LIMIT 1) r
LEFT JOIN scrip.coupon_state s ON s.campaign = k.campaign AND s.n = k.n`

// touched is what must be loaded from the tables before a batch can be folded.
type touched struct {
	campaigns, coupons arrays             // their keys
	listed             map[couponKey]bool // the same coupons
	acts               bool               // some line changes a coupon
}

type couponKey struct {
	campaign string
	n        uint32
}

// touches collects the campaigns of all lines, and the coupons that they change but do not claim.
func touches(lines []Line) touched {
	var t touched
	known := make(map[string]bool)
	claimed := make(map[couponKey]bool)
	t.listed = make(map[couponKey]bool)
	t.acts = actsOnCoupons(lines)
	for i := range lines {
		e := &lines[i].Event
		if lines[i].Problem != nil || e.Campaign == "" {
			continue
		}
		if !known[e.Campaign] {
			known[e.Campaign] = true
			t.campaigns.add(e.Campaign)
		}
		if !t.acts || e.N == 0 {
			continue // a batch with only claims, the common case, needs no more
		}
		key := couponKey{e.Campaign, e.N}
		switch {
		case e.Type == wire.CouponClaimed:
			claimed[key] = true
		case actsOnCoupon(e) && !claimed[key] && !t.listed[key]:
			t.listed[key] = true
			t.coupons.add(e.Campaign, e.N)
		}
	}
	if t.campaigns.columns != nil {
		slices.Sort(t.campaigns.columns[0].texts) // neighbours share pages
	}
	return t
}

func actsOnCoupons(lines []Line) bool {
	for i := range lines {
		if lines[i].Problem == nil && actsOnCoupon(&lines[i].Event) {
			return true
		}
	}
	return false
}

// actsOnCoupon reports whether the fold of e needs its coupon's row: to change it, or because the reminder that e sets
// is due by the coupon's own expiry.
func actsOnCoupon(e *wire.Event) bool {
	return e.Type.ChangesCoupon() || e.Type == wire.ReminderSet && e.N != 0
}

// load reads what a batch needs, in one round trip, and in others what those do not find: a segment was just begun, or the batch
// changes printed coupons for the first time.
func (f *fold) load(ctx context.Context, tx pgx.Tx, t touched) error {
	w := &writer{tx: tx, schema: f.schema}
	if campaigns := w.change(loadCampaignsSQL, &t.campaigns); campaigns != nil {
		campaigns.Query(each(f.scanCampaign))
	}
	if coupons := w.change(loadCouponsSQL, &t.coupons); coupons != nil {
		coupons.Query(each(f.scanCoupon))
	}
	if err := w.flush(ctx); err != nil {
		return fmt.Errorf("reading the rows to change: %w", err)
	}
	for _, segment := range f.unlisted {
		missing := f.missing(t)
		if coupons := w.change(strings.Replace(loadCouponsSQL, "scrip.coupon_claim ", "scrip."+SegmentTable(segment)+" ", 1), &missing); coupons != nil {
			coupons.Query(each(f.scanCoupon))
		}
		if err := w.flush(ctx); err != nil {
			return fmt.Errorf("reading the rows of segment %d to change: %w", segment, err)
		}
	}
	printed := f.missing(t)
	if coupons := w.change(loadPrintedSQL, &printed); coupons != nil {
		coupons.Query(each(f.scanPrinted))
	}
	if err := w.flush(ctx); err != nil {
		return fmt.Errorf("reading the allotments of coupons to change: %w", err)
	}
	return nil
}

// missing returns the coupons of a batch that were not found, of campaigns that were.
func (f *fold) missing(t touched) (keys arrays) {
	for key := range t.listed {
		if c := f.campaigns[key.campaign]; c != nil && c.coupons[key.n] == nil {
			keys.add(key.campaign, key.n)
		}
	}
	return keys
}

// each scans the rows of a result.
func each(scan func(pgx.Rows) error) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		defer rows.Close()
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

func (f *fold) scanCampaign(rows pgx.Rows) error {
	c := &campaign{}
	var most int64
	var expires, opens, through, soldOut, processed, statsDay pgtype.Timestamptz
	err := rows.Scan(&c.name, &c.status, &most, &expires, &opens, &through, &soldOut, &processed,
		&c.claimed, &c.redeemed, &c.ownExpired, &c.voided, &c.imported, &c.highest, &c.inheritingLive, &c.inheritingRedeemed,
		&statsDay, &c.today.claimed, &c.today.redeemed, &c.today.rolledBack, &c.today.voided, &c.removed)
	if err != nil {
		return err
	}
	c.maxRedemptions = uint32(most)
	c.expiresAt, c.namedOpensAt, c.soldOutAt = instantOf(expires), instantOf(opens), instantOf(soldOut)
	c.expiredThrough = instantOf(through)
	c.through = c.expiredThrough
	c.endProcessedAt, c.statsDay = instantOf(processed), instantOf(statsDay)
	f.campaigns[c.name] = c
	return nil
}

func (f *fold) scanCoupon(rows pgx.Rows) error {
	k := &coupon{}
	var name string
	var n, count int64
	var reason pgtype.Text
	var own, redeemed, voided pgtype.Timestamptz
	if err := rows.Scan(&name, &n, &k.code, &k.customer, &k.attributes, &own, &count, &redeemed, &voided, &reason); err != nil {
		return err
	}
	k.n, k.redeemedCount, k.voidReason = uint32(n), uint32(count), reason.String
	k.ownExpiry, k.redeemedAt, k.voidedAt = instantOf(own), instantOf(redeemed), instantOf(voided)
	if c := f.campaigns[name]; c != nil {
		c.keep(k)
	}
	return nil
}

func (c *campaign) keep(k *coupon) {
	if c.coupons == nil {
		c.coupons = make(map[uint32]*coupon)
	}
	c.coupons[k.n] = k
}

func instantOf(t pgtype.Timestamptz) wire.Instant {
	if !t.Valid {
		return 0
	}
	return wire.At(t.Time)
}

// timestamp returns an instant as an argument for PostgreSQL; 0 is NULL.
func timestamp(at wire.Instant) pgtype.Timestamptz {
	return pgtype.Timestamptz{Time: at.Time(), Valid: at != 0}
}
