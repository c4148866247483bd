package api

import (
	"context"
	"net/http"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// handleRoutes adds the routes that show one thing at the Location of what made it. Campaign and n are no secret, and show no code to
// a key that does not see codes: producers may read by them, too.
func (a *API) handleRoutes() {
	read(a, fieldRoute{Route: Route{Method: http.MethodGet, Path: oneCoupon, ID: "getCoupon", Tag: "coupons", Summary: "Show a coupon", About: "As its lane has it now. The holder and the times come from the read tables, which may lag a little.",
		Operation: access.OpShowCoupon}}, a.getCoupon)
	read(a, fieldRoute{Route: Route{Method: http.MethodGet, Path: oneCoupon + "/redemptions/{order_id}", ID: "getRedemption", Tag: "coupons",
		Summary: "Show the redemption of a coupon for an order", Operation: access.OpShowCoupon}}, a.getRedemption)
	read(a, fieldRoute{Route: Route{Method: http.MethodGet, Path: oneReminder, ID: "getReminder", Tag: "shop", Summary: "Show a reminder of a customer",
		About: "A pending one as it is now; what became of it comes from the read tables, which may lag a little.", Operation: access.OpListReminders}}, a.getReminder)
}

// CouponHandle names a coupon.
type CouponHandle struct {
	Campaign string `json:"campaign"`
	N        int    `json:"n" minimum:"1" maximum:"1000000000" doc:"The coupon's number in the campaign."`
	OrderID  string `json:"order_id,omitempty" maxLength:"128" doc:"Show whether this order redeemed it."`
	History  string `json:"history,omitempty" enum:"0,1" doc:"1: with a page of what happened; limit and after are of that."`
	ops.Paging
}

// OneCoupon is a coupon, with a page of its history if that was requested.
type OneCoupon struct {
	Coupon
	OrderID     string `json:"order_id,omitempty" doc:"As requested, if that order redeemed the coupon."`
	OrderStatus string `json:"order_status,omitempty" enum:"redeemed,rolled_back" doc:"Of the redemption for order_id."`
	History
	Next string `json:"next,omitempty" doc:"The value of after for the next page of the history; absent on the last one."`
}

func (a *API) getCoupon(ctx context.Context, in *CouponHandle) (*OneCoupon, error) {
	if err := checkCampaign(in.Campaign); err != nil {
		return nil, err
	}
	return a.oneCoupon(ctx, &Wanted{N: in.N, History: in.History == "1", ListCoupons: ops.ListCoupons{Campaign: in.Campaign, OrderID: in.OrderID, Paging: in.Paging}})
}

func (a *API) getRedemption(ctx context.Context, in *CouponHandle) (*OneCoupon, error) {
	out, err := a.getCoupon(ctx, in)
	if err == nil && out.OrderStatus == "" {
		err = web.New(web.NotFound, "the coupon was not redeemed for this order")
	}
	return out, err
}

// ReminderHandle names a reminder.
type ReminderHandle struct {
	Campaign   string `json:"campaign"`
	CustomerID string `json:"customer_id" maxLength:"128"`
	Kind       string `json:"kind" enum:"opens,expires"`
	Before     string `json:"before" doc:"A Go duration such as 24h."`
}

func (a *API) getReminder(ctx context.Context, in *ReminderHandle) (domain.ReminderView, error) {
	found, err := a.Queries.Reminder(ctx, in.Campaign, in.CustomerID, in.Kind, in.Before)
	if err != nil {
		err = unanswered("the reminder", err)
	}
	return found, err
}
