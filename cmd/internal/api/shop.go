package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/client"
)

// NewClaim is the body of a claim.
type NewClaim struct {
	CustomerID string          `json:"customer_id"`
	Attributes json.RawMessage `json:"attributes,omitempty" doc:"A flat object of texts, numbers and booleans, at most 1 KiB."`
}

// Use is the body of a redemption or a rollback.
type Use struct {
	CouponName
	OrderID    string `json:"order_id"`
	CustomerID string `json:"customer_id,omitempty" doc:"Must be the holder, if given."`
}

// Validation is the body of a validation.
type Validation struct {
	CouponName
	OrderID    string `json:"order_id,omitempty" maxLength:"128"`
	CustomerID string `json:"customer_id,omitempty" maxLength:"128"`
}

func (a *API) shopRoutes() {
	claim := Route{Method: http.MethodPost, Path: "/v1/campaigns/{campaign}/claims", ID: "claim", Tag: "shop", Summary: "Claim a coupon",
		About: "201 with a new coupon; 200 with the same one for the same Idempotency-Key, and for a customer who has the only one that is allowed; coupon_status is there if it is void, redeemed or expired by now. " +
			"To a public key the latter comes without the code.",
		Operation: access.OpClaim, Status: http.StatusCreated}
	a.quickly(claim, wire.Claim)
	Register(a, claim,
		func(ctx context.Context, in *struct {
			Named
			Change
			Body    NewClaim
			RawBody []byte
		}) (*CommandDone, error) {
			if err := checkCampaign(in.Campaign); err != nil {
				return nil, err
			}
			cmd, err := parse(in.RawBody, wire.Claim, in.Campaign, "body")
			if err != nil {
				return nil, err
			}
			done, err := a.commandDone(ctx, cmd, in.Change, http.StatusCreated)
			if err != nil {
				return nil, err
			}
			if problem := a.hideClaim(ctx, principal(ctx), &done.Body.Outcome); problem != nil {
				return nil, problem
			}
			return done, nil
		})
	for _, use := range []struct {
		path, id, summary, about string
		command                  wire.CommandType
	}{
		{"/v1/redemptions", "redeem", "Redeem a code for an order", "The same code and order again is a repeat (200). An Idempotency-Key whose redemption was rolled back since is 409 redemption_rolled_back: send a new one.", wire.Redeem},
		{"/v1/rollbacks", "rollback", "Undo the redemption of an order", "The same again is a repeat (200). An Idempotency-Key whose order was redeemed again since is 409 outdated: send a new one.", wire.Rollback},
	} {
		route := Route{Method: http.MethodPost, Path: use.path, ID: use.id, Tag: "shop", Summary: use.summary, About: use.about,
			Operation: access.OperationOf(use.command), Later: true, Status: http.StatusCreated}
		a.quickly(route, use.command)
		Register(a, route,
			func(ctx context.Context, in *struct {
				Change
				Body    Use
				RawBody []byte
			}) (*CommandDone, error) {
				return a.onCode(ctx, in.RawBody, use.command, in.Change, http.StatusCreated)
			})
	}
	Register(a, Route{Method: http.MethodPost, Path: "/v1/validations", ID: "validate", Tag: "shop", Summary: "Ask what a redemption would answer now",
		About:     "Changes nothing. To a public key every code that cannot be redeemed is 404 code_not_valid. Wrong codes are counted: too many are 429.",
		Operation: access.OpValidate, Later: true}, a.validate)
	a.bulkRoute()
}

func (a *API) validate(ctx context.Context, in *struct{ Body Validation }) (*CommandDone, error) {
	return tried(ctx, a, func() (*CommandDone, error) { return a.validated(ctx, in.Body) })
}

func (a *API) validated(ctx context.Context, body Validation) (*CommandDone, error) {
	if err := body.check(principal(ctx), "body"); err != nil {
		return nil, err
	}
	campaign, err := a.campaignOf(ctx, access.OpValidate, body.Code, body.Campaign)
	if err != nil {
		return nil, err
	}
	opts := []client.Option{client.Campaign(campaign), client.N(body.N)}
	if body.CustomerID != "" {
		opts = append(opts, client.Holder(body.CustomerID))
	}
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	out, err := a.Queries.Validate(ctx, body.Code, body.OrderID, opts...)
	switch {
	case err != nil:
		return nil, unanswered("the coupon", err)
	case out.Refused():
		return nil, web.Refused(&out)
	}
	err = a.shown(ctx, access.OpValidate, &out, true, body.N != 0)
	return &CommandDone{Status: http.StatusOK, Body: Outcome{out}}, err
}
