package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// Coupon is a coupon. What its lane does not have, the read tables add: while they are away those fields are absent.
type Coupon = ops.Coupon

// History is what happened, newest first, from the read tables.
type History struct {
	History     []readmodel.Entry `json:"history,omitempty" nullable:"false" doc:"What happened, newest first."`
	Unavailable string            `json:"history_unavailable,omitempty" doc:"Why there is no history: the read tables are away."`
	Note        string            `json:"history_note,omitempty" doc:"What the entries lack."`
}

// CouponList is a page of coupons, or one coupon, with a page of its history if that was requested.
type CouponList struct {
	ops.Page[Coupon]
	History
}

// CouponName names a coupon.
type CouponName struct {
	Code     string `json:"code,omitempty" maxLength:"128" doc:"As it was typed: case, spaces and hyphens do not count. Required without n."`
	Campaign string `json:"campaign,omitempty" maxLength:"64" doc:"The coupon's. Required for imported codes, and with n."`
	N        int    `json:"n,omitempty" minimum:"1" maximum:"1000000000" doc:"Instead of code: the coupon's number in the campaign. A validation of a producer needs the code."`
}

// check refuses a masked code, and other than one name. where is the part of the request that has it.
func (c *CouponName) check(where string) error {
	switch {
	case code.Masked(c.Code):
		return invalid(where+".code", wire.MaskedCode)
	case c.N != 0 && c.Code != "":
		return invalid(where+".code", wire.OneName)
	case c.N != 0 && c.Campaign == "":
		return web.New(web.Malformed, "campaign: missing; n needs it").At(where+".campaign", "missing; n needs it")
	case c.N == 0 && c.Code == "":
		return web.New(web.Malformed, "code: missing").At(where+".code", "missing")
	}
	return nil
}

// Wanted selects coupons: one, or a list.
type Wanted struct {
	Code string `json:"code,omitempty" maxLength:"128" doc:"Of one coupon, as it was typed. Of imported codes campaign is needed, too."`
	N    int    `json:"n,omitempty" minimum:"1" maximum:"1000000000" doc:"Of one coupon, with campaign and instead of code: its number."`
	// History is a string where it is in the query of a URL.
	History bool `json:"history,omitempty" doc:"true: with a page of what happened to the one coupon; limit and after are of that."`
	ops.ListCoupons
}

