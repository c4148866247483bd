package readmodel

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Coupon is a coupon as the read tables have it.
type Coupon struct {
	Campaign      string          `json:"campaign"`
	N             uint32          `json:"n" doc:"Its number in the campaign."`
	Code          string          `json:"code" doc:"With stars, but for its end, unless the key sees codes."`
	Status        string          `json:"status" enum:"claimed,redeemed,expired,voided"`
	CustomerID    string          `json:"customer_id,omitempty"`
	ClaimedAt     *time.Time      `json:"claimed_at,omitempty"`
	ExpiresAt     *time.Time      `json:"expires_at,omitempty"`
	RedeemedCount uint32          `json:"redeemed_count"`
	RedeemedAt    *time.Time      `json:"redeemed_at,omitempty"`
	VoidedAt      *time.Time      `json:"voided_at,omitempty"`
	VoidReason    string          `json:"void_reason,omitempty"`
	Attributes    json.RawMessage `json:"attributes,omitempty" doc:"Of the claim."`
	Benefit       json.RawMessage `json:"benefit,omitempty" doc:"The campaign's, in the answer to one code."`
}

// Coupons reads coupons, and what is counted about them. Answers are as of the checkpoints, and may lag.
type Coupons struct{ db *pgxpool.Pool }

// NewCoupons returns a Coupons. It sends no query.
func NewCoupons(db *pgxpool.Pool) *Coupons { return &Coupons{db} }

// readWait bounds a statement: an exchange of tables waits for it, and all other readers wait for the exchange.
const readWait = 5 * time.Second

