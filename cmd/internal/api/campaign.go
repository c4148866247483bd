package api

import (
	"context"
	"slices"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// CampaignList is a page of campaigns.
type CampaignList struct {
	Campaigns []domain.CampaignView `json:"campaigns" nullable:"false" doc:"By name."`
	Next      string                `json:"next,omitempty" doc:"The value of after for the next page; absent on the last one."`
}

// Paging are the parameters of a list.
type Paging struct {
	Limit int    `json:"limit,omitempty" minimum:"1" maximum:"100" default:"100" doc:"The most entries of a page."`
	After string `json:"after,omitempty" maxLength:"512" doc:"The next of the page before."`
}

func (a *API) listCampaigns(ctx context.Context, in *Paging) (*CampaignList, error) {
	out := &CampaignList{Campaigns: []domain.CampaignView{}}
	after, err := parseCursor[struct{ Name string }](a, "campaigns", in.After)
	if err != nil {
		return nil, err
	}
	if p := principal(ctx); p.Campaigns != nil {
		return out, a.listOwn(ctx, p, after.Name, in.Limit, out)
	}
	page, next, err := a.Queries.Campaigns(ctx, after.Name, in.Limit)
	if err != nil {
		return nil, unanswered("the list of campaigns", err)
	}
	out.Campaigns = append(out.Campaigns, page...)
	if after.Name = next; next != "" {
		out.Next = a.cursor("campaigns", after)
	}
	return out, nil
}

// listOwn lists those of a key that is limited to some, of which some may not exist.
func (a *API) listOwn(ctx context.Context, p access.Principal, after string, limit int, out *CampaignList) error {
	for _, name := range slices.Sorted(slices.Values(p.Campaigns)) {
		if name <= after {
			continue
		}
		if len(out.Campaigns) == limit {
			out.Next = a.cursor("campaigns", struct{ Name string }{out.Campaigns[limit-1].Campaign})
			return nil
		}
		v, err := a.Queries.Campaign(ctx, name)
		switch {
		case isRefused(err, wire.CampaignNotFound):
		case err != nil:
			return unanswered("campaign "+name, err)
		default:
			out.Campaigns = append(out.Campaigns, v)
		}
	}
	return nil
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