func (a *API) searchCoupons(ctx context.Context, w *Wanted) (*CouponList, error) {
	switch {
	case w.Code == "" && w.N == 0 && w.History:
		return nil, invalid("body.history", "is of one coupon; give its code, or campaign and n")
	case w.Code == "" && w.N == 0:
		return a.listCoupons(ctx, &w.ListCoupons)
	case w.CustomerID != "" || w.OrderID != "" || w.Status != "" || w.LastFour != "":
		return nil, invalid("body", "give a code or n, or what selects a list")
	}
	name := CouponName{w.Code, w.Campaign, w.N}
	if err := name.check("body"); err != nil {
		return nil, err
	}
	var one *OneCoupon
	err := a.triedIn(ctx, func() (err error) {
		one, err = a.oneCoupon(ctx, w)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &CouponList{Page: ops.Page[Coupon]{Items: []Coupon{one.Coupon}, Next: one.Next}, History: one.History}, nil
}

// listCoupons carries out coupon.list.
func (a *API) listCoupons(ctx context.Context, q *ops.ListCoupons) (*CouponList, error) {
	raw, _ := json.Marshal(q) // never fails
	fields, _ := ops.ParseFields(raw)
	answer, err := ops.Named("coupon.list").Do(ctx, a.Ops, author(ctx), fields)
	if err != nil {
		return nil, err
	}
	return &CouponList{Page: answer.(ops.Page[Coupon])}, nil
}

// Validation is the body of a validation.
type Validation struct {
	CouponName
	OrderID    string `json:"order_id,omitempty" maxLength:"128"`
	CustomerID string `json:"customer_id,omitempty" maxLength:"128"`
}

// Validated is whether a redemption would be accepted now.
type Validated struct {
	Valid  bool     `json:"valid"`
	Reason web.Code `json:"reason,omitempty" doc:"Why not: the refusal that a redemption would have; to a public key code_not_valid."`
	Coupon *Coupon  `json:"coupon,omitempty" doc:"As its lane has it; absent where the code does not exist, and to a public key where it is not valid."`
}

func (a *API) validate(ctx context.Context, in *Validation) (v Validated, err error) {
	var out wire.Outcome
	err = a.triedIn(ctx, func() (err error) {
		out, err = a.validated(ctx, in)
		return err
	})
	var no *web.Problem
	switch {
	case err == nil:
		v.Valid = true
	case errors.As(err, &no) && (no.Code == web.CodeNotValid || slices.Contains(unusable, no.Code)):
		v.Reason = no.Code
	default:
		return v, err
	}
	if out.N != 0 && v.Reason != web.CodeNotValid {
		v.Coupon = &Coupon{Campaign: out.Campaign, N: out.N, Code: out.Code, Status: cmp.Or(out.CouponStatus, wire.StatusClaimed),
			CustomerID: out.CustomerID, RedeemedCount: out.RedeemedCount, Benefit: out.Benefit}
		if out.ExpiresAt != 0 {
			at := out.ExpiresAt.Time()
			v.Coupon.ExpiresAt = &at
		}
	}
	return v, nil
}

// validated is the outcome; that of a code which cannot be redeemed is an error, too.
func (a *API) validated(ctx context.Context, in *Validation) (out wire.Outcome, err error) {
	p := principal(ctx)
	if in.N != 0 && !p.Person() {
		return out, guessable("body.n")
	}
	if err := in.check("body"); err != nil {
		return out, err
	}
	campaign, err := a.campaignOf(ctx, p, access.OpValidate, in.Code, in.Campaign)
	if err != nil {
		return out, err
	}
	opts := []client.Option{client.Campaign(campaign), client.N(uint32(in.N))}
	if in.CustomerID != "" {
		opts = append(opts, client.Holder(in.CustomerID))
	}
	if out, err = a.Queries.Validate(ctx, in.Code, in.OrderID, opts...); err != nil {
		return out, unanswered("the coupon", err)
	}
	if err = a.shown(ctx, access.OpValidate, &out, true, in.N != 0); err == nil && out.Refused() {
		return out, web.Refused(&out)
	}
	return out, err
}

// campaignOf returns the campaign that a command or query about a code must name, "" = none, after checking that the key
// includes it.
//
// The code's lane is queried alone: the redemptions of such a key go on at their pace while the read tables are away.
func (a *API) campaignOf(ctx context.Context, p access.Principal, o access.Operation, code, campaign string) (string, error) {
	if campaign == "" && p.Campaigns != nil {
		ctx, cancel := context.WithTimeout(ctx, queryWait)
		defer cancel()
		// A refusal of a coupon that exists names its campaign, too.
		out, err := a.Queries.Validate(ctx, code, "")
		switch {
		case err != nil:
			return "", unanswered("the coupon", err)
		case out.Campaign == "" && out.Refused():
			return "", web.Refused(&out)
		}
		if campaign = out.Campaign; !p.May(o, campaign) {
			// The answer must not differ from that of a code that does not exist.
			return "", web.New(web.Code(wire.CodeNotFound), "there is no such code")
		}
	}
	if campaign == "" {
		return "", nil
	}
	if problem := web.Check(p, o, campaign); problem != nil {
		return "", problem
	}
	return campaign, nil
}

// oneCoupon shows the coupon of a name: as its lane has it, with what the read tables add, which is one row or, with its history,
// that and a page.
func (a *API) oneCoupon(ctx context.Context, w *Wanted) (*OneCoupon, error) {
	if w.After != "" && !w.History {
		return nil, ops.NeedsHistory
	}
	p := principal(ctx)
	campaign, err := a.campaignOf(ctx, p, access.OpShowCoupon, w.Code, w.Campaign)
	if err != nil {
		return nil, err
	}
	ends := a.Ops.Cursors.Of("history", p, w)
	name := []client.Option{client.Campaign(campaign), client.N(uint32(w.N)), client.Order(w.OrderID)}
	var found client.Coupon
	if w.History {
		after, wrong := ends.Open(w.After)
		if wrong != nil {
			return nil, wrong
		}
		found, err = a.Queries.CouponHistory(ctx, w.Code, client.Page{Limit: w.Limit, After: after}, name...)
	} else {
		found, err = a.Queries.Coupon(ctx, w.Code, name...)
	}
	if err != nil {
		return nil, unanswered("the coupon", err)
	}
	out := &OneCoupon{Coupon: couponOf(found.CouponView), OrderStatus: found.OrderStatus, Next: ends.Seal(found.Next)}
	if found.OrderStatus != "" {
		out.OrderID = w.OrderID
	}
	a.complete(ctx, &out.Coupon)
	if err := a.lookedUp(ctx, "coupon", audit.Coupon(out.Campaign, out.N, w.N != 0)); err != nil {
		return nil, err
	}
	a.mask(&out.Coupon, p, "")
	out.History, err = a.historyOf(found.History, p, nil, "")
	return out, err
}

// completeWait bounds what the read tables add: without them the answer of the lane comes in time.
const completeWait = time.Second

// complete adds what only the read tables have. While they are away, or lag, it is absent.
func (a *API) complete(ctx context.Context, c *Coupon) {
	if a.DB == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, completeWait)
	defer cancel()
	row, err := readmodel.NewCoupons(a.DB).One(ctx, c.Campaign, c.N)
	if err != nil || row == nil {
		return
	}
	c.CustomerID, c.ClaimedAt, c.RedeemedAt, c.VoidedAt, c.VoidReason, c.Attributes = row.CustomerID, row.ClaimedAt, row.RedeemedAt, row.VoidedAt, row.VoidReason, row.Attributes
}

// unmasked records that codes are looked up in clear.
func (a *API) unmasked(ctx context.Context, action, about string) error {
	if !principal(ctx).Codes {
		return nil
	}
	return a.record(ctx, audit.LookUp, action, about)
}

// lookedUp records a look-up whose answer has codes or customers in clear.
func (a *API) lookedUp(ctx context.Context, action, about string) error {
	if p := principal(ctx); !p.Codes && !p.Customers {
		return nil
	}
	return a.record(ctx, audit.LookUp, action, about)
}

func couponOf(v domain.CouponView) Coupon {
	return Coupon{Campaign: v.Campaign, N: v.N, Code: v.Code, Status: v.Status, ExpiresAt: v.ExpiresAt, RedeemedCount: v.RedeemedCount, Benefit: v.Benefit}
}

// mask masks what the key does not see. customer is the one that the request names; "" = none.
func (a *API) mask(c *Coupon, p access.Principal, customer string) {
	if !p.Codes {
		c.Code = code.Mask(c.Code)
	}
	c.CustomerID = a.Ops.ShownCustomer(p, c.CustomerID, customer)
}

// historyOf reads the history that the service sent. campaigns limits it; nil = all. customer is as mask has it.
func (a *API) historyOf(h client.History, p access.Principal, campaigns []string, customer string) (History, error) {
	out := History{Unavailable: h.Unavailable, Note: h.Note}
	if h.History == nil {
		return out, nil
	}
	if err := json.Unmarshal(h.History, &out.History); err != nil {
		return out, unavailable("the history cannot be read", err)
	}
	if campaigns != nil {
		out.History = slices.DeleteFunc(out.History, func(e readmodel.Entry) bool { return !slices.Contains(campaigns, e.Campaign) })
	}
	for i := range out.History {
		e := &out.History[i]
		if !p.Codes && e.Code != "" {
			e.Code = code.Mask(e.Code)
		}
		e.CustomerID = a.Ops.ShownCustomer(p, e.CustomerID, customer)
	}
	return out, nil
}

// OneCustomer is a customer.
type OneCustomer struct {
	CustomerID string `json:"customer_id"`
	CouponList
}

// CustomerPage is a page of a customer.
type CustomerPage struct {
	Customer string `json:"customer_id" maxLength:"128"`
	History  string `json:"history,omitempty" enum:"0,1" doc:"1: with what happened to the coupons and the customer's reminders."`
	ops.Paging
}

func (a *API) getCustomer(ctx context.Context, in *CustomerPage) (*OneCustomer, error) {
	p := principal(ctx)
	ends := a.Ops.Cursors.Of("customer", p, in)
	after, err := ends.Open(in.After)
	if err != nil {
		return nil, err
	}
	look := a.Queries.Customer
	if in.History == "1" {
		look = a.Queries.CustomerHistory
	}
	found, err := look(ctx, in.Customer, client.Page{Limit: in.Limit, After: after})
	if err != nil {
		return nil, unanswered("the customer", err)
	}
	out := &OneCustomer{}
	out.CustomerID, out.Items = in.Customer, []Coupon{}
	for _, v := range found.Items {
		if p.Campaigns == nil || slices.Contains(p.Campaigns, v.Campaign) {
			out.Items = append(out.Items, couponOf(v))
		}
	}
	if err := a.lookedUp(ctx, "customer", in.Customer); err != nil {
		return nil, err
	}
	for i := range out.Items {
		a.mask(&out.Items[i], p, in.Customer)
	}
	if out.History, err = a.historyOf(found.History, p, p.Campaigns, in.Customer); err != nil {
		return nil, err
	}
	out.Next = ends.Seal(found.Next)
	return out, nil
}
