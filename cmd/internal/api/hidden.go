package api

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/command"
)

// unusable are the refusals by which a code cannot be redeemed now. Public keys do not see which one it is.
var unusable = []web.Code{
	web.Code(wire.CodeNotFound), web.Code(wire.NotHolder), web.Code(wire.Voided), web.Code(wire.CampaignPaused), web.Code(wire.Expired),
	web.Code(wire.AlreadyRedeemed), web.Code(wire.RedemptionLimitReached), web.Code(wire.LimitReached),
}

// try reserves room for one wrong code, see access.WrongCodes.
func (a *API) try(p access.Principal, address string) (end func(wrong bool), problem *web.Problem) {
	var client netip.Addr // of a public key: others have no budget by address
	if p.Public {
		client = web.Network(address)
	}
	end, wait := a.Wrong.Reserve(p, client)
	if wait > 0 {
		return nil, web.New(web.TooManyWrongCodes, "too many wrong codes, or codes whose answer is not known yet; wait").After(wait)
	}
	return end, nil
}

// tried carries out a request about a code, within the budget for wrong codes.
func (a *API) tried(p access.Principal, address string, do func() error) error {
	end, problem := a.try(p, address)
	if problem != nil {
		return problem
	}
	wrong := false
	defer func() { end(wrong) }()
	err := do()
	if refused := (*web.Problem)(nil); errors.As(err, &refused) {
		wrong = refused.Code == web.Code(wire.CodeNotFound) || p.Public && slices.Contains(unusable, refused.Code)
		if wrong && p.Public {
			err = web.New(web.CodeNotValid, "")
		}
	}
	return err
}

// triedIn is tried for the request of a context.
func (a *API) triedIn(ctx context.Context, do func() error) error {
	by := author(ctx)
	return a.tried(by.Principal, by.From, do)
}

// guessable is the problem of a key that has to know the code and gives n.
func guessable(where string) *web.Problem {
	return web.New(web.Forbidden, "n: "+wire.CodeOnly).At(where, wire.CodeOnly)
}

// Outcome is the outcome of a command, as lanes write it. One whose result is unknown has no status.
type Outcome struct{ wire.Outcome }

// Schema follows from the fields of outcomes.
func (Outcome) Schema(r huma.Registry) *huma.Schema {
	s := open(objectOf(wire.NoCommand.DescribeOutcome()))
	s.Properties["refusal"].Enum = enum(codes) // of a line that a key may not send, too
	return define(r, "Outcome", s)
}

// shown masks the code in an outcome that its reader may not see. The event of a change names the person who sent it; what a person
// sees without one is recorded.
func (a *API) shown(ctx context.Context, o access.Operation, out *wire.Outcome, record, byN bool) error {
	p := principal(ctx)
	if p.Hide(out); out.Code == "" || !record || !p.Person() {
		return nil
	}
	return a.unmasked(ctx, o.String(), audit.Coupon(out.Campaign, out.N, byN))
}

// A public key is in a page, so everybody has it, and customer_id is what its sender writes. What such a key gets must not depend
// on who the customer is; nor what a producer gets whose key is of a maker that sees no codes:
//
//	claim of ann, id 1 ──> 201 with the code
//	the same again     ──> 200 with the code: only who sent id 1 has it
//	claim of ann, id 2 ──> 200 without the code: ann has a coupon, and this may be anybody
//
// An id that the server made is in events, which readers without codes see: it proves nothing.

// hide takes from the outcome of a command what its sender may not see. A repeat of a claim by such a key is looked up: whether it
// was one by its id, and not because the customer has the only coupon that is allowed.
func (a *API) hide(ctx context.Context, c wire.CommandType, out *wire.Outcome, byN bool) error {
	p := principal(ctx)
	if !p.Withholds(c, out) {
		return a.shown(ctx, access.OperationOf(c), out, out.Repeat, byN)
	}
	if madeID(p, out.ID) {
		access.Withhold(out)
		return nil
	}
	same, err := a.isRepeated(ctx, p, out)
	if err != nil {
		return web.Failed(&command.UnknownError{ID: out.ID, Cause: err}, out.ID)
	}
	if !same {
		access.Withhold(out)
	}
	return nil
}

// isRepeated reports whether a claim that was a repeat was one by its id, and not because the customer has the only coupon that is
// allowed. A redemption with an id that the campaign has seen is refused for that reason, and a validation is that without effect.
//
// A claim of another customer with this id may have come in between. So the claim is sent once more: a campaign that has seen an id
// answers with what was done under it, or refuses it, and does nothing.
func (a *API) isRepeated(ctx context.Context, p access.Principal, claim *wire.Outcome) (bool, error) {
	within, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	out, err := a.Queries.Validate(within, claim.Code, "", client.Campaign(claim.Campaign), client.ID(claim.ID))
	if err != nil || out.Refusal != wire.IdempotencyKeyReused {
		return false, err
	}
	again, err := a.send(ctx, p, &wire.Command{Type: wire.Claim, ID: claim.ID, Campaign: claim.Campaign, CustomerID: claim.CustomerID})
	if again.Refused() {
		return false, nil
	}
	return again.Repeat && again.N == claim.N, err
}
