package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// RefusedError is the error of a query for something that does not exist or is not valid. Outcome has refusal and message.
type RefusedError struct{ Outcome wire.Outcome }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s: %s", e.Outcome.Refusal, e.Outcome.Message)
}

// History is what the read tables add to the answer of CouponHistory and CustomerHistory: a page of what happened, newest first.
type History struct {
	History json.RawMessage `json:"history,omitempty"` // nil while unavailable, and where it was not requested
	// Unavailable is the reason why there is no history; empty when there is.
	Unavailable string `json:"history_unavailable,omitempty"`
	// Note is what the entries lack, empty if nothing.
	Note string `json:"history_note,omitempty"`
	// Next is the Page.After of the next page, empty on the last one.
	Next string `json:"next,omitempty"`
}

// Page selects a part of a long answer. The zero Page is the newest part, of a size that the service chooses.
type Page struct {
	// Limit is the most entries of the history, and the most coupons, 1 to 1,000. 0 = 100.
	Limit int
	// After is the Next of the previous answer, "" for the first page.
	After string
}

// Coupon is the answer to a query for a coupon.
type Coupon struct {
	domain.CouponView
	History
}

// Customer is the answer to a query for a customer: the coupons that the customer holds, by campaign, newest first.
type Customer struct {
	CustomerID string              `json:"customer_id"`
	Items      []domain.CouponView `json:"items"`
	History
}

// Validate returns whether Redeem would be accepted now, and changes nothing: the status is [wire.StatusValid], or refused with
// the refusal of Redeem, and the other fields have what the coupon is. [Holder] and [Campaign] as there; with OrderID("") it is
// for a new order. Repeat: it was redeemed for the order before.
func (c *Client) Validate(ctx context.Context, code, orderID string, opts ...Option) (wire.Outcome, error) {
	cmd := wire.Command{Code: code, OrderID: orderID}
	for _, o := range opts {
		o(&cmd)
	}
	command.EnsureID(&cmd)
	body, err := json.Marshal(query{ID: cmd.ID, Campaign: cmd.Campaign, Code: cmd.Code, N: cmd.N, CustomerID: cmd.CustomerID, OrderID: cmd.OrderID})
	switch {
	case err != nil:
		return wire.Outcome{}, err
	case c.dead.Load():
		return wire.Outcome{}, ErrClosed
	}
	w := command.NewWaiter()
	ticket, err := c.lanes.RequestLine(ctx, "scrip.coupon.validate", cmd.ID, body, command.Call{By: c.opts.By, To: w})
	return w.Wait(ctx, cmd.ID, ticket, err)
}

// Coupon returns a coupon as its lane has it. The error is a *RefusedError if there is none.
func (c *Client) Coupon(ctx context.Context, code string, opts ...Option) (Coupon, error) {
	return c.coupon(ctx, code, query{}, opts)
}

// CouponHistory is Coupon with a page of its history, which costs several times as much.
func (c *Client) CouponHistory(ctx context.Context, code string, page Page, opts ...Option) (Coupon, error) {
	return c.coupon(ctx, code, query{History: true, Limit: page.Limit, After: page.After}, opts)
}

func (c *Client) coupon(ctx context.Context, code string, q query, opts []Option) (out Coupon, err error) {
	cmd := wire.Command{Code: code}
	for _, o := range opts {
		o(&cmd)
	}
	q.Code, q.N, q.Campaign, q.OrderID = cmd.Code, cmd.N, cmd.Campaign, cmd.OrderID
	err = c.queryInto(ctx, "scrip.coupon.show", q, &out)
	return out, err
}

// Customer returns a page of a customer's coupons in all campaigns, as their lanes have them.
func (c *Client) Customer(ctx context.Context, customerID string, page Page) (out Customer, err error) {
	err = c.queryInto(ctx, "scrip.customer.show", query{CustomerID: customerID, Limit: page.Limit, After: page.After}, &out)
	return out, err
}

// CustomerHistory is Customer with their history, and that of the customer's reminders: a page continues both the coupons and the
// history, each until it ends.
func (c *Client) CustomerHistory(ctx context.Context, customerID string, page Page) (out Customer, err error) {
	err = c.queryInto(ctx, "scrip.customer.show", query{CustomerID: customerID, History: true, Limit: page.Limit, After: page.After}, &out)
	return out, err
}

// Reminder returns a customer's reminder of a campaign, in any state. The error is a *RefusedError if there never was one.
func (c *Client) Reminder(ctx context.Context, campaign, customerID, kind, before string) (domain.ReminderView, error) {
	var out domain.ReminderView
	err := c.queryInto(ctx, "scrip.reminder.show", query{Campaign: campaign, CustomerID: customerID, Kind: kind, Before: before}, &out)
	return out, err
}

// Campaign returns a campaign. The error is a *RefusedError if there is none.
func (c *Client) Campaign(ctx context.Context, name string) (domain.CampaignView, error) {
	var out domain.CampaignView
	err := c.queryInto(ctx, "scrip.campaign.show", query{Campaign: name}, &out)
	return out, err
}

