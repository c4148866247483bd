package demo

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/schema"
)

// query counts as an analyst would: a column for each promise. $1 are the campaigns, $2 is the sale.
const query = `WITH c AS (SELECT * FROM scrip.coupon WHERE campaign = ANY($1)),
	r AS (SELECT * FROM scrip.redemption WHERE campaign = ANY($1) AND rolled_back_at IS NULL),
	m AS (SELECT * FROM scrip.reminder WHERE campaign = ANY($1))
SELECT (SELECT count(*) FROM c WHERE campaign = $2) AS "coupons claimed",
	(SELECT count(DISTINCT code) FROM c WHERE campaign = $2) AS "distinct codes",
	(SELECT coalesce(max(n), 0) FROM (SELECT count(DISTINCT customer_id) AS n FROM c GROUP BY code) h) AS "holders of one code, at most",
	(SELECT count(*) FROM r) AS "coupons redeemed",
	(SELECT count(*) - count(DISTINCT (campaign, n)) FROM r) AS "redeemed more than once",
	(SELECT count(*) FROM r JOIN c USING (campaign, n) JOIN scrip.campaign k USING (campaign)
		WHERE r.redeemed_at >= coalesce(c.expires_at, k.expires_at)) AS "redeemed after they expired",
	(SELECT count(*) FROM m WHERE state = 'fired') AS "reminders fired",
	(SELECT count(*) FROM m WHERE state = 'cancelled') AS "reminders cancelled",
	(SELECT count(*) FROM c WHERE status = 'claimed') AS "coupons in status claimed",
	(SELECT count(*) FROM c WHERE status = 'redeemed') AS "coupons in status redeemed",
	(SELECT count(*) FROM c WHERE status = 'expired') AS "coupons in status expired",
	(SELECT count(*) FROM c WHERE status = 'voided') AS "coupons in status voided"`

// readSQL queries until SQL has what is expected or patience ends. missing is why there is no result.
func (d *show) readSQL(ctx context.Context) (have counts, missing string) {
	if d.PostgresURL == "" {
		return nil, "the URL of the read tables is unknown here; run the demo with the server's --data"
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	db, err := schema.Connect(ctx, d.PostgresURL)
	if err != nil {
		return nil, "connecting to PostgreSQL: " + err.Error()
	}
	defer db.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was written
	err = repeat(ctx, func() (bool, error) {
		rows, err := db.Query(ctx, query, []string{d.sale, d.brief, d.next}, d.sale)
		if err != nil {
			return false, err
		}
		row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToMap)
		if err != nil {
			return false, err
		}
		have = counts{}
		for name, n := range row {
			have[name] = int(n.(int64))
		}
		return d.holds(inSQL, have), nil
	})
	if err != nil && (have == nil || ctx.Err() == nil) {
		return nil, "PostgreSQL: " + err.Error()
	}
	return have, "" // it may not have caught up: the table shows the difference
}
