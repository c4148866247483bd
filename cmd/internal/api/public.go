package api

import (
	"context"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/command"
)

// A public key is in a page, so everybody has it, and customer_id is what its sender writes. What such a key gets must not depend
// on who the customer is:
//
//	claim of ann, id 1 ──> 201 with the code
//	the same again     ──> 200 with the code: only who sent id 1 has it
//	claim of ann, id 2 ──> 200 without the code: ann has a coupon, and this may be anybody

// claimedBefore is the message of an answer without the code.
const claimedBefore = "the customer has claimed before; a public key gets the code only by repeating that request with its Idempotency-Key"

// hideClaim takes from the outcome of a claim what its sender may not see.
func (a *API) hideClaim(ctx context.Context, p access.Principal, out *wire.Outcome) *web.Problem {
	if !p.Public || !out.Repeat {
		return nil
	}
	same, err := a.isRepeated(ctx, out)
	if err != nil {
		return web.Failed(&command.UnknownError{ID: out.ID, Cause: err}, out.ID)
	}
	if !same {
		out.Code, out.N, out.ExpiresAt, out.CouponStatus, out.Message = "", 0, 0, "", claimedBefore
	}
	return nil
}

// hideClaimLine is hideClaim for an outcome as its lane wrote it.
func (a *API) hideClaimLine(ctx context.Context, p access.Principal, line []byte) ([]byte, *web.Problem) {
	out, err := wire.ParseOutcome(line)
	if err != nil {
		return nil, web.Failed(&command.UnknownError{ID: out.ID, Cause: err}, out.ID)
	}
	problem := a.hideClaim(ctx, p, &out)
	return out.AppendJSON(nil), problem
}

// isRepeated reports whether a claim that was a repeat was one by its id, and not because the customer has the only coupon that is
// allowed. A redemption with an id that the campaign has seen is refused for that reason, and a validation is that without effect.
func (a *API) isRepeated(ctx context.Context, claim *wire.Outcome) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	out, err := a.Queries.Validate(ctx, claim.Code, "", client.Campaign(claim.Campaign), client.ID(claim.ID))
	return out.Refusal == wire.IdempotencyKeyReused, err
}
