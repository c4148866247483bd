package tables

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// cleanUp moves lane time on, and removes old rows when that crosses midnight UTC: before the first event of the day, because
// what happens to a coupon that has left changes nothing. All is measured in lane time, so that rebuilt tables are the same.
func cleanUp(ctx context.Context, tx pgx.Tx, b *Batch, clock *wire.Instant, to wire.Instant) error {
	today, before := dayOf(to), *clock
	if *clock = max(before, to); before != 0 && today <= dayOf(before) {
		return nil
	}
	batch := &pgx.Batch{}
	processed := timestamp(today.Add(-cmp.Or(b.Retention, DefaultRetention)))
	batch.Queue(In(b.Schema, cleanUpSQL), int64(b.Lane), processed)
	batch.Queue(In(b.Schema, cleanUpEndsSQL), int64(b.Lane), processed)
	batch.Queue(In(b.Schema, removeSQL), int64(b.Lane), timestamp(today))
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("removing old rows: %w", err)
	}
	return nil
}

// Processed tasks.
//
// $1 = lane   $2 = processed before
const (
	cleanUpSQL     = `DELETE FROM scrip.expiry_own WHERE due_at < $2 AND processed_at < $2 AND lane = $1`
	cleanUpEndsSQL = `UPDATE scrip.campaign SET end_removed = true WHERE NOT end_removed AND expires_at < $2 AND end_processed_at < $2 AND lane = $1`
)

// Coupons of campaigns that ended so many days ago, when no expiry task of their own is left: the row of the campaign, its events
// and its counts by day remain. Views hide the rows from now on, and Leaving deletes them later, so this costs as many rows as
// there are campaigns. See tables removal and leaving.
//
// $1 = lane   $2 = midnight
const removeSQL = `
WITH ended AS (
    UPDATE scrip.campaign c SET removed = true, own_expired = c.expired, inheriting_live = 0, inheriting_redeemed = 0
    FROM (SELECT $2::timestamptz - keep_days * interval '24 hours' AS before FROM scrip_meta.format WHERE keep_days > 0) f
    WHERE c.lane = $1 AND NOT c.removed AND (c.expires_at < f.before AND c.end_processed_at < f.before
        OR c.expires_at IS NULL AND c.status = 'ended' AND c.inheriting_live = 0 AND EXISTS (
            SELECT FROM scrip.campaign_event e WHERE e.campaign = c.campaign AND e.type = 'campaign.ended' AND e.at < f.before))
      AND NOT EXISTS (SELECT FROM scrip.expiry_own t WHERE t.campaign = c.campaign)
    RETURNING c.campaign, c.highest, c.redeemed, c.own_expired, c.expired_through),
removed AS (INSERT INTO scrip.removal AS m (campaign, through, redeemed, expired) SELECT campaign, highest, redeemed, own_expired FROM ended
    ON CONFLICT (campaign) DO UPDATE SET through = excluded.through, redeemed = excluded.redeemed, expired = excluded.expired)
INSERT INTO scrip.leaving AS l (campaign, through, reminders, expiries)
SELECT campaign, highest, (SELECT max(r.r) FROM scrip.reminder r WHERE r.campaign = e.campaign), expired_through FROM ended e
ON CONFLICT (campaign) DO UPDATE SET through = excluded.through, reminders = greatest(l.reminders, excluded.reminders),
    expiries = excluded.expiries`
