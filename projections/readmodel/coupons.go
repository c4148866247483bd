package readmodel

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// Coupons implements ops.Coupons: it reads coupons, and what is counted about them. Answers are as of the checkpoints, and may lag.
type Coupons struct{ db *pgxpool.Pool }

// NewCoupons returns a Coupons. It sends no query.
func NewCoupons(db *pgxpool.Pool) *Coupons { return &Coupons{db} }

// readWait bounds a statement: an exchange of tables waits for it, and all other readers wait for the exchange.
const readWait = 5 * time.Second

// query runs one query and collects its rows, by position. Like all reads of this package it is tried once more after an exchange
// was in its way.
func query[R any](ctx context.Context, c *Coupons, sql string, args ...any) ([]R, error) {
	all, err := schema.Again(func() (all []R, err error) {
		err = pgx.BeginTxFunc(ctx, c.db, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL statement_timeout = %d", readWait.Milliseconds())); err != nil {
				return err
			}
			rows, err := tx.Query(ctx, sql, args...)
			if err == nil {
				all, err = pgx.AppendRows([]R{}, rows, pgx.RowToStructByPos[R])
			}
			return err
		})
		return all, err
	})
	if err != nil {
		return nil, fmt.Errorf("the read tables cannot be read: %w", err)
	}
	return all, nil
}

// collect is schema.Collect, and tried once more.
func collect[R any](ctx context.Context, db schema.Querier, row pgx.RowToFunc[R], sql string, args ...any) ([]R, error) {
	return schema.Again(func() ([]R, error) { return schema.Collect(ctx, db, row, sql, args...) })
}

