package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// Campaign is a campaign as its lane has it.
type Campaign struct{ domain.CampaignView }

// TransformSchema lets later versions add fields.
func (Campaign) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema { return open(s) }

// Named is the name in a path.
type Named struct {
	Campaign string `path:"campaign" doc:"The campaign's name."`
}

// OneCampaign is an answer with a campaign.
type OneCampaign struct {
	ETag string `header:"ETag" doc:"For If-Match."`
	Body Campaign
}

func etag(v *domain.CampaignView) string {
	return `"` + v.Version + `"`
}

// CampaignList is a page of campaigns.
type CampaignList struct {
	Body struct {
		Campaigns []Campaign `json:"campaigns" nullable:"false" doc:"By name."`
		Next      string     `json:"next,omitempty" doc:"The value of after for the next page; absent on the last one."`
	}
}

// Paging are the parameters of a list.
type Paging struct {
	Limit int    `query:"limit" minimum:"1" maximum:"100" default:"100" doc:"The most entries of a page."`
	After string `query:"after" maxLength:"512" doc:"The next of the page before."`
}

func (a *API) campaignRoutes() {
	Register(a, Route{Method: http.MethodGet, Path: "/v1/campaigns", ID: "listCampaigns", Tag: "campaigns", Summary: "List campaigns",
		Operation: access.OpListCampaigns, Later: true}, a.listCampaigns)
	Register(a, Route{Method: http.MethodGet, Path: "/v1/campaigns/{campaign}", ID: "getCampaign", Tag: "campaigns", Summary: "Show a campaign",
		Operation: access.OpShowCampaign}, a.getCampaign)
}

func (a *API) listCampaigns(ctx context.Context, in *Paging) (*CampaignList, error) {
	out := &CampaignList{}
	out.Body.Campaigns = []Campaign{}
	after, err := parseCursor[struct{ Name string }]("campaigns", in.After)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	if p := principal(ctx); p.Campaigns != nil {
		return out, a.listOwn(ctx, p, after.Name, in.Limit, out)
	}
	page, next, err := a.Queries.Campaigns(ctx, after.Name, in.Limit)
	if err != nil {
		return nil, unanswered("the list of campaigns", err)
	}
	for _, v := range page {
		out.Body.Campaigns = append(out.Body.Campaigns, Campaign{v})
	}
	if after.Name = next; next != "" {
		out.Body.Next = cursor("campaigns", after)
	}
	return out, nil
}

// listOwn lists those of a key that is limited to some, of which some may not exist.
func (a *API) listOwn(ctx context.Context, p access.Principal, after string, limit int, out *CampaignList) error {
	for _, name := range slices.Sorted(slices.Values(p.Campaigns)) {
		if name <= after {
			continue
		}
		if len(out.Body.Campaigns) == limit {
			out.Body.Next = cursor("campaigns", struct{ Name string }{out.Body.Campaigns[limit-1].Campaign})
			return nil
		}
		v, err := a.Queries.Campaign(ctx, name)
		switch {
		case isRefused(err, wire.CampaignNotFound):
		case err != nil:
			return unanswered("campaign "+name, err)
		default:
			out.Body.Campaigns = append(out.Body.Campaigns, Campaign{v})
		}
	}
	return nil
}

func (a *API) getCampaign(ctx context.Context, in *Named) (*OneCampaign, error) {
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	if err := checkCampaign(in.Campaign); err != nil {
		return nil, err
	}
	v, err := a.Queries.Campaign(ctx, in.Campaign)
	if err != nil {
		return nil, unanswered("campaign "+in.Campaign, err)
	}
	return &OneCampaign{ETag: etag(&v), Body: Campaign{v}}, nil
}

// checkCampaign checks a name in a path.
func checkCampaign(name string) error {
	if !wire.ValidCampaignName(name) {
		return web.New(web.Code(wire.Invalid), "campaign: must be 1 to 64 of A-Z a-z 0-9 _ -").At("path.campaign", "must be 1 to 64 of A-Z a-z 0-9 _ -")
	}
	return nil
}
