package tables

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
)

// Tasks that must exist: those whose counts decrease, those that were processed before this batch, and the one at the
// expiry of a campaign in which some coupon is counted. They are only changed, never created: a processed task that
// does not exist was cleaned up.
//
// $1, $2 = campaign, due_at   $3, $4 = by how much
const changeTasksSQL = `
UPDATE scrip.expiry_task t SET live = t.live + d.live, redeemed = t.redeemed + d.redeemed
FROM unnest($1::text[], $2::timestamptz[], $3::bigint[], $4::bigint[]) d (campaign, due_at, live, redeemed)
WHERE t.campaign = d.campaign AND t.due_at = d.due_at`

// Tasks whose counts only increase and that were not processed.
//
// $1..$4 as above   $5 = lane
const addTasksSQL = `
INSERT INTO scrip.expiry_task AS t (campaign, due_at, live, redeemed, lane, state)
SELECT d.campaign, d.due_at, d.live, d.redeemed, $5::bigint, 'pending'
FROM unnest($1::text[], $2::timestamptz[], $3::bigint[], $4::bigint[]) d (campaign, due_at, live, redeemed)
ON CONFLICT (campaign, due_at) DO UPDATE SET live = t.live + excluded.live, redeemed = t.redeemed + excluded.redeemed`

// Announced: pending tasks become processed; returns how many coupons expired.
//
// $1 = campaign   $2, $3 = tasks due after the one and up to the other   $4 = time of the event
const fallSQL = `
WITH fallen AS (
    UPDATE scrip.expiry_task t SET state = 'processed', processed_at = d.at
    FROM unnest($1::text[], $2::timestamptz[], $3::timestamptz[], $4::timestamptz[]) d (campaign, behind, through, at)
    WHERE t.campaign = d.campaign AND coalesce(t.state = 'pending', false) AND t.due_at > d.behind AND t.due_at <= d.through
    RETURNING t.campaign, t.live)
SELECT campaign, sum(live)::bigint FROM fallen GROUP BY campaign`

// A task in which no coupon is counted any more: all moved to other tasks or are void.
//
// $1, $2 = campaign, due_at
const dropEmptySQL = `
DELETE FROM scrip.expiry_task t USING unnest($1::text[], $2::timestamptz[]) d (campaign, due_at)
WHERE t.campaign = d.campaign AND t.due_at = d.due_at AND coalesce(t.live = 0 AND t.redeemed = 0, false)`

// taskColumns are the arrays of the statements above.
type taskColumns struct {
	campaign       []string
	due            instants
	live, redeemed []int64
}

func (s *taskColumns) add(campaign string, t *task) {
	s.campaign, s.due = append(s.campaign, campaign), s.due.add(t.due)
	s.live, s.redeemed = append(s.live, t.live), append(s.redeemed, t.redeemed)
}

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
			rows.Row(6)
			rows.Instant(t.due)
			rows.Int64(t.live)
			rows.Int64(t.redeemed)
			rows.Int64(int64(f.lane))
			rows.Text(c.name)
			rows.Text("pending")
		}
	}
	return rows.Send(ctx, tx, in(f.schema, "scrip.expiry_task"), "due_at, live, redeemed, lane, campaign, state")
}

// writeTasks changes expiry_task and, for campaigns in which coupons expired, campaign.expired; that number is known
// after the queued statements were sent. crossed reports whether there is such a campaign.
func (f *fold) writeTasks(w *writer) (crossed bool) {
	var there, gain, shrunk taskColumns
	var campaigns []string
	var behind, through, at instants
	for _, c := range f.sorted {
		for _, t := range c.tasks {
			if t.live == 0 && t.redeemed == 0 {
				continue
			}
			columns := &gain
			switch {
			case c.created != nil: // copied
				continue
			case t.due <= c.through:
				columns = &there
				c.expired, c.changed = c.expired+t.live, true
			case t.due == c.hasTask:
				columns = &there
			}
			if t.live < 0 || t.redeemed < 0 {
				columns = &there
				shrunk.campaign, shrunk.due = append(shrunk.campaign, c.name), shrunk.due.add(t.due)
			}
			columns.add(c.name, t)
		}
		from := c.through
		for _, x := range c.crossings {
			campaigns, behind, through, at = append(campaigns, c.name), behind.add(max(from, 1)), through.add(x.through), at.add(x.at)
			from = x.through
		}
	}
	if len(there.due) > 0 {
		w.queue(changeTasksSQL, there.campaign, there.due, there.live, there.redeemed)
	}
	if len(gain.due) > 0 {
		w.queue(addTasksSQL, gain.campaign, gain.due, gain.live, gain.redeemed, int64(f.lane))
	}
	if len(campaigns) > 0 {
		w.queue(fallSQL, campaigns, behind, through, at).Query(f.countFallen)
	}
	if len(shrunk.due) > 0 {
		w.queue(dropEmptySQL, shrunk.campaign, shrunk.due)
	}
	return len(campaigns) > 0
}

func (f *fold) countFallen(rows pgx.Rows) error {
	defer rows.Close()
	for rows.Next() {
		var name string
		var live int64
		if err := rows.Scan(&name, &live); err != nil {
			return err
		}
		f.campaigns[name].expired += live
	}
	return rows.Err()
}

// Processed tasks are deleted after the retention. It is measured in lane time, so that rebuilt tables are the same.
//
// $1 = lane   $2 = processed before
const cleanUpSQL = `
DELETE FROM scrip.expiry_task WHERE state = 'processed' AND due_at < $2 AND processed_at < $2 AND lane = $1`

// copyExpiries writes the announced expiries.
func (f *fold) copyExpiries(ctx context.Context, tx pgx.Tx) error {
	var rows pgcopy.Rows
	for _, c := range f.sorted {
		for _, x := range c.crossings {
			rows.Row(5)
			rows.Instant(x.through)
			rows.Instant(x.at)
			rows.Int64(x.position)
			rows.Instant(x.end)
			rows.Text(c.name)
		}
	}
	return rows.Send(ctx, tx, in(f.schema, "scrip.expiry_event"), "through, at, place, campaign_end, campaign")
}
