package api

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// couponColumns are those of the read table.
const couponColumns = `SELECT c.campaign, c.n, c.code, c.status, c.customer_id, c.claimed_at, c.expires_at, c.redeemed_count, c.redeemed_at,
       c.voided_at, coalesce(c.void_reason, '') AS void_reason, coalesce(c.attributes, '') AS attributes FROM scrip.coupon c WHERE `

// Each selects the page after a place: $1 is the customer, order or campaign, $2 and $3 the place, $4 the most rows, $5 the
// campaigns that the key is limited to, NULL = all. Coupons of a customer or an order are collected by their hash index before
// they are sorted: for a short page the planner would else walk the key, in the hope of finding some soon.
const (
	after      = ` AND (c.campaign, c.n) > ($2::text COLLATE "C", $3::bigint) AND ($5::text[] IS NULL OR c.campaign = ANY($5)) ORDER BY c.campaign, c.n LIMIT $4`
	ofCustomer = `WITH k AS MATERIALIZED (` + couponColumns + `c.customer_id = $1) SELECT * FROM k c WHERE true` + after
	ofOrder    = `WITH o AS MATERIALIZED (SELECT DISTINCT x.campaign, x.n FROM scrip.redemption_row x WHERE x.order_id COLLATE "POSIX" = $1), k AS MATERIALIZED (` +
		couponColumns + `(c.campaign, c.n) IN (SELECT o.campaign, o.n FROM o)) SELECT * FROM k c WHERE true` + after
	ofCampaign   = couponColumns + `c.campaign = $1` + after
	oneCouponSQL = couponColumns + `c.campaign = $1 AND c.n = $2`
)

// readCoupons reads a page from the read tables, as of their checkpoints.
func (a *API) readCoupons(ctx context.Context, w *Wanted, p access.Principal) (page ops.Page[Coupon], err error) {
	sql, of, list := ofCampaign, w.Campaign, "coupons of a campaign"
	switch {
	case w.Customer != "":
		sql, of, list = ofCustomer, w.Customer, "coupons of a customer"
	case w.Order != "":
		sql, of, list = ofOrder, w.Order, "coupons of an order"
	}
	after, err := a.Ops.Cursors.Open(list, p, w.After)
	if err != nil {
		return page, err
	}
	campaign, n, _ := strings.Cut(after, " ") // "" and none at the start
	number, _ := strconv.ParseInt(n, 10, 64)
	limited := p.Campaigns
	if w.Campaign != "" {
		limited = []string{w.Campaign}
	}
	if page.Items, err = a.query(ctx, sql, of, campaign, number, w.Limit+1, limited); err == nil && len(page.Items) > w.Limit {
		page.Items = page.Items[:w.Limit]
		last := &page.Items[w.Limit-1]
		page.Next = a.Ops.Cursors.Seal(list, p, fmt.Sprint(last.Campaign, " ", last.N))
	}
	return page, err
}

func (a *API) query(ctx context.Context, sql string, args ...any) ([]Coupon, error) {
	if a.DB == nil {
		return nil, web.New(web.Unavailable, ops.ErrNoTables.Error())
	}
	rows, err := a.DB.Query(ctx, sql, args...)
	if err != nil {
		return nil, unavailable("the read tables cannot be read", err)
	}
	list, err := pgx.CollectRows(rows, scanCoupon)
	if err != nil {
		return nil, unavailable("the read tables cannot be read", err)
	}
	return list, nil
}

func scanCoupon(row pgx.CollectableRow) (c Coupon, err error) {
	var n, redeemed int64
	var attributes string
	err = row.Scan(&c.Campaign, &n, &c.Code, &c.Status, &c.CustomerID, &c.ClaimedAt, &c.ExpiresAt, &redeemed, &c.RedeemedAt, &c.VoidedAt, &c.VoidReason, &attributes)
	c.N, c.RedeemedCount = uint32(n), uint32(redeemed)
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

// complete adds what only the read tables have. While they are away, or lag, it is absent.
func (a *API) complete(ctx context.Context, c *Coupon) {
	if a.DB == nil {
		return
	}
	found, err := a.query(ctx, oneCouponSQL, c.Campaign, int64(c.N))
	if err != nil || len(found) == 0 {
		return
	}
	row := &found[0]
	c.CustomerID, c.ClaimedAt, c.RedeemedAt, c.VoidedAt, c.VoidReason, c.Attributes = row.CustomerID, row.ClaimedAt, row.RedeemedAt, row.VoidedAt, row.VoidReason, row.Attributes
}
