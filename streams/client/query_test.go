package client_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
)

func TestQueries(t *testing.T) {
	r := newRig(t, client.Options{})
	ctx := within(t)
	r.lanes(t, func(lane int, q map[string]any) string {
		switch {
		case q["campaign"] == "absent":
			return `{"id":"","status":"refused","refusal":"campaign_not_found","message":"there is no campaign absent"}`
		case q["query"] == "coupon.validate":
			return fmt.Sprintf(`{"id":"","status":"redeemed","order_id":"%v"}`, q["order_id"])
		case q["query"] == "campaign.show":
			return `{"data":{"campaign":"summer","codes":5}}`
		case q["query"] == "coupon.show":
			return `{"data":{"campaign":"summer","n":7,"code":"X","status":"claimed"}}`
		case q["query"] == "customer.show" && q["customer_id"] == "paged":
			return fmt.Sprintf(`{"data":[{"campaign":"after %v, most %v","n":1}]}`, q["after"], q["limit"])
		case q["query"] == "campaign.list" && q["after"] != nil:
			return `{"data":[]}`
		case q["query"] == "campaign.list":
			return fmt.Sprintf(`{"data":[{"campaign":"on-%d"}]}`, lane)
		}
		return fmt.Sprintf(`{"data":[{"campaign":"on-%d","n":1}]}`, lane)
	})
	if out, err := r.Validate(ctx, "X", "o", client.Campaign("summer")); err != nil || out.Status != wire.StatusRedeemed || out.OrderID != "o" {
		t.Errorf("Validate: %+v, %v", out, err)
	}
	if view, err := r.Campaign(ctx, "summer"); err != nil || view.Codes != 5 {
		t.Errorf("Campaign: %+v, %v", view, err)
	}
	coupon, err := r.Coupon(ctx, "X", client.Campaign("summer"))
	if err != nil || coupon.N != 7 || coupon.Unavailable == "" || coupon.History.History != nil {
		t.Errorf("Coupon: %+v, %v", coupon, err)
	}
	customer, err := r.Customer(ctx, "c1")
	if err != nil || len(customer.Coupons) != 2 || customer.Coupons[1].Campaign != "on-1" || customer.Unavailable == "" {
		t.Errorf("Customer: %+v, %v", customer, err)
	}
	customer, err = r.CustomerPage(ctx, "paged", client.Page{Limit: 3, Before: base64.RawURLEncoding.EncodeToString([]byte(`{"c":"summer","n":7}`))})
	if err != nil || len(customer.Coupons) != 2 || customer.Coupons[0].Campaign != "after summer, most 4" {
		t.Errorf("CustomerPage: %+v, %v", customer, err)
	}
	page, next, err := r.Campaigns(ctx, "", 2)
	if err != nil || len(page) != 2 || page[0].Campaign != "on-0" || next != "on-1" {
		t.Errorf("Campaigns: %+v, next %q, %v", page, next, err)
	}
	if page, next, err = r.Campaigns(ctx, next, 2); err != nil || len(page) != 0 || next != "" {
		t.Errorf("the last page: %+v, next %q, %v", page, next, err)
	}
	var refused *client.RefusedError
	if _, err := r.Campaign(ctx, "absent"); !errors.As(err, &refused) || refused.Outcome.Refusal != wire.CampaignNotFound {
		t.Errorf("an absent campaign: %v", err)
	}
	if _, err := r.Campaign(ctx, "no name"); !errors.As(err, &refused) || refused.Outcome.Refusal != wire.Invalid {
		t.Errorf("an invalid name: %v", err)
	}
}

// A query to a lane without an owner is retried until the context ends, and the error names what was missing.
func TestAQueryWaitsForAnOwner(t *testing.T) {
	r := newRig(t, client.Options{})
	// The error can name it only if a reply came before the context ended, which takes a slow machine longer.
	for limit := 300 * time.Millisecond; ; limit *= 2 {
		short, cancel := context.WithTimeout(t.Context(), limit)
		_, err := r.Campaign(short, "summer")
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "has no owner") {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) || limit > 30*time.Second {
			t.Fatalf("without owner, for %s: %v", limit, err)
		}
	}
	shown := make(chan error, 1)
	go func() {
		_, err := r.Campaign(within(t), "summer")
		shown <- err
	}()
	r.lanes(t, func(int, map[string]any) string { return `{"data":{"campaign":"summer"}}` })
	if err := <-shown; err != nil {
		t.Error(err)
	}
}
