package api

import (
	"context"
	"slices"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// CampaignList is a page of campaigns.
type CampaignList = ops.Page[domain.CampaignView]

func (a *API) listCampaigns(ctx context.Context, in *ops.Paging) (out CampaignList, err error) {
	p := principal(ctx)
	ends := a.Ops.Cursors.Of("campaigns", p, in)
	after, err := ends.Open(in.After)
	if err != nil {
		return out, err
	}
	if p.Campaigns != nil {
		out, err = a.listOwn(ctx, p, after, in.Limit)
	} else if out.Items, out.Next, err = a.Queries.Campaigns(ctx, client.Page{Limit: in.Limit, After: after}); err != nil {
		err = unanswered("the list of campaigns", err)
	}
	out.Next = ends.Seal(out.Next)
	return out, err
}

// listOwn lists those of a key that is limited to some, of which some may not exist.
func (a *API) listOwn(ctx context.Context, p access.Principal, after string, limit int) (out CampaignList, err error) {
	out.Items = []domain.CampaignView{}
	for _, name := range slices.Sorted(slices.Values(p.Campaigns)) {
		if name <= after {
			continue
		}
		if len(out.Items) == limit {
			out.Next = out.Items[limit-1].Campaign
			return out, nil
		}
		v, err := a.Queries.Campaign(ctx, name)
		switch {
		case isRefused(err, wire.CampaignNotFound):
		case err != nil:
			return out, unanswered("campaign "+name, err)
		default:
			out.Items = append(out.Items, v)
		}
	}
	return out, nil
}

// OneCampaign names a campaign.
type OneCampaign struct {
	Campaign string `json:"campaign" doc:"Its name."`
}

func (a *API) getCampaign(ctx context.Context, in *OneCampaign) (*domain.CampaignView, error) {
	if err := checkCampaign(in.Campaign); err != nil {
		return nil, err
	}
	v, err := a.Queries.Campaign(ctx, in.Campaign)
	if err != nil {
		return nil, unanswered("campaign "+in.Campaign, err)
	}
	return &v, nil
}

const notACampaign = "must be 1 to 64 of A-Z a-z 0-9 _ -"

// checkCampaign checks a name in a path.
func checkCampaign(name string) error {
	if !wire.ValidCampaignName(name) {
		return invalid("path.campaign", notACampaign)
	}
	return nil
}
