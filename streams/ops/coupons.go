package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/client"
)

// Coupons are the coupons in the read tables. The answers are of a package above this one. Errors that no retry changes are
// refusals.
type Coupons interface {
	// List lists coupons of these campaigns, nil = all.
	List(ctx context.Context, q ListCoupons, campaigns []string, masked bool) (Page[any], error)
	// Numbers finds the coupons of a campaign by their codes, which count among the codes that the caller tries.
	Numbers(ctx context.Context, who Caller, campaign string, codes []string) ([]uint32, error)
	Statistics(ctx context.Context, q CampaignStatistics) (Page[any], error)
	Due(ctx context.Context, q Paging) (DuePage[any, any], error)
}

const (
	mostNumbers = 10_000 // in a request
	mostCodes   = 1000
)

// CouponFilter selects coupons of a campaign. The zero value selects all that are claimed, whatever became of them.
type CouponFilter struct {
	Status        string    `json:"status,omitempty" enum:"claimed,redeemed,expired,voided" doc:"Those in this state."`
	CustomerID    string    `json:"customer_id,omitempty" maxLength:"128" doc:"Those that the customer holds."`
	ClaimedFrom   time.Time `json:"claimed_from,omitzero" doc:"Those that were claimed at this time or later."`
	ClaimedBefore time.Time `json:"claimed_before,omitzero" doc:"Those that were claimed before this time."`
}

// SelectCoupons selects coupons of a campaign for a change: by a list of numbers, a list of codes, or a filter.
type SelectCoupons struct {
	Campaign string   `json:"campaign" doc:"Its name."`
	N        []uint32 `json:"n,omitempty" nullable:"false" doc:"Numbers of coupons in the campaign, at most 10,000."`
	Codes    []string `json:"codes,omitempty" nullable:"false" doc:"Instead of n: codes as they were typed, at most 1,000."`
	CouponFilter
	All    bool `json:"all,omitempty" doc:"Instead of n, codes and a filter: all claimed coupons of the campaign."`
	DryRun bool `json:"dry_run,omitempty" doc:"Count them, and change nothing."`
	Most   int  `json:"most,omitempty" minimum:"1" maximum:"10000000" doc:"The most coupons to change: if more are selected, nothing is changed. Required without dry_run."`
}

// VoidCoupons is the request of coupons.void.
type VoidCoupons struct {
	SelectCoupons
	Reason string `json:"reason,omitempty" maxLength:"256" doc:"Stored with each event."`
}

// ExtendCoupons is the request of coupons.extend.
type ExtendCoupons struct {
	SelectCoupons
	ExpiresAt time.Time `json:"expires_at" doc:"When they expire, in the future."`
}

// CouponsChanged is the result of coupons.void and coupons.extend. Those that were done by a run that failed, and for which the
// log has no answer to this one, are among the repeated ones.
type CouponsChanged struct {
	Matched  int64                  `json:"matched" doc:"Coupons that are selected."`
	Done     int64                  `json:"done" doc:"Coupons that were changed."`
	Repeated int64                  `json:"repeated" doc:"Coupons that were so already."`
	Refused  map[wire.Refusal]int64 `json:"refused,omitempty" doc:"Coupons that were not changed, by reason."`
	First    []RefusedCoupon        `json:"first_refused,omitempty" doc:"The first of them, at most 20."`
}

// RefusedCoupon is a coupon that was not changed.
type RefusedCoupon struct {
	N       uint32       `json:"n"`
	Refusal wire.Refusal `json:"refusal"`
	Message string       `json:"message,omitempty"`
}

// VoidCoupons starts to void many coupons.
func (o *Ops) VoidCoupons(ctx context.Context, who Caller, q VoidCoupons) (Job, error) {
	return o.changeCoupons(ctx, who, "coupons.void", &q.SelectCoupons, &q)
}

// ExtendCoupons starts to extend many coupons.
func (o *Ops) ExtendCoupons(ctx context.Context, who Caller, q ExtendCoupons) (Job, error) {
	return o.changeCoupons(ctx, who, "coupons.extend", &q.SelectCoupons, &q)
}

