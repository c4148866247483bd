package client

import (
	"context"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Option sets an optional field of a command.
type Option func(*wire.Command)

// ID sets the command's id, 1 to 64 bytes of printable text. A retry with the same id gets the same answer, or is refused
// where what it did is over: redeeming again after a rollback needs a new one.
func ID(id string) Option { return func(c *wire.Command) { c.ID = id } }

// Attributes adds a flat JSON object of at most 1 KiB to a claim, such as {"channel":"app"}.
func Attributes(object []byte) Option { return func(c *wire.Command) { c.Attributes = object } }

// Campaign names the campaign of a code; imported codes need it.
func Campaign(name string) Option { return func(c *wire.Command) { c.Campaign = name } }

// N names the coupon by its number in [Campaign], instead of a code, which is "" then. Only keys of support and operators may.
func N(n uint32) Option { return func(c *wire.Command) { c.N = n } }

// Holder names the customer who redeems or rolls back; the command is refused if that is not the coupon's holder.
func Holder(customerID string) Option { return func(c *wire.Command) { c.CustomerID = customerID } }

// Order names an order, in a query for a coupon: the answer then has whether the coupon was redeemed for it.
func Order(id string) Option { return func(c *wire.Command) { c.OrderID = id } }

// Reason is the reason of a void, at most 256 bytes.
func Reason(text string) Option { return func(c *wire.Command) { c.Reason = text } }

// WeakCodes allows imported codes of fewer than 8 symbols, which can be guessed.
func WeakCodes() Option { return func(c *wire.Command) { c.WeakCodes = true } }

func (c *Client) do(ctx context.Context, cmd wire.Command, opts []Option) (wire.Outcome, error) {
	for _, o := range opts {
		o(&cmd)
	}
	return c.Do(ctx, cmd)
}

// Claim makes the customer the holder of a coupon; the outcome has its code. If one per customer is allowed, a second claim
// gets the first one's answer, marked as a repeat.
func (c *Client) Claim(ctx context.Context, campaign, customerID string, opts ...Option) (wire.Outcome, error) {
	return c.do(ctx, wire.Command{Type: wire.Claim, Campaign: campaign, CustomerID: customerID}, opts)
}

// Redeem uses a coupon for an order. The same code and order again is a repeat.
func (c *Client) Redeem(ctx context.Context, code, orderID string, opts ...Option) (wire.Outcome, error) {
	return c.do(ctx, wire.Command{Type: wire.Redeem, Code: code, OrderID: orderID}, opts)
}

// Rollback undoes the redemption of an order: the coupon can be used again unless it has expired.
func (c *Client) Rollback(ctx context.Context, code, orderID string, opts ...Option) (wire.Outcome, error) {
	return c.do(ctx, wire.Command{Type: wire.Rollback, Code: code, OrderID: orderID}, opts)
}

// Void makes a coupon unusable.
func (c *Client) Void(ctx context.Context, code string, opts ...Option) (wire.Outcome, error) {
	return c.do(ctx, wire.Command{Type: wire.Void, Code: code}, opts)
}

// Extend gives a coupon its own expiry, which must be in the future. An expired coupon becomes valid again.
func (c *Client) Extend(ctx context.Context, code string, expiresAt time.Time, opts ...Option) (wire.Outcome, error) {
	return c.do(ctx, wire.Command{Type: wire.Extend, Code: code, ExpiresAt: wire.At(expiresAt)}, opts)
}

// Remind subscribes the customer to a reminder of kind wire.KindOpens or wire.KindExpires, that long before.
func (c *Client) Remind(ctx context.Context, campaign, customerID, kind string, before time.Duration, opts ...Option) (wire.Outcome, error) {
	return c.do(ctx, wire.Command{Type: wire.Remind, Campaign: campaign, CustomerID: customerID, Kind: kind, Before: before}, opts)
}

// Unremind cancels the reminder that Remind with the same arguments set.
func (c *Client) Unremind(ctx context.Context, campaign, customerID, kind string, before time.Duration, opts ...Option) (wire.Outcome, error) {
	return c.do(ctx, wire.Command{Type: wire.Unremind, Campaign: campaign, CustomerID: customerID, Kind: kind, Before: before}, opts)
}

// CreateCampaign creates a campaign. Start from wire.DefaultSettings: a PerCustomer of 0 means unlimited. A
// MaxRedemptions of 0 means 1. The same settings again are a repeat, others are refused with campaign_exists.
func (c *Client) CreateCampaign(ctx context.Context, name string, settings wire.Settings, opts ...Option) (wire.Outcome, error) {
	if settings.MaxRedemptions == 0 {
		settings.MaxRedemptions = 1
	}
	return c.do(ctx, wire.Command{Type: wire.CreateCampaign, Campaign: name, Patch: wire.PatchOf(settings)}, opts)
}

// UpdateCampaign changes the settings that are given in the patch (Patch.Set).
func (c *Client) UpdateCampaign(ctx context.Context, name string, patch wire.Patch, opts ...Option) (wire.Outcome, error) {
	return c.do(ctx, wire.Command{Type: wire.UpdateCampaign, Campaign: name, Patch: patch}, opts)
}

// Allot claims the next count coupons of a campaign for print, without a holder, as the batch of that name. The outcome has the
// first of their numbers. The same batch and count again is a repeat.
func (c *Client) Allot(ctx context.Context, campaign, batch string, count uint64, opts ...Option) (wire.Outcome, error) {
	return c.do(ctx, wire.Command{Type: wire.Allot, Campaign: campaign, Batch: batch, Count: count}, opts)
}

// Pause refuses claims and redemptions until Resume.
func (c *Client) Pause(ctx context.Context, campaign string, opts ...Option) (wire.Outcome, error) {
	return c.do(ctx, wire.Command{Type: wire.PauseCampaign, Campaign: campaign}, opts)
}

// Resume ends a pause.
func (c *Client) Resume(ctx context.Context, campaign string, opts ...Option) (wire.Outcome, error) {
	return c.do(ctx, wire.Command{Type: wire.ResumeCampaign, Campaign: campaign}, opts)
}

// End refuses further claims for ever; coupons claimed before can still be redeemed.
func (c *Client) End(ctx context.Context, campaign string, opts ...Option) (wire.Outcome, error) {
	return c.do(ctx, wire.Command{Type: wire.EndCampaign, Campaign: campaign}, opts)
}
