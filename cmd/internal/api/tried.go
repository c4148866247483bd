package api

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
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
	end, wait := a.Wrong.Begin(p, client)
	if wait > 0 {
		return nil, web.New(web.TooManyWrongCodes, "too many wrong codes, or codes whose answer is not known yet; wait").After(wait)
	}
	return end, nil
}

// tried answers a request about a code, within the budget for wrong codes.
func tried[T any](ctx context.Context, a *API, answer func() (*T, error)) (*T, error) {
	p := principal(ctx)
	from, _ := ctx.Value(addressKey{}).(string)
	end, problem := a.try(p, from)
	if problem != nil {
		return nil, problem
	}
	wrong := false
	defer func() { end(wrong) }()
	done, err := answer()
	var refused *web.Problem
	if errors.As(err, &refused) {
		if wrong, refused = judged(p, refused); wrong {
			err = refused
		}
	}
	return done, err
}

// judged reports whether a code was wrong, and what its sender sees of that.
func judged(p access.Principal, refused *web.Problem) (wrong bool, shown *web.Problem) {
	wrong = refused.Code == web.Code(wire.CodeNotFound) || p.Public && slices.Contains(unusable, refused.Code)
	if wrong && p.Public {
		refused = web.New(web.CodeNotValid, "")
	}
	return wrong, refused
}
