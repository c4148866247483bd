package api

import (
	"context"
	"net/http"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// handleRoutes adds the routes that show one thing at the Location of what made it. Campaign and n are no secret, and show no code to
// a key that does not see codes: producers may read by them, too.
func (a *API) handleRoutes() {
	read(a, fieldRoute{Route: Route{Method: http.MethodGet, Path: oneCoupon, ID: "getCoupon", Tag: "coupons", Summary: "Show a coupon and its history",
		Operation: access.OpShowCoupon}}, a.getCoupon)
	read(a, fieldRoute{Route: Route{Method: http.MethodGet, Path: oneCoupon + "/redemptions/{order_id}", ID: "getRedemption", Tag: "coupons",
		Summary: "Show the redemption of a coupon for an order", Operation: access.OpShowCoupon}}, a.getRedemption)
	read(a, fieldRoute{Route: Route{Method: http.MethodGet, Path: oneReminder, ID: "getReminder", Tag: "shop", Summary: "Show a reminder of a customer",
		About: "A pending one as it is now; what became of it comes from the read tables, which may lag a little.", Operation: access.OpListReminders}}, a.getReminder)
}

// CouponHandle names a coupon, and a page of its history.
type CouponHandle struct {
	Campaign string `json:"campaign"`
	N        int    `json:"n" minimum:"1" maximum:"1000000000" doc:"The coupon's number in the campaign."`
	ops.Paging
}

// OneCoupon is a coupon with a page of its history.
type OneCoupon struct {
	Coupon
	History
	Next string `json:"next,omitempty" doc:"The value of after for the next page of the history; absent on the last one."`
}

func (a *API) getCoupon(ctx context.Context, in *CouponHandle) (*OneCoupon, error) {
	if err := checkCampaign(in.Campaign); err != nil {
		return nil, err
	}
	found, err := a.oneCoupon(ctx, &Wanted{CouponName: CouponName{Campaign: in.Campaign, N: in.N}, Paging: in.Paging})
	if err != nil {
		return nil, err
	}
	return &OneCoupon{found.Items[0], found.History, found.Next}, nil
}

// RedemptionHandle names a redemption.
type RedemptionHandle struct {
	Campaign string `json:"campaign"`
	N        int    `json:"n" minimum:"1" maximum:"1000000000" doc:"The coupon's number in the campaign."`
	OrderID  string `json:"order_id" maxLength:"128"`
}

// Redemption is the newest redemption of a coupon for an order. While the read tables are away or lag, it has no times.
type Redemption struct {
	Campaign     string     `json:"campaign"`
	N            uint32     `json:"n"`
	Code         string     `json:"code" doc:"With stars, but for its end, unless the key sees codes."`
	OrderID      string     `json:"order_id"`
	Status       string     `json:"status" enum:"redeemed,rolled_back"`
	CustomerID   string     `json:"customer_id,omitempty"`
	RedeemedAt   *time.Time `json:"redeemed_at,omitempty"`
	RolledBackAt *time.Time `json:"rolled_back_at,omitempty"`
}

const redemptionSQL = `SELECT x.customer_id, x.redeemed_at, x.rolled_back_at FROM scrip.redemption x
WHERE x.campaign = $1 AND x.n = $2 AND x.order_id = $3 AND (x.rolled_back_at IS NULL) = $4 ORDER BY x.sequence DESC, x.line DESC LIMIT 1`

func (a *API) getRedemption(ctx context.Context, in *RedemptionHandle) (*Redemption, error) {
	if err := checkCampaign(in.Campaign); err != nil {
		return nil, err
	}
	found, err := a.Queries.CouponPage(ctx, "", client.Page{Limit: 1}, client.Campaign(in.Campaign), client.N(uint32(in.N)), client.Order(in.OrderID))
	switch {
	case err != nil:
		return nil, unanswered("the coupon", err)
	case found.OrderStatus == "":
		return nil, web.New(web.NotFound, "the coupon was not redeemed for this order")
	}
	coupon, out := couponOf(found.CouponView), &Redemption{Campaign: found.Campaign, N: found.N, OrderID: in.OrderID, Status: found.OrderStatus}
	if a.DB != nil { // an error, or no row yet, leaves the times out
		_ = a.DB.QueryRow(ctx, redemptionSQL, out.Campaign, int64(out.N), out.OrderID, out.Status == "redeemed").Scan(&out.CustomerID, &out.RedeemedAt, &out.RolledBackAt)
	}
	for _, at := range []*time.Time{out.RedeemedAt, out.RolledBackAt} {
		if at != nil {
			*at = at.UTC()
		}
	}
	coupon.mask(principal(ctx))
	out.Code = coupon.Code
	return out, a.unmasked(ctx, "coupon", audit.Coupon(out.Campaign, out.N, true))
}

// ReminderHandle names a reminder.
type ReminderHandle struct {
	Campaign   string `json:"campaign"`
	CustomerID string `json:"customer_id" maxLength:"128"`
	Kind       string `json:"kind" enum:"opens,expires"`
	Before     string `json:"before" doc:"A Go duration such as 24h."`
}

func (a *API) getReminder(ctx context.Context, in *ReminderHandle) (*domain.ReminderView, error) {
	found, err := a.Queries.Reminder(ctx, in.Campaign, in.CustomerID, in.Kind, in.Before)
	if err != nil {
		return nil, unanswered("the reminder", err)
	}
	return &found, nil
}
