package tables

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// When a campaign's max_redemptions changes, which coupons are spent changes for all of them at once. That is rare, and
// the only thing that reads all rows of a campaign: about a second per million coupons. Due instants do not change by
// it, so every task keeps its row.
//
// $1 = campaign
const recountCampaignSQL = `
UPDATE scrip.campaign c SET redeemed = x.redeemed, expired = x.expired,
    inheriting_live = x.inheriting_live, inheriting_redeemed = x.inheriting_redeemed
FROM (SELECT count(*) FILTER (WHERE spent) AS redeemed,
             count(*) FILTER (WHERE NOT spent AND coalesce(expires_at, ends_at) <= expired_through) AS expired,
             count(*) FILTER (WHERE NOT spent AND expires_at IS NULL) AS inheriting_live,
             count(*) FILTER (WHERE spent AND expires_at IS NULL) AS inheriting_redeemed
      FROM (SELECT r.expires_at, k.expires_at AS ends_at, k.expired_through, r.redeemed_count >= k.max_redemptions AS spent
            FROM scrip.coupon_row r JOIN scrip.campaign k ON k.campaign = r.campaign
            WHERE r.campaign = $1 AND r.voided_at IS NULL) y) x
WHERE c.campaign = $1`

// $1 = campaign
const recountTasksSQL = `
UPDATE scrip.expiry_task t SET live = x.live, redeemed = x.redeemed
FROM (SELECT coalesce(r.expires_at, k.expires_at) AS due_at,
             count(*) FILTER (WHERE r.redeemed_count < k.max_redemptions) AS live,
             count(*) FILTER (WHERE r.redeemed_count >= k.max_redemptions) AS redeemed
      FROM scrip.coupon_row r JOIN scrip.campaign k ON k.campaign = r.campaign
      WHERE r.campaign = $1 AND r.voided_at IS NULL GROUP BY 1) x
WHERE t.campaign = $1 AND t.due_at = x.due_at`

func recount(ctx context.Context, tx pgx.Tx, schema, campaign string) error {
	batch := &pgx.Batch{}
	batch.Queue(in(schema, recountCampaignSQL), campaign)
	batch.Queue(in(schema, recountTasksSQL), campaign)
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("counting the coupons of %s anew: %w", campaign, err)
	}
	return nil
}