// HasCampaign reports whether the tables have a campaign.
func HasCampaign(ctx context.Context, db schema.Querier, campaign string) (bool, error) {
	return schema.Again(func() (known bool, err error) {
		err = db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM scrip.campaign WHERE campaign = $1)`, campaign).Scan(&known)
		return known, err
	})
}

// given is a value of a filter, nil if it is the zero value.
func given[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// pageOf cuts a page from its entries and the one after it. Its cursor is the place of the last one, as JSON.
func pageOf[T any](list []T, limit int, place func(*T) any) (page ops.Page[T]) {
	if page.Items = list; len(list) > limit {
		page.Items, page.Next = list[:limit], cursorOf(place(&list[limit-1]))
	}
	return page
}

func cursorOf(place any) string {
	text, _ := json.Marshal(place) // never fails
	return string(text)
}

// placed reads a cursor; "" is the start. Only servers seal one.
func placed[P any](after string) (place P, err error) {
	if after != "" {
		err = json.Unmarshal([]byte(after), &place)
	}
	return place, err
}

// In UTC, as the other answers are.
const couponColumns = `SELECT c.campaign, c.n, c.code, c.status, c.customer_id, c.claimed_at AT TIME ZONE 'UTC' AS claimed_at, c.expires_at AT TIME ZONE 'UTC' AS expires_at,
       c.redeemed_count, c.redeemed_at AT TIME ZONE 'UTC' AS redeemed_at, c.voided_at AT TIME ZONE 'UTC' AS voided_at, coalesce(c.void_reason, '') AS void_reason,
       c.attributes FROM scrip.coupon c WHERE `

// hitsSQL reads a page of a campaign by its key: $1 the campaign, $2 the last n before it, $3 how many rows. It returns the coupons
// of the page that the filter selects, its end, and how many rows it has. Coupons of a customer are collected by their hash index
// first: the planner would else walk the key. A short code, of which a mask shows fewer than four symbols, is not found by them.
const (
	hitsSQL = `SELECT coalesce(array_agg(c.n ORDER BY c.n) FILTER (WHERE c.status = coalesce($4, c.status) AND c.customer_id = coalesce($5, c.customer_id)
    AND c.claimed_at >= coalesce($6, c.claimed_at) AND ($7::timestamptz IS NULL OR c.claimed_at < $7)
    AND ($8::text IS NULL OR length(replace(c.code, '-', '')) >= 12 AND right(replace(c.code, '-', ''), 4) = $8)), '{}'),
    coalesce(max(c.n), $2::bigint), count(*) FROM (`
	hitsByKey      = hitsSQL + `SELECT * FROM scrip.coupon c WHERE c.campaign = $1 AND c.n > $2::bigint ORDER BY c.n LIMIT $3) c`
	hitsByCustomer = `WITH k AS MATERIALIZED (SELECT * FROM scrip.coupon c WHERE c.customer_id = $5) ` + hitsSQL +
		`SELECT * FROM k c WHERE c.campaign = $1 AND c.n > $2::bigint ORDER BY c.n LIMIT $3) c`
)

// Hits implements ops.Coupons.
func (c *Coupons) Hits(ctx context.Context, campaign, lastFour string, f ops.CouponFilter, after uint32, rows int) (hits []uint32, last uint32, more bool, err error) {
	sql := hitsByKey
	if f.CustomerID != "" {
		sql = hitsByCustomer
	}
	got, err := query[struct {
		Hits []uint32
		Last uint32
		Rows int
	}](ctx, c, sql, campaign, after, rows, given(f.Status), given(f.CustomerID), given(f.ClaimedFrom), given(f.ClaimedBefore), given(lastFour))
	if err != nil {
		return nil, 0, false, err
	}
	return got[0].Hits, got[0].Last, got[0].Rows == rows, nil
}

// The pages of a customer and of an order: $1 is either, $2 and $3 the place, $4 the most rows, $5 the campaigns that may be seen, $6
// the status. The coupons are collected by their hash index before they are sorted, as in hitsByCustomer.
const (
	after = ` AND (c.campaign, c.n) > ($2::text COLLATE "C", $3::bigint) AND ($5::text[] IS NULL OR c.campaign = ANY($5))
    AND ($6::text IS NULL OR c.status = $6) ORDER BY c.campaign, c.n LIMIT $4`
	ofCustomer = `WITH k AS MATERIALIZED (` + couponColumns + `c.customer_id = $1) SELECT * FROM k c WHERE true` + after
	ofOrder    = `WITH o AS MATERIALIZED (SELECT DISTINCT x.campaign, x.n FROM scrip.redemption_row x WHERE x.order_id = $1), k AS MATERIALIZED (` +
		couponColumns + `(c.campaign, c.n) IN (SELECT o.campaign, o.n FROM o)) SELECT * FROM k c WHERE true` + after
	byNumber = couponColumns + `c.campaign = $1 AND c.n = ANY($2::bigint[]) ORDER BY c.n`

	// scanned is how many coupons of a campaign one statement of a filtered list reads.
	scanned = 300_000
)

// couponPlace is a coupon at which a page ends.
type couponPlace struct {
	Campaign string
	N        uint32
}

// List implements ops.Coupons. A page of a campaign may be short, since one call reads scanned rows at most.
func (c *Coupons) List(ctx context.Context, q ops.ListCoupons, campaigns []string) (page ops.Page[ops.Coupon], err error) {
	at, err := placed[couponPlace](q.After)
	if err != nil {
		return page, err
	}
	if q.CustomerID == "" && q.OrderID == "" {
		rows := q.Limit
		if q.Status != "" || q.LastFour != "" {
			rows = scanned
		}
		hits, last, more, err := c.Hits(ctx, q.Campaign, q.LastFour, ops.CouponFilter{Status: q.Status}, at.N, rows)
		if err != nil {
			return page, err
		}
		if len(hits) > q.Limit {
			hits, last, more = hits[:q.Limit], hits[q.Limit-1], true
		}
		if more {
			page.Next = cursorOf(couponPlace{q.Campaign, last})
		}
		page.Items, err = c.ByNumber(ctx, q.Campaign, hits...)
		return page, err
	}
	sql, of := ofCustomer, q.CustomerID
	if q.OrderID != "" {
		sql, of = ofOrder, q.OrderID
	}
	if q.Campaign != "" {
		campaigns = []string{q.Campaign}
	}
	list, err := query[ops.Coupon](ctx, c, sql, of, at.Campaign, at.N, q.Limit+1, campaigns, given(q.Status))
	return pageOf(list, q.Limit, func(c *ops.Coupon) any { return couponPlace{c.Campaign, c.N} }), err
}

// ByNumber implements ops.Coupons.
func (c *Coupons) ByNumber(ctx context.Context, campaign string, n ...uint32) ([]ops.Coupon, error) {
	return query[ops.Coupon](ctx, c, byNumber, campaign, n)
}

// daysSQL is a page of days, newest first: $1 the campaign, $2 the attribute, ” = the totals, $3 and $4 the place, $5 the most rows.
const daysSQL = `
SELECT s.day AT TIME ZONE 'UTC', s.value, sum(s.claimed)::bigint, sum(s.redeemed)::bigint, sum(s.rolled_back)::bigint, sum(s.voided)::bigint,
       jsonb_object_agg(s.reason, s.refused) FILTER (WHERE s.reason IS NOT NULL)
FROM (SELECT day, value, claimed, redeemed, rolled_back, voided, NULL AS reason, 0 AS refused FROM scrip.campaign_stats WHERE campaign = $1 AND attribute = $2
      UNION ALL
      SELECT day, '', 0, 0, 0, 0, reason, sum(refused) FROM scrip.refusal_stats WHERE campaign = $1 AND $2::text = '' GROUP BY day, reason) s
WHERE $3::timestamptz IS NULL OR s.day < $3 OR s.day = $3 AND s.value > $4
GROUP BY s.day, s.value ORDER BY s.day DESC, s.value LIMIT $5`

// Days implements ops.Coupons.
func (c *Coupons) Days(ctx context.Context, q ops.ListDays) (page ops.Page[ops.Day], err error) {
	at, err := placed[ops.Day](q.After)
	if err != nil {
		return page, err
	}
	list, err := query[ops.Day](ctx, c, daysSQL, q.Campaign, q.Attribute, given(at.Day), at.Value, q.Limit+1)
	return pageOf(list, q.Limit, func(d *ops.Day) any { return ops.Day{Day: d.Day, Value: d.Value} }), err
}

const (
	dueSQL = `SELECT second AT TIME ZONE 'UTC', priority, kind, due FROM scrip.due_next_hour()
WHERE $1::timestamptz IS NULL OR (second, priority, kind) > ($1, $2::text, $3::text) ORDER BY second, priority, kind LIMIT $4`
	backlogSQL = `SELECT lane, priority, kind, due, oldest_due_at AT TIME ZONE 'UTC', oldest_due_seconds FROM scrip.backlog() ORDER BY lane, priority, kind`
)

// Due implements ops.Coupons.
func (c *Coupons) Due(ctx context.Context, q ops.Paging) (page ops.DuePage, err error) {
	at, err := placed[ops.DueSecond](q.After)
	if err != nil {
		return page, err
	}
	if page.Backlog, err = query[ops.Overdue](ctx, c, backlogSQL); err != nil {
		return page, err
	}
	list, err := query[ops.DueSecond](ctx, c, dueSQL, given(at.Second), at.Priority, at.Kind, q.Limit+1)
	page.Page = pageOf(list, q.Limit, func(s *ops.DueSecond) any { return s })
	return page, err
}
