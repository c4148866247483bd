package readmodel

import (
	"context"
	"fmt"
	"strconv"
	"strings"
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
func query[R any](ctx context.Context, db beginner, sql string, args ...any) ([]R, error) {
	begin := fmt.Sprintf("BEGIN READ ONLY; SET LOCAL statement_timeout = %d", readWait.Milliseconds())
	return within(ctx, db, begin, pgx.RowToStructByPos[R], sql, args...)
}

// beginner is a pool or a connection.
type beginner interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// within runs one query in a transaction.
func within[R any](ctx context.Context, db beginner, begin string, row pgx.RowToFunc[R], sql string, args ...any) ([]R, error) {
	all, err := schema.Again(func() (all []R, err error) {
		err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{BeginQuery: begin}, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, sql, args...)
			if err == nil {
				all, err = pgx.AppendRows([]R{}, rows, row)
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
		err = db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM scrip_tables.campaign WHERE campaign = $1)`, campaign).Scan(&known)
		return known, err
	})
}

// In UTC, as the other answers are.
const couponValues = `SELECT c.campaign, c.n, c.code, c.status, c.customer_id, c.claimed_at AT TIME ZONE 'UTC' AS claimed_at, c.expires_at AT TIME ZONE 'UTC' AS expires_at,
       c.redeemed_count, c.redeemed_at AT TIME ZONE 'UTC' AS redeemed_at, c.voided_at AT TIME ZONE 'UTC' AS voided_at, coalesce(c.void_reason, '') AS void_reason,
       c.attributes FROM `

const couponColumns = couponValues + `scrip.coupon c WHERE `

// hitsSQL reads a part of a campaign by its key: $1 the campaign, $2 the last n before it, $3 how many rows. It returns the coupons
// of the part that the filter selects, its end, and how many rows it has. Coupons of a customer are collected by their hash index
// first: the planner would else walk the key. Redemptions for an order are found by the coupon's key, and so not by an expression over the
// order. A short code, of which a mask shows fewer than four symbols, is not found by them.
const (
	hitsSQL = `SELECT coalesce(array_agg(c.n ORDER BY c.n) FILTER (WHERE ($4::text IS NULL OR c.status = $4) AND ($5::text IS NULL OR c.customer_id = $5)
    AND ($6::timestamptz IS NULL OR c.claimed_at >= $6) AND ($7::timestamptz IS NULL OR c.claimed_at < $7)
    AND ($8::text IS NULL OR length(replace(c.code, '-', '')) >= 12 AND right(replace(c.code, '-', ''), 4) = $8)
    AND ($9::text IS NULL OR EXISTS (SELECT FROM scrip_tables.redemption_row x WHERE x.campaign = $1 AND x.n = c.n AND x.order_id || '' = $9))), '{}'),
    coalesce(max(c.n), $2::bigint), count(*) FROM (`
	hitsByKey      = hitsSQL + `SELECT * FROM scrip.coupon c WHERE c.campaign = $1 AND c.n > $2::bigint ORDER BY c.n LIMIT $3) c`
	hitsByCustomer = `WITH k AS MATERIALIZED (SELECT * FROM scrip.coupon c WHERE c.customer_id = $5) ` + hitsSQL +
		`SELECT * FROM k c WHERE c.campaign = $1 AND c.n > $2::bigint ORDER BY c.n LIMIT $3) c`
)

// wantedCoupons are the coupons of a campaign that a list or a change selects.
type wantedCoupons struct {
	campaign, lastFour, order string
	ops.CouponFilter
}

// hits reads a part of a campaign: see ops.Coupons.
func (c *Coupons) hits(ctx context.Context, sql string, w *wantedCoupons, after uint32, rows int) (hits []uint32, last uint32, more bool, err error) {
	type part struct {
		Hits []uint32
		Last uint32
		Rows int
	}
	got, rows, err := inParts(ctx, rows, func(rows int) ([]part, error) {
		return read(ctx, c.db, partWait, pgx.RowToStructByPos[part], sql, w.campaign, after, rows, given(w.Status), given(w.CustomerID),
			given(w.ClaimedFrom), given(w.ClaimedBefore), given(w.lastFour), given(w.order))
	})
	if err != nil {
		return nil, 0, false, err
	}
	return got[0].Hits, got[0].Last, got[0].Rows == rows, nil
}

// Hits implements ops.Coupons.
func (c *Coupons) Hits(ctx context.Context, campaign, lastFour string, f ops.CouponFilter, after uint32, rows int) (hits []uint32, last uint32, more bool, err error) {
	sql := hitsByKey
	if f.CustomerID != "" {
		crowded, err := crowded(ctx, c.db, countOfCustomer, f.CustomerID)
		if err != nil {
			return nil, 0, false, err
		}
		if !crowded {
			sql = hitsByCustomer
		}
	}
	return c.hits(ctx, sql, &wantedCoupons{campaign: campaign, lastFour: lastFour, CouponFilter: f}, after, rows)
}

// The pages of a customer and of an order: $1 is either, $2 and $3 the place, $4 the most rows, $5 the campaigns that may be seen, $6
// the status. The coupons are collected by their hash index before they are sorted, as in hitsByCustomer. The counts end at $2.
const (
	after = ` AND (c.campaign, c.n) > ($2::text COLLATE "C", $3::bigint) AND ($5::text[] IS NULL OR c.campaign = ANY($5))
    AND ($6::text IS NULL OR c.status = $6) ORDER BY c.campaign, c.n LIMIT $4`
	ofCustomer = `WITH k AS MATERIALIZED (` + couponColumns + `c.customer_id = $1) SELECT * FROM k c WHERE true` + after
	ofOrder    = `WITH o AS MATERIALIZED (SELECT DISTINCT x.campaign, x.n FROM scrip_tables.redemption_row x WHERE x.order_id = $1), k AS MATERIALIZED (` +
		couponValues + `o CROSS JOIN LATERAL (SELECT * FROM scrip.coupon c WHERE c.campaign = o.campaign AND c.n = o.n OFFSET 0) c) SELECT * FROM k c WHERE true` + after
	byNumber = couponValues + `unnest($2::bigint[]) k (n) CROSS JOIN LATERAL (SELECT * FROM scrip.coupon c WHERE c.campaign = $1 AND c.n = k.n OFFSET 0) c ORDER BY c.n`

	countOfCustomer = `SELECT count(*) FROM (SELECT FROM scrip_tables.coupon_row c WHERE c.customer_id = $1 LIMIT $2) x`
	countOfOrder    = `SELECT count(*) FROM (SELECT FROM scrip_tables.redemption_row x WHERE x.order_id = $1 LIMIT $2) x`
	// $1 = campaign   $2 = campaigns that may be seen
	nextCampaign = `SELECT c.campaign FROM scrip_tables.campaign c WHERE c.campaign > $1 AND ($2::text[] IS NULL OR c.campaign = ANY($2)) ORDER BY c.campaign LIMIT 1`
)

// couponPlace is a coupon at which a page ends.
type couponPlace struct {
	Campaign string
	N        uint32
	Walk     bool `json:",omitempty"` // the key is walked
}

// List implements ops.Coupons.
func (c *Coupons) List(ctx context.Context, q ops.ListCoupons, campaigns []string) (page ops.Page[ops.Coupon], err error) {
	at, err := placed[couponPlace](q.After)
	if err != nil {
		return page, err
	}
	sql, count, of := ofCustomer, countOfCustomer, q.CustomerID
	if q.OrderID != "" {
		sql, count, of = ofOrder, countOfOrder, q.OrderID
	}
	if of == "" {
		return c.walk(ctx, &q, at, nil)
	}
	if q.Campaign != "" {
		campaigns = []string{q.Campaign}
	}
	if !at.Walk {
		if at.Walk, err = crowded(ctx, c.db, count, of); err != nil {
			return page, err
		}
	}
	if at.Walk {
		return c.walk(ctx, &q, at, campaigns)
	}
	list, err := read(ctx, c.db, readWait, pgx.RowToStructByPos[ops.Coupon], sql, of, at.Campaign, at.N, q.Limit+1, campaigns, given(q.Status))
	return pageOf(list, q.Limit, func(c *ops.Coupon) any { return couponPlace{Campaign: c.Campaign, N: c.N} }), err
}

// walk reads a part of one campaign by its key: of that of the list, or of one campaign after the other, nil = all.
func (c *Coupons) walk(ctx context.Context, q *ops.ListCoupons, at couponPlace, campaigns []string) (page ops.Page[ops.Coupon], err error) {
	if at.Campaign == "" && q.Campaign != "" {
		at.Campaign = q.Campaign
	}
	if at.Campaign == "" {
		if at.Campaign, err = c.campaignAfter(ctx, "", campaigns); at.Campaign == "" {
			return page, err
		}
	}
	rows := partRows
	if q.Status == "" && q.LastFour == "" && !at.Walk {
		rows = q.Limit
	} else if err := ops.Turn(ctx); err != nil {
		return page, err
	}
	w := &wantedCoupons{campaign: at.Campaign, lastFour: q.LastFour, order: q.OrderID, CouponFilter: ops.CouponFilter{Status: q.Status, CustomerID: q.CustomerID}}
	hits, last, more, err := c.hits(ctx, hitsByKey, w, at.N, rows)
	if err != nil {
		return page, err
	}
	if len(hits) > q.Limit {
		hits, last, more = hits[:q.Limit], hits[q.Limit-1], true
	}
	next := couponPlace{at.Campaign, last, at.Walk}
	if page.Looked = strconv.FormatUint(uint64(last), 10); q.Campaign == "" {
		page.Looked = at.Campaign + " " + page.Looked
	}
	if !more && q.Campaign == "" {
		next.N = 0
		if next.Campaign, err = c.campaignAfter(ctx, at.Campaign, campaigns); err != nil {
			return page, err
		}
		more = next.Campaign != ""
	}
	if more {
		page.Next = cursorOf(next)
	}
	if len(hits) > 0 {
		page.Items, err = c.ByNumber(ctx, at.Campaign, hits...)
	}
	return page, err
}

// campaignAfter is the campaign after one, by name; "" = there is none.
func (c *Coupons) campaignAfter(ctx context.Context, campaign string, of []string) (string, error) {
	found, err := read(ctx, c.db, readWait, pgx.RowTo[string], nextCampaign, campaign, of)
	return strings.Join(found, ""), err
}

// ByNumber implements ops.Coupons.
func (c *Coupons) ByNumber(ctx context.Context, campaign string, n ...uint32) ([]ops.Coupon, error) {
	return read(ctx, c.db, readWait, pgx.RowToStructByPos[ops.Coupon], byNumber, campaign, n)
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
	list, err := query[ops.Day](ctx, c.db, daysSQL, q.Campaign, q.Attribute, given(at.Day), at.Value, q.Limit+1)
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
	if page.Backlog, err = query[ops.Overdue](ctx, c.db, backlogSQL); err != nil {
		return page, err
	}
	list, err := query[ops.DueSecond](ctx, c.db, dueSQL, given(at.Second), at.Priority, at.Kind, q.Limit+1)
	page.Page = pageOf(list, q.Limit, func(s *ops.DueSecond) any { return s })
	return page, err
}