// Campaigns lists campaigns by name. next is the Page.After of the following page, empty on the last one.
func (c *Client) Campaigns(ctx context.Context, page Page) (all []domain.CampaignView, next string, err error) {
	var out struct {
		Items []domain.CampaignView
		Next  string
	}
	err = c.queryInto(ctx, "scrip.campaign.list", query{After: page.After, Limit: page.Limit}, &out)
	return out.Items, out.Next, err
}

// Allotments lists the allotments of a campaign by number. next is the Page.After of the following page, empty on the last one.
func (c *Client) Allotments(ctx context.Context, campaign string, page Page) (all []domain.AllotmentView, next string, err error) {
	var out struct {
		Items []domain.AllotmentView
		Next  string
	}
	err = c.queryInto(ctx, "scrip.codes.allotments", query{Campaign: campaign, After: page.After, Limit: page.Limit}, &out)
	return out.Items, out.Next, err
}

// Print passes the codes of an allotment to yield, some thousand at a time, from coupon from on, 0 = the first: from is the number
// of the first of codes. After an error it can be called again with the number that comes next. It returns the first error of
// yield. Only keys that see codes may.
func (c *Client) Print(ctx context.Context, campaign, batch string, from uint32, yield func(from uint32, codes []string) error) error {
	for {
		var part struct {
			Codes []string
			FromN uint32 `json:"from_n"`
			NextN uint32 `json:"next_n"`
		}
		err := c.queryInto(ctx, "scrip.codes.print", query{Campaign: campaign, Batch: batch, FromN: from}, &part)
		if err == nil {
			err = yield(part.FromN, part.Codes)
		}
		if from = part.NextN; err != nil || from == 0 {
			return err
		}
	}
}

// query is the body of a query; each endpoint accepts some of the fields.
type query struct {
	ID         string `json:"id,omitempty"`
	Campaign   string `json:"campaign,omitempty"`
	Code       string `json:"code,omitempty"`
	N          uint32 `json:"n,omitempty"`
	CustomerID string `json:"customer_id,omitempty"`
	OrderID    string `json:"order_id,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Before     string `json:"before,omitempty"`
	History    bool   `json:"history,omitempty"`
	After      string `json:"after,omitempty"`
	Limit      int    `json:"limit,omitempty"`
	Batch      string `json:"batch,omitempty"`
	FromN      uint32 `json:"from_n,omitempty"`
}

func (c *Client) queryInto(ctx context.Context, subject string, q query, into any) error {
	reply, err := c.query(ctx, subject, q)
	if err != nil {
		return err
	}
	return decode(reply, into)
}

// decode reads the data of a reply, or returns a refusal.
func decode(reply []byte, into any) error {
	var body struct{ Data json.RawMessage }
	if err := json.Unmarshal(reply, &body); err != nil {
		return fmt.Errorf("the service's answer is not JSON: %w", err)
	}
	if body.Data == nil {
		out, err := wire.ParseOutcome(reply)
		if err != nil || !out.Refused() {
			return fmt.Errorf("the service's answer has no data: %.200s", reply)
		}
		return &RefusedError{Outcome: out}
	}
	if err := json.Unmarshal(body.Data, into); err != nil {
		return fmt.Errorf("the service's answer has another form than expected: %w", err)
	}
	return nil
}

// Manage requests an action of people by its name in the table of package ops, such as access.create, and stores the answer in
// into. The request is sent once: after an error other than a refusal (*RefusedError, *DeniedError) or [nats.ErrNoResponders] it
// may have had its effect.
func (c *Client) Manage(ctx context.Context, endpoint string, request, into any) error {
	if c.dead.Load() {
		return ErrClosed
	}
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encoding the request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	reply, err := c.queryOnce(ctx, "scrip."+endpoint, body)
	if err != nil {
		return fmt.Errorf("scrip.%s: %w", endpoint, err)
	}
	return decode(reply, into)
}

// queryWait bounds one request before the next retry; the service itself gives its lane less.
const queryWait = 3 * time.Second

// query retries until there is an answer: during a takeover no owner answers for a moment.
func (c *Client) query(ctx context.Context, subject string, q query) ([]byte, error) {
	if c.dead.Load() {
		return nil, ErrClosed
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("encoding the query: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	reply, err := retry(ctx, c.finder.life, 50*time.Millisecond, time.Second, queryWait, func(ctx context.Context) ([]byte, error) {
		return c.queryOnce(ctx, subject, body)
	})
	if err != nil && ctx.Err() != nil && !errors.Is(err, ErrClosed) {
		err = fmt.Errorf("no answer from %s: %w", subject, err)
	}
	return reply, err
}

func (c *Client) queryOnce(ctx context.Context, subject string, body []byte) ([]byte, error) {
	msg := &nats.Msg{Subject: subject, Data: body}
	if c.opts.By != "" {
		msg.Header = nats.Header{topology.HeaderBy: []string{c.opts.By}}
	}
	reply, err := c.nc.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return nil, err
	}
	switch code := reply.Header.Get(micro.ErrorCodeHeader); code {
	case "":
		return reply.Data, nil
	case "403":
		return nil, &command.DeniedError{Why: reply.Header.Get(micro.ErrorHeader)}
	default:
		return nil, fmt.Errorf("%s (%s)", reply.Header.Get(micro.ErrorHeader), code)
	}
}
