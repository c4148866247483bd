package ops

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/client"
)

// Coupons are the coupons in the read tables.
type Coupons interface {
	// List reads a part of a list of coupons of these campaigns, nil = all, with their codes. It calls Turn.
	List(ctx context.Context, q ListCoupons, campaigns []string) (Page[Coupon], error)
	// ByNumber returns coupons of a campaign, without those that are not claimed.
	ByNumber(ctx context.Context, campaign string, n ...uint32) ([]Coupon, error)
	// Hits are the coupons of a campaign that a filter selects among so many rows after a number. last is the end of these rows, where
	// the next call goes on if there are more.
	Hits(ctx context.Context, campaign, lastFour string, f CouponFilter, after uint32, rows int) (hits []uint32, last uint32, more bool, err error)
	// Checkpoint is the last event message of a lane that the tables have; ok is false where they have no checkpoint of it.
	Checkpoint(ctx context.Context, lane int) (sequence uint64, ok bool, err error)
	Days(ctx context.Context, q ListDays) (Page[Day], error)
	Due(ctx context.Context, q Paging) (DuePage, error)
}

// Coupon is a coupon.
type Coupon struct {
	Campaign      string          `json:"campaign"`
	N             uint32          `json:"n" doc:"Its number in the campaign."`
	Code          string          `json:"code" doc:"With stars, but for its end, unless the key sees codes."`
	Status        string          `json:"status" enum:"claimed,redeemed,expired,voided"`
	CustomerID    string          `json:"customer_id,omitempty" doc:"A keyed hash unless the key sees customers, or the request names it."`
	ClaimedAt     *time.Time      `json:"claimed_at,omitempty"`
	ExpiresAt     *time.Time      `json:"expires_at,omitempty"`
	RedeemedCount uint32          `json:"redeemed_count"`
	RedeemedAt    *time.Time      `json:"redeemed_at,omitempty"`
	VoidedAt      *time.Time      `json:"voided_at,omitempty"`
	VoidReason    string          `json:"void_reason,omitempty"`
	Attributes    json.RawMessage `json:"attributes,omitempty" doc:"Of the claim."`
	Benefit       json.RawMessage `json:"benefit,omitempty" db:"-" doc:"The campaign's, in the answer to one code."`
}

// ListCoupons is a page of coupons: of a campaign, a customer or an order.
type ListCoupons struct {
	Campaign   string `json:"campaign,omitempty" maxLength:"64" doc:"Those of this campaign."`
	CustomerID string `json:"customer_id,omitempty" maxLength:"128" doc:"Those that the customer holds."`
	OrderID    string `json:"order_id,omitempty" maxLength:"128" doc:"Those that were redeemed for the order, also if that was rolled back."`
	Status     string `json:"status,omitempty" enum:"claimed,redeemed,expired,voided" doc:"Those in this state."`
	LastFour   string `json:"last_four,omitempty" maxLength:"16" doc:"Those whose code ends with these four symbols; needs campaign."`
	Paging
}

// ListCoupons lists coupons. Those in clear are recorded.
func (o *Ops) ListCoupons(ctx context.Context, who Caller, q ListCoupons) (page Page[Coupon], err error) {
	q.LastFour = strings.ToUpper(strings.NewReplacer("-", "", "*", "", " ", "").Replace(q.LastFour))
	about := strings.TrimSpace(q.CustomerID + " " + q.OrderID)
	switch {
	case o.Coupons == nil:
		err = ErrNoTables
	case q.CustomerID != "" && q.OrderID != "":
		err = invalid("order_id", "give one of customer_id and order_id")
	case about == "" && q.Campaign == "":
		err = invalid("campaign", "missing; give customer_id, order_id or campaign")
	case q.Campaign != "" && !wire.ValidCampaignName(q.Campaign):
		err = invalid("campaign", "must be 1 to 64 of A-Z a-z 0-9 _ -")
	case q.LastFour != "" && (about != "" || q.Campaign == "" || len(q.LastFour) != 4):
		err = invalid("last_four", "must be the last four symbols of a code, such as LRR5, with campaign and without customer_id and order_id")
	default:
		page, err = list(ctx, o, who, q.Paging, func(ctx context.Context, p Paging) (Page[Coupon], error) {
			q.Paging = p
			return o.Coupons.List(ctx, q, who.Campaigns)
		})
	}
	if err != nil {
		return page, err
	}
	if who.Codes || who.Customers {
		err = o.record(ctx, who, audit.LookUp, "coupons", strings.TrimSpace(q.Campaign+" "+about))
	}
	for i := range page.Items {
		c := &page.Items[i]
		if !who.Codes {
			c.Code = code.Mask(c.Code)
		}
		c.CustomerID = o.ShownCustomer(who.Principal, c.CustomerID, q.CustomerID)
	}
	return page, err
}