// changeCoupons starts a job whose request has selected, with numbers instead of codes: no code is stored.
func (o *Ops) changeCoupons(ctx context.Context, who Caller, action string, selected *SelectCoupons, request any) (Job, error) {
	if err := selected.check(); err != nil {
		return Job{}, err
	}
	if err := o.mustExist(ctx, selected.Campaign); err != nil {
		return Job{}, err
	}
	if len(selected.Codes) > 0 {
		if o.Coupons == nil {
			return Job{}, ErrNoTables
		}
		n, err := o.Coupons.Numbers(ctx, who, selected.Campaign, selected.Codes)
		if err != nil {
			return Job{}, err
		}
		selected.N, selected.Codes = n, nil
	}
	slices.Sort(selected.N)
	selected.N = slices.Compact(selected.N)
	if !selected.DryRun && len(selected.N) > selected.Most {
		return Job{}, TooMany(int64(len(selected.N)), selected.Most)
	}
	return o.Jobs.Start(ctx, who, action, request)
}

// TooMany refuses a change of more coupons than its caller allows.
func TooMany(matched int64, most int) *Refusal {
	return invalid("most", fmt.Sprintf("%d coupons are selected, more than %d; nothing was changed", matched, most))
}

// check refuses a selection that names coupons in no way or in several.
func (q *SelectCoupons) check() error {
	ways := 0
	for _, given := range []bool{len(q.N) > 0, len(q.Codes) > 0, q.CouponFilter != CouponFilter{}, q.All} {
		if given {
			ways++
		}
	}
	masked := slices.IndexFunc(q.Codes, func(code string) bool { return strings.Contains(code, "*") })
	switch {
	case ways != 1:
		return &Refusal{Code: wire.Invalid, Field: "n", Message: "give one of n, codes, a filter (status, customer_id, claimed_from, claimed_before) and all"}
	case len(q.N) > mostNumbers:
		return invalid("n", "are more than 10,000")
	case slices.ContainsFunc(q.N, func(n uint32) bool { return n < 1 || n > wire.MaxCodes }):
		return invalid("n", "must be whole numbers from 1 to 1,000,000,000")
	case len(q.Codes) > mostCodes:
		return invalid("codes", "are more than 1,000")
	case masked >= 0:
		return invalid("codes", fmt.Sprintf("number %d has stars: a masked code names no coupon; give n", masked+1))
	case !q.DryRun && q.Most == 0:
		return invalid("most", "missing: the most coupons to change; a dry run counts them")
	}
	return nil
}

// mustExist refuses the name of a campaign that does not exist.
func (o *Ops) mustExist(ctx context.Context, campaign string) error {
	_, err := o.Queries.Campaign(ctx, campaign)
	return found(err)
}

// found is the error of a query of a lane: a refusal if the lane refused it.
func found(err error) error {
	var no *client.RefusedError
	if errors.As(err, &no) {
		return &Refusal{Code: no.Outcome.Refusal, Message: no.Outcome.Message}
	}
	return err
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
func (o *Ops) ListCoupons(ctx context.Context, who Caller, q ListCoupons) (Page[any], error) {
	symbols := strings.ToUpper(strings.NewReplacer("-", "", "*", "", " ", "").Replace(q.LastFour))
	about, lists := "campaign "+q.Campaign, 0
	for of, id := range map[string]string{"customer ": q.CustomerID, "order ": q.OrderID} {
		if id != "" {
			about = of + id
			lists++
		}
	}
	var err error
	switch {
	case o.Coupons == nil:
		err = ErrNoTables
	case lists > 1:
		err = invalid("order_id", "give one of customer_id and order_id")
	case lists == 0 && q.Campaign == "":
		err = invalid("campaign", "missing; give customer_id, order_id or campaign")
	case q.Campaign != "" && !wire.ValidCampaignName(q.Campaign):
		err = invalid("campaign", "must be 1 to 64 of A-Z a-z 0-9 _ -")
	case q.LastFour != "" && (lists > 0 || q.Campaign == ""):
		err = invalid("last_four", "needs campaign, and no customer_id or order_id")
	case q.LastFour != "" && len(symbols) != 4:
		err = invalid("last_four", "must be the last four symbols of a code, such as LRR5")
	}
	if err != nil {
		return Page[any]{}, err
	}
	q.LastFour = symbols
	page, err := o.Coupons.List(ctx, q, who.Campaigns, !who.Codes)
	if err == nil && who.Codes {
		err = o.record(ctx, who, audit.LookUp, "coupons", about)
	}
	return page, err
}
