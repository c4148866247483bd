package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/schema"
)

// tables are the results of the SQL queries about the demo's campaigns.
type tables struct {
	// missing is why there are none, "" = there are.
	missing string

	coupons, distinct, holders int // of the sale; holders = most of one code
	byStatus                   map[string]int
	redeemed, twice            int // redemptions that are not rolled back; coupons with more than one
	late                       int // redemptions at or after the coupon's end
	reminders                  map[string]int
}

// The queries are those that an analyst would write.
const (
	statusSQL = `SELECT status, count(*) FROM scrip.coupon WHERE campaign = ANY($1) GROUP BY 1`
	couponSQL = `SELECT count(*), count(DISTINCT code),
	coalesce((SELECT max(holders) FROM (SELECT count(DISTINCT customer_id) AS holders FROM scrip.coupon WHERE campaign = $1 GROUP BY code) h), 0)
	FROM scrip.coupon WHERE campaign = $1`
	redeemSQL = `SELECT count(*), count(*) - count(DISTINCT (campaign, n)) FROM scrip.redemption WHERE campaign = ANY($1) AND rolled_back_at IS NULL`
	lateSQL   = `SELECT count(*) FROM scrip.redemption r JOIN scrip.coupon c USING (campaign, n) JOIN scrip.campaign k USING (campaign)
	WHERE campaign = ANY($1) AND r.redeemed_at >= coalesce(c.expires_at, k.expires_at)`
	reminderSQL = `SELECT state, count(*) FROM scrip.reminder WHERE campaign = $1 GROUP BY 1`
)

// readSQL queries until SQL has caught up with the log or patience ends.
func (d *show) readSQL(ctx context.Context, l *folded) tables {
	if d.PostgresURL == "" {
		return tables{missing: "the URL of the read tables is unknown here; run the demo with the server's --data"}
	}
	ctx, cancel := context.WithTimeout(ctx, d.Patience)
	defer cancel()
	db, err := schema.Connect(ctx, d.PostgresURL)
	if err != nil {
		return tables{missing: "connecting to PostgreSQL: " + err.Error()}
	}
	defer db.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was written
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var last tables
	for {
		t, err := d.querySQL(ctx, db)
		if err != nil {
			if ctx.Err() != nil && last.byStatus != nil {
				return last // it did not catch up; the table shows the difference
			}
			return tables{missing: "PostgreSQL: " + err.Error()}
		}
		if last = t; maps.Equal(t.byStatus, l.byStatus()) && maps.Equal(t.reminders, l.byState(d.next)) {
			return t
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return last
		}
	}
}

func (d *show) querySQL(ctx context.Context, db *pgx.Conn) (tables, error) {
	names := []string{d.sale, d.brief, d.next}
	var t tables
	var errs [5]error
	t.byStatus, errs[0] = counts(ctx, db, statusSQL, names)
	errs[1] = db.QueryRow(ctx, couponSQL, d.sale).Scan(&t.coupons, &t.distinct, &t.holders)
	errs[2] = db.QueryRow(ctx, redeemSQL, names).Scan(&t.redeemed, &t.twice)
	errs[3] = db.QueryRow(ctx, lateSQL, names).Scan(&t.late)
	t.reminders, errs[4] = counts(ctx, db, reminderSQL, d.next)
	return t, errors.Join(errs[:]...)
}

// counts runs a query of two columns, a text and a number.
func counts(ctx context.Context, db *pgx.Conn, query string, arg any) (map[string]int, error) {
	rows, err := db.Query(ctx, query, arg)
	if err != nil {
		return nil, fmt.Errorf("query %q: %w", query, err)
	}
	m := map[string]int{}
	var word string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&word, &n}, func() error { m[word] = n; return nil })
	return m, err
}