// ListDays are the days of a campaign.
type ListDays struct {
	Campaign  string `json:"campaign" doc:"Its name."`
	Attribute string `json:"attribute,omitempty" maxLength:"1024" doc:"Of the claims: each day by its values; absent = the totals of each day."`
	Paging
}

// Day is what happened in a campaign on one day of UTC: in all, or for one value of an attribute of the claims.
type Day struct {
	Day        time.Time        `json:"day" doc:"Its beginning, in UTC."`
	Value      string           `json:"value,omitempty" doc:"Of the attribute."`
	Claimed    int64            `json:"claimed"`
	Redeemed   int64            `json:"redeemed"`
	RolledBack int64            `json:"rolled_back"`
	Voided     int64            `json:"voided"`
	Refused    map[string]int64 `json:"refused,omitempty" doc:"Commands that were refused, by reason; not by attribute."`
}

// ListDays counts what happened in a campaign by day, newest first.
func (o *Ops) ListDays(ctx context.Context, _ Caller, q ListDays) (Page[Day], error) {
	if o.Coupons == nil {
		return Page[Day]{}, ErrNoTables
	}
	if _, err := o.Queries.Campaign(ctx, q.Campaign); err != nil {
		return Page[Day]{}, found(err)
	}
	return o.Coupons.Days(ctx, q)
}

// found is the error of a query of a lane: a refusal if the lane refused it.
func found(err error) error {
	var no *client.RefusedError
	if errors.As(err, &no) {
		return &Refusal{Code: no.Outcome.Refusal, Message: no.Outcome.Message}
	}
	return err
}

// DueSecond is what falls due in a second of the next hour.
type DueSecond struct {
	Second   time.Time `json:"second"`
	Priority string    `json:"priority" enum:"high,normal,low"`
	Kind     string    `json:"kind" enum:"expiry,reminder"`
	Due      int64     `json:"due" doc:"Coupons, or reminders."`
}

// Overdue is what is due on a lane, and not done.
type Overdue struct {
	Lane        int       `json:"lane"`
	Priority    string    `json:"priority" enum:"high,normal,low"`
	Kind        string    `json:"kind" enum:"expiry,reminder"`
	Due         int64     `json:"due" doc:"Coupons, or reminders."`
	OldestDueAt time.Time `json:"oldest_due_at"`
	Seconds     float64   `json:"oldest_due_seconds"`
}

// DuePage is what falls due within an hour, by second.
type DuePage struct {
	Page[DueSecond]
	Backlog []Overdue `json:"backlog" nullable:"false" doc:"What is due and not done, by lane."`
}

// ListDue lists what falls due within an hour, and what is due and not done.
func (o *Ops) ListDue(ctx context.Context, who Caller, q Paging) (DuePage, error) {
	if o.Coupons == nil {
		return DuePage{}, ErrNoTables
	}
	end, err := o.lists.take(ctx, who.Client(), &listTurn) // it counts what is due, however much
	if err != nil {
		return DuePage{}, err
	}
	defer end()
	return o.Coupons.Due(ctx, q)
}
