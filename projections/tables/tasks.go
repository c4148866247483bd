package tables

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
)

// A claimed coupon is counted in exactly one way:
//
//	void       campaign.voided
//	redeemed   campaign.redeemed, and as redeemed below     all uses spent
//	live       as live below                                else; shown as pending or as expired
//
// where the counts below are those of expiry_own at its own expiry, or if it has none, inheriting_live and inheriting_redeemed
// of the campaign, which move with the campaign's end. Whether live ones have expired is not counted but follows from
// due_at <= campaign.expired_through. So every event moves a coupon from one count to another, these changes may be added in any
// order, and announcing an expiry changes no count.
//
// campaign.own_expired is the sum of live over the processed tasks. A batch changes it by what it adds to tasks that were
// processed before, and by the sum over those that it processes.

// task has the changes of a batch to one row of expiry_own.
type task struct {
	due            wire.Instant
	live, redeemed int64
}

// crossing is one coupons.expired: tasks due up to through are processed. end is the campaign's expiry, if it was one
// of them.
type crossing struct {
	through, at, end wire.Instant
	position         int64
}

// add adds coupon k of c to the counts of its state; sign -1 subtracts it.
func (c *campaign) add(k *coupon, sign int64) {
	switch {
	case k.voidedAt != 0:
		c.voided += sign
	case k.redeemedCount >= c.maxRedemptions:
		c.redeemed += sign
		if k.ownExpiry == 0 {
			c.inheritingRedeemed += sign
		} else {
			c.task(k.ownExpiry).redeemed += sign
		}
	case k.ownExpiry == 0:
		c.inheritingLive += sign
	default:
		c.task(k.ownExpiry).live += sign
	}
}

// task returns the task of an instant, creating it if needed. A batch changes few of a campaign: own expiries are at least
// minutes apart, and coupons that are adjacent in the log share them.
func (c *campaign) task(due wire.Instant) *task {
	if c.last != nil && c.last.due == due {
		return c.last
	}
	i, found := slices.BinarySearchFunc(c.tasks, due, func(t *task, due wire.Instant) int { return cmp.Compare(t.due, due) })
	if !found {
		c.tasks = slices.Insert(c.tasks, i, &task{due: due})
	}
	c.last = c.tasks[i]
	return c.last
}

// expire advances the watermark.
func (c *campaign) expire(l *Line) {
	e := &l.Event
	if e.Through <= c.expiredThrough {
		return
	}
	x := crossing{through: e.Through, at: e.At, position: l.position()}
	if c.expiresAt > c.expiredThrough && c.expiresAt <= e.Through {
		x.end, c.endProcessedAt = c.expiresAt, e.At
	}
	c.expiredThrough = e.Through
	c.crossings = append(c.crossings, x)
}

// When a campaign's max_redemptions changes, any of its coupons may become fully redeemed or redeemable. Then all rows
// of the campaign are read: about a second per million coupons. This is rare, and no other event does it. Due instants
// do not change, so every task keeps its row.
//
// $1 = campaign
const recountCampaignSQL = `
UPDATE scrip.campaign c SET redeemed = x.redeemed + coalesce(m.redeemed, 0), own_expired = x.expired + coalesce(m.expired, 0),
    inheriting_live = x.inheriting_live, inheriting_redeemed = x.inheriting_redeemed
FROM (SELECT coalesce(sum(coupons) FILTER (WHERE spent), 0) AS redeemed,
             coalesce(sum(coupons) FILTER (WHERE NOT spent AND expires_at <= expired_through), 0) AS expired,
             coalesce(sum(coupons) FILTER (WHERE NOT spent AND expires_at IS NULL), 0) AS inheriting_live,
             coalesce(sum(coupons) FILTER (WHERE spent AND expires_at IS NULL), 0) AS inheriting_redeemed
      FROM (` + recountedSQL + `) y) x,
     (SELECT max(redeemed) AS redeemed, max(expired) AS expired FROM scrip.removal WHERE campaign = $1) m
WHERE c.campaign = $1`

// $1 = campaign
const recountTasksSQL = `
UPDATE scrip.expiry_own t SET live = x.live, redeemed = x.redeemed
FROM (SELECT expires_at AS due_at, coalesce(sum(coupons) FILTER (WHERE NOT spent), 0) AS live,
             coalesce(sum(coupons) FILTER (WHERE spent), 0) AS redeemed
      FROM (` + recountedSQL + `) y GROUP BY 1) x
WHERE t.campaign = $1 AND t.due_at = x.due_at`

// The coupons that are not void: each with a row, and those of each allotment without one.
const recountedSQL = `
SELECT r.expires_at, k.expired_through, r.redeemed_count >= k.max_redemptions AS spent, 1 AS coupons
FROM scrip.coupon_row r JOIN scrip.campaign k ON k.campaign = r.campaign
WHERE r.campaign = $1 AND r.voided_at IS NULL
UNION ALL SELECT a.expires_at, k.expired_through, false, a.through_n - a.from_n + 1
    - (SELECT count(*) FROM scrip.coupon_row r WHERE r.campaign = a.campaign AND r.n BETWEEN a.from_n AND a.through_n)
FROM scrip.allotment a JOIN scrip.campaign k ON k.campaign = a.campaign WHERE a.campaign = $1
  AND NOT EXISTS (SELECT FROM scrip.removal m WHERE m.campaign = a.campaign AND m.through >= a.from_n)`