// query runs one query and collects its rows.
func query[R any](ctx context.Context, c *Coupons, scan pgx.RowToFunc[R], sql string, args ...any) (all []R, err error) {
	err = pgx.BeginTxFunc(ctx, c.db, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL statement_timeout = %d", readWait.Milliseconds())); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, sql, args...)
		if err == nil {
			all, err = pgx.AppendRows([]R{}, rows, scan)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the read tables cannot be read: %w", err)
	}
	return all, nil
}

// CouponFilter selects coupons: of Campaign, CustomerID or OrderID, one of which is needed.
type CouponFilter struct {
	Campaign, CustomerID, OrderID, Status string
	// LastFour are the last symbols of the code, in upper case, without hyphens; needs Campaign. A short code, of which a mask shows
	// fewer, is not found by them.
	LastFour string
	// ClaimedFrom and ClaimedBefore bound the time of the claim, ClaimedBefore excluded. Zero = no bound.
	ClaimedFrom, ClaimedBefore time.Time
	// Campaigns are those that may be seen, nil = all.
	Campaigns []string
}

// CouponPlace is a coupon at which a page ends. The zero value is the beginning.
type CouponPlace struct {
	Campaign string
	N        uint32
}

const couponColumns = `SELECT c.campaign, c.n, c.code, c.status, c.customer_id, c.claimed_at, c.expires_at, c.redeemed_count, c.redeemed_at,
       c.voided_at, coalesce(c.void_reason, '') AS void_reason, coalesce(c.attributes, '') AS attributes FROM scrip.coupon c WHERE `

// scanned is how many coupons of a campaign one statement of a filtered list reads.
const scanned = 300_000

// hitsSQL reads a page of a campaign by its key: $1 the campaign, $2 the last n before it, $3 how many rows. It returns the coupons
// of the page that the filter selects, its end, and how many rows it has. Coupons of a customer are collected by their hash index
// first: the planner would else walk the key.
const (
	hitsSQL = `SELECT coalesce(array_agg(c.n ORDER BY c.n) FILTER (WHERE c.status = coalesce($4, c.status) AND c.customer_id = coalesce($5, c.customer_id)
    AND c.claimed_at >= coalesce($6, c.claimed_at) AND ($7::timestamptz IS NULL OR c.claimed_at < $7)
    AND ($8::text IS NULL OR length(replace(c.code, '-', '')) >= 12 AND right(replace(c.code, '-', ''), 4) = $8)), '{}'),
    coalesce(max(c.n), $2::bigint), count(*) FROM (`
	hitsByKey      = hitsSQL + `SELECT * FROM scrip.coupon c WHERE c.campaign = $1 AND c.n > $2::bigint ORDER BY c.n LIMIT $3) c`
	hitsByCustomer = `WITH k AS MATERIALIZED (SELECT * FROM scrip.coupon c WHERE c.customer_id = $5) ` + hitsSQL +
		`SELECT * FROM k c WHERE c.campaign = $1 AND c.n > $2::bigint ORDER BY c.n LIMIT $3) c`
)

// Hits are the coupons of a campaign that a filter selects among the rows that follow after, in their order. last is the end of these
// rows, where the next call goes on if there are more.
func (c *Coupons) Hits(ctx context.Context, f CouponFilter, after uint32, rows int) (hits []uint32, last uint32, more bool, err error) {
	sql := hitsByKey
	if f.CustomerID != "" {
		sql = hitsByCustomer
	}
	type page struct {
		hits []uint32
		last uint32
		rows int
	}
	got, err := query(ctx, c, func(row pgx.CollectableRow) (p page, err error) {
		return p, row.Scan(&p.hits, &p.last, &p.rows)
	}, sql, f.Campaign, after, rows, given(f.Status), given(f.CustomerID), given(f.ClaimedFrom), given(f.ClaimedBefore), given(f.LastFour))
	if err != nil {
		return nil, 0, false, err
	}
	return got[0].hits, got[0].last, got[0].rows == rows, nil
}

// given is a value of a filter, nil if it is the zero value.
func given[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// HaveRows counts which of these coupons of a campaign have rows: those that are claimed.
func (c *Coupons) HaveRows(ctx context.Context, campaign string, n []uint32) (int64, error) {
	got, err := query(ctx, c, pgx.RowTo[int64], `SELECT count(*) FROM scrip.coupon_row WHERE campaign = $1 AND n = ANY($2::bigint[])`, campaign, n)
	if err != nil {
		return 0, err
	}
	return got[0], nil
}

// The pages of a customer and of an order: $1 is either, $2 and $3 the place, $4 the most rows, $5 the campaigns that may be seen, $6
// the status. The coupons are collected by their hash index before they are sorted, as in hitsByCustomer.
const (
	after = ` AND (c.campaign, c.n) > ($2::text COLLATE "C", $3::bigint) AND ($5::text[] IS NULL OR c.campaign = ANY($5))
    AND ($6::text IS NULL OR c.status = $6) ORDER BY c.campaign, c.n LIMIT $4`
	ofCustomer = `WITH k AS MATERIALIZED (` + couponColumns + `c.customer_id = $1) SELECT * FROM k c WHERE true` + after
	ofOrder    = `WITH o AS MATERIALIZED (SELECT DISTINCT x.campaign, x.n FROM scrip.redemption_row x WHERE x.order_id COLLATE "POSIX" = $1), k AS MATERIALIZED (` +
		couponColumns + `(c.campaign, c.n) IN (SELECT o.campaign, o.n FROM o)) SELECT * FROM k c WHERE true` + after
	byNumber = couponColumns + `c.campaign = $1 AND c.n = ANY($2::bigint[]) ORDER BY c.n`
)

// List returns a page of up to limit coupons. more: another may follow after next. A page of a campaign may have fewer, since one
// call reads scanned rows at most.
func (c *Coupons) List(ctx context.Context, f CouponFilter, at CouponPlace, limit int) (list []Coupon, next CouponPlace, more bool, err error) {
	if f.CustomerID == "" && f.OrderID == "" {
		rows := limit
		if f.Status != "" || f.LastFour != "" {
			rows = scanned
		}
		hits, last, more, err := c.Hits(ctx, f, at.N, rows)
		if err != nil {
			return nil, next, false, err
		}
		if len(hits) > limit {
			hits, last, more = hits[:limit], hits[limit-1], true
		}
		list, err = c.ByNumber(ctx, f.Campaign, hits...)
		return list, CouponPlace{f.Campaign, last}, more, err
	}
	sql, of := ofCustomer, f.CustomerID
	if f.OrderID != "" {
		sql, of = ofOrder, f.OrderID
	}
	if f.Campaign != "" {
		f.Campaigns = []string{f.Campaign}
	}
	list, err = query(ctx, c, scanCoupon, sql, of, at.Campaign, at.N, limit+1, f.Campaigns, given(f.Status))
	if err != nil || len(list) <= limit {
		return list, next, false, err
	}
	list = list[:limit]
	return list, CouponPlace{list[limit-1].Campaign, list[limit-1].N}, true, nil
}

// ByNumber returns coupons of a campaign, without those that are not claimed.
func (c *Coupons) ByNumber(ctx context.Context, campaign string, n ...uint32) ([]Coupon, error) {
	return query(ctx, c, scanCoupon, byNumber, campaign, n)
}

func scanCoupon(row pgx.CollectableRow) (c Coupon, err error) {
	var attributes string
	err = row.Scan(&c.Campaign, &c.N, &c.Code, &c.Status, &c.CustomerID, &c.ClaimedAt, &c.ExpiresAt, &c.RedeemedCount, &c.RedeemedAt, &c.VoidedAt, &c.VoidReason, &attributes)
	if json.Valid([]byte(attributes)) {
		c.Attributes = json.RawMessage(attributes)
	}
	for _, t := range []**time.Time{&c.ClaimedAt, &c.ExpiresAt, &c.RedeemedAt, &c.VoidedAt} {
		if *t != nil {
			utc := (*t).UTC()
			*t = &utc
		}
	}
	return c, err
}
