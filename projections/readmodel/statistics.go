package readmodel

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Day is what happened in a campaign on one day of UTC: in all, or for one value of an attribute of the claims.
type Day struct {
	Day        time.Time        `json:"day" doc:"Its beginning, in UTC."`
	Value      string           `json:"value,omitempty" doc:"Of the attribute."`
	Claimed    int64            `json:"claimed"`
	Redeemed   int64            `json:"redeemed"`
	RolledBack int64            `json:"rolled_back"`
	Voided     int64            `json:"voided"`
	Refused    map[string]int64 `json:"refused,omitempty" doc:"Commands that were refused, by reason; not by attribute."`
}

// DayPlace is where a page of days ends. The zero value is the beginning.
type DayPlace struct {
	Day   time.Time
	Value string
}

// daysSQL is a page of days, newest first: $1 the campaign, $2 the attribute, ” = the totals, $3 and $4 the place, $5 the most rows.
const daysSQL = `
SELECT s.day, s.value, sum(s.claimed)::bigint, sum(s.redeemed)::bigint, sum(s.rolled_back)::bigint, sum(s.voided)::bigint,
       jsonb_object_agg(s.reason, s.refused) FILTER (WHERE s.reason IS NOT NULL)
FROM (SELECT day, value, claimed, redeemed, rolled_back, voided, NULL AS reason, 0 AS refused FROM scrip.campaign_stats WHERE campaign = $1 AND attribute = $2
      UNION ALL
      SELECT day, '', 0, 0, 0, 0, reason, sum(refused) FROM scrip.refusal_stats WHERE campaign = $1 AND $2::text = '' GROUP BY day, reason) s
WHERE $3::timestamptz IS NULL OR s.day < $3 OR s.day = $3 AND s.value > $4
GROUP BY s.day, s.value ORDER BY s.day DESC, s.value LIMIT $5`

// Days returns up to limit days of a campaign, newest first.
func (c *Coupons) Days(ctx context.Context, campaign, attribute string, after DayPlace, limit int) ([]Day, error) {
	return query(ctx, c, func(row pgx.CollectableRow) (d Day, err error) {
		err = row.Scan(&d.Day, &d.Value, &d.Claimed, &d.Redeemed, &d.RolledBack, &d.Voided, &d.Refused)
		d.Day = d.Day.UTC()
		return d, err
	}, daysSQL, campaign, attribute, given(after.Day), after.Value, limit)
}

// Second is what falls due in a second of the next hour.
type Second struct {
	Second   time.Time `json:"second"`
	Priority string    `json:"priority" enum:"high,normal,low"`
	Kind     string    `json:"kind" enum:"expiry,reminder"`
	Due      int64     `json:"due" doc:"Coupons, or reminders."`
}

// Late is what is due on a lane, and not done.
type Late struct {
	Lane        int       `json:"lane"`
	Priority    string    `json:"priority" enum:"high,normal,low"`
	Kind        string    `json:"kind" enum:"expiry,reminder"`
	Due         int64     `json:"due" doc:"Coupons, or reminders."`
	OldestDueAt time.Time `json:"oldest_due_at"`
	Seconds     float64   `json:"oldest_due_seconds"`
}

// Seconds returns up to limit entries of what falls due within an hour, by time.
func (c *Coupons) Seconds(ctx context.Context, after Second, limit int) ([]Second, error) {
	return query(ctx, c, func(row pgx.CollectableRow) (s Second, err error) {
		err = row.Scan(&s.Second, &s.Priority, &s.Kind, &s.Due)
		s.Second = s.Second.UTC()
		return s, err
	}, `SELECT second, priority, kind, due FROM scrip.due_next_hour() WHERE $1::timestamptz IS NULL OR (second, priority, kind) > ($1, $2::text, $3::text)
ORDER BY second, priority, kind LIMIT $4`, given(after.Second), after.Priority, after.Kind, limit)
}

// Backlog returns what is due and not done, by lane.
func (c *Coupons) Backlog(ctx context.Context) ([]Late, error) {
	return query(ctx, c, func(row pgx.CollectableRow) (l Late, err error) {
		err = row.Scan(&l.Lane, &l.Priority, &l.Kind, &l.Due, &l.OldestDueAt, &l.Seconds)
		l.OldestDueAt = l.OldestDueAt.UTC()
		return l, err
	}, `SELECT lane, priority, kind, due, oldest_due_at, oldest_due_seconds FROM scrip.backlog() ORDER BY lane, priority, kind`)
}