func recount(ctx context.Context, tx pgx.Tx, schema, campaign string) error {
	batch := &pgx.Batch{}
	batch.Queue(In(schema, recountCampaignSQL), campaign)
	batch.Queue(In(schema, recountTasksSQL), campaign)
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("counting the coupons of %s again: %w", campaign, err)
	}
	return nil
}

// Tasks that must exist: those whose counts decrease, and those that were processed before this batch. They are only changed,
// never created: a processed task that does not exist was cleaned up.
//
// $1, $2 = campaign, due_at   $3, $4 = by how much
const changeTasksSQL = `
UPDATE scrip.expiry_own t SET live = t.live + d.live, redeemed = t.redeemed + d.redeemed
FROM unnest($1::text[], $2::timestamptz[], $3::bigint[], $4::bigint[]) d (campaign, due_at, live, redeemed)
WHERE t.campaign = d.campaign AND t.due_at = d.due_at`

// Tasks whose counts only increase and that were not processed.
//
// $1..$4 as above   $5 = lane
const addTasksSQL = `
INSERT INTO scrip.expiry_own AS t (campaign, due_at, live, redeemed, lane)
SELECT d.campaign, d.due_at, d.live, d.redeemed, $5::bigint
FROM unnest($1::text[], $2::timestamptz[], $3::bigint[], $4::bigint[]) d (campaign, due_at, live, redeemed)
ON CONFLICT (campaign, due_at) DO UPDATE SET live = t.live + excluded.live, redeemed = t.redeemed + excluded.redeemed`

// Announced: pending tasks become processed; returns how many coupons expired.
//
// $1 = campaign   $2, $3 = tasks due after the one and up to the other   $4 = time of the event
const fallSQL = `
WITH fallen AS (
    UPDATE scrip.expiry_own t SET processed_at = d.at
    FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[], $4::timestamptz[]) d (campaign, after, through, at)
    WHERE t.campaign = d.campaign AND coalesce(t.processed_at IS NULL, false) AND t.due_at > d.after AND t.due_at <= d.through
    RETURNING t.campaign, t.live)
SELECT campaign, sum(live)::bigint FROM fallen GROUP BY campaign`

// A task in which no coupon is counted any more: all moved to other tasks or are void.
//
// $1, $2 = campaign, due_at
const dropEmptySQL = `
DELETE FROM scrip.expiry_own t USING unnest($1::text[], $2::timestamptz[]) d (campaign, due_at)
WHERE t.campaign = d.campaign AND t.due_at = d.due_at AND coalesce(t.live = 0 AND t.redeemed = 0, false)`

// copyTasks writes the tasks of new campaigns, none of which can exist yet.
func (f *fold) copyTasks(ctx context.Context, tx pgx.Tx) error {
	var rows pgcopy.Rows
	for _, c := range f.sorted {
		if c.created == nil {
			continue
		}
		for _, t := range c.tasks {
			if t.live == 0 && t.redeemed == 0 {
				continue
			}
			rows.Add(t.due, t.live, t.redeemed, f.lane, c.name)
		}
	}
	return rows.Send(ctx, tx, In(f.schema, "scrip.expiry_own"), "due_at, live, redeemed, lane, campaign")
}

// writeTasks changes expiry_own and, for campaigns in which coupons expired, campaign.own_expired; that number is known
// after the queued statements were sent. crossed reports whether there is such a campaign.
func (f *fold) writeTasks(w *writer) (crossed bool) {
	var there, gain, shrunk, fallen arrays
	for _, c := range f.sorted {
		for _, t := range c.tasks {
			if t.live == 0 && t.redeemed == 0 {
				continue
			}
			rows := &gain
			switch {
			case c.created != nil: // copied
				continue
			case t.due <= c.through:
				rows = &there
				c.ownExpired, c.changed = c.ownExpired+t.live, true
			}
			if t.live < 0 || t.redeemed < 0 {
				rows = &there
				shrunk.add(c.name, t.due)
			}
			rows.add(c.name, t.due, t.live, t.redeemed)
		}
		from := c.through
		for _, x := range c.crossings {
			fallen.add(c.name, max(from, 1), x.through, x.at)
			from = x.through
		}
	}
	w.change(changeTasksSQL, &there)
	w.change(addTasksSQL, &gain, int64(f.lane))
	falls := w.change(fallSQL, &fallen)
	if falls != nil {
		falls.Query(each(f.countFallen))
	}
	w.change(dropEmptySQL, &shrunk)
	return falls != nil
}

func (f *fold) countFallen(row pgx.Rows) error {
	var name string
	var live int64
	err := row.Scan(&name, &live)
	if err == nil {
		f.campaigns[name].ownExpired += live
	}
	return err
}

// copyExpiries writes the announced expiries.
func (f *fold) copyExpiries(ctx context.Context, tx pgx.Tx) error {
	var rows pgcopy.Rows
	for _, c := range f.sorted {
		for _, x := range c.crossings {
			rows.Add(x.through, x.at, x.position, x.end, c.name)
		}
	}
	return rows.Send(ctx, tx, In(f.schema, "scrip.expiry_event"), "through, at, place, campaign_end, campaign")
}
