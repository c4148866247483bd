package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// Campaign is a campaign as its lane has it. It has the fields of domain.CampaignView.
type Campaign struct {
	Campaign       string          `json:"campaign" doc:"Its name."`
	Number         uint32          `json:"number" doc:"Part of its codes."`
	Status         string          `json:"status" doc:"active, paused or ended."`
	Version        string          `json:"version,omitempty" doc:"Of settings and status: the ETag. Claims and redemptions do not change it."`
	Codes          uint32          `json:"codes"`
	Imported       bool            `json:"imported,omitempty" doc:"Its codes are imported, not generated."`
	Claimed        uint32          `json:"claimed"`
	Redeemed       uint32          `json:"redeemed"`
	Voided         uint32          `json:"voided"`
	PerCustomer    uint32          `json:"per_customer" doc:"0 = unlimited."`
	MaxRedemptions uint32          `json:"max_redemptions"`
	OpensAt        *time.Time      `json:"opens_at,omitempty"`
	ClosesAt       *time.Time      `json:"closes_at,omitempty"`
	ExpiresAt      *time.Time      `json:"expires_at,omitempty"`
	ValidFor       string          `json:"valid_for,omitempty"`
	LateAfter      string          `json:"late_after,omitempty"`
	ExpiredThrough *time.Time      `json:"expired_through,omitempty" doc:"Coupons that expire up to it are announced as expired."`
	Prefix         string          `json:"prefix,omitempty"`
	Category       string          `json:"category,omitempty"`
	Priority       string          `json:"priority"`
	Benefit        json.RawMessage `json:"benefit,omitempty"`
	Reminders      int             `json:"reminders_pending"`
	MostReminders  uint32          `json:"reminders,omitempty" doc:"How many of them there may be. Absent: 3 for each code, 10,000 at least."`
	CreatedAt      time.Time       `json:"created_at"`
}

// TransformSchema lets later versions add fields.
func (Campaign) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema { return open(s) }

// NewCampaign is the body of a creation. wire checks the values, with the bounds of CONTRACT.md.
type NewCampaign struct {
	Campaign       string          `json:"campaign" doc:"Its name: 1 to 64 of A-Z a-z 0-9 _ -."`
	Codes          int64           `json:"codes" doc:"How many coupons there are; 0 = their codes are imported."`
	PerCustomer    *int64          `json:"per_customer,omitempty" doc:"Coupons that one customer may claim; 0 = unlimited; 1 unless given."`
	MaxRedemptions *int64          `json:"max_redemptions,omitempty" doc:"How often a coupon may be redeemed; 1 unless given."`
	Reminders      *int64          `json:"reminders,omitempty" doc:"How many reminders may be pending, 1 to 100,000,000; 3 for each code, and 10,000 at least, unless given."`
	OpensAt        *time.Time      `json:"opens_at,omitempty"`
	ClosesAt       *time.Time      `json:"closes_at,omitempty"`
	ExpiresAt      *time.Time      `json:"expires_at,omitempty"`
	ValidFor       *string         `json:"valid_for,omitempty" doc:"How long a coupon is valid from its claim, instead of expires_at: a Go duration such as 720h."`
	LateAfter      *string         `json:"late_after,omitempty" doc:"Reminders later than this are dropped: a Go duration."`
	Prefix         *string         `json:"prefix,omitempty" doc:"Before each code; cosmetic."`
	Category       *string         `json:"category,omitempty"`
	Priority       *string         `json:"priority,omitempty" enum:"high,normal,low"`
	Benefit        json.RawMessage `json:"benefit,omitempty" doc:"Any JSON of at most 512 bytes. The outcome of a redemption has it."`
}

// CampaignPatch is the body of a change: settings that are left out stay, null takes one back to its default.
type CampaignPatch struct {
	Codes          *int64          `json:"codes,omitempty" doc:"May only grow."`
	PerCustomer    *int64          `json:"per_customer,omitempty" nullable:"true"`
	MaxRedemptions *int64          `json:"max_redemptions,omitempty" nullable:"true"`
	Reminders      *int64          `json:"reminders,omitempty" nullable:"true"`
	OpensAt        *time.Time      `json:"opens_at,omitempty" nullable:"true"`
	ClosesAt       *time.Time      `json:"closes_at,omitempty" nullable:"true"`
	ExpiresAt      *time.Time      `json:"expires_at,omitempty" nullable:"true"`
	ValidFor       *string         `json:"valid_for,omitempty" nullable:"true"`
	LateAfter      *string         `json:"late_after,omitempty" nullable:"true"`
	Prefix         *string         `json:"prefix,omitempty" nullable:"true"`
	Category       *string         `json:"category,omitempty" nullable:"true"`
	Priority       *string         `json:"priority,omitempty" nullable:"true"`
	Benefit        json.RawMessage `json:"benefit,omitempty"`
}

// Named is the name in a path.
type Named struct {
	Campaign string `path:"campaign" doc:"The campaign's name."`
}

// Condition is the version that a change is for.
type Condition struct {
	IfMatch string `header:"If-Match" doc:"The ETag of the campaign as it was read, or * for any. Once settings or status are others, the change is refused with 412: read it again."`
}

// version is what the lane compares: "" = any.
func (c Condition) version() (string, error) {
	if c.IfMatch == "" || c.IfMatch == "*" {
		return "", nil
	}
	tag, ok := strings.CutPrefix(c.IfMatch, `"`)
	tag, closed := strings.CutSuffix(tag, `"`)
	if !ok || !closed || tag == "" || len(tag) > wire.MaxVersion || strings.ContainsAny(tag, `", `) {
		return "", web.New(web.Malformed, `If-Match must be one ETag of the campaign, such as "0123456789abcdef" with its quotes, or *`).At("header.If-Match", "must be one ETag or *")
	}
	return tag, nil
}

// OneCampaign is an answer with a campaign.
type OneCampaign struct {
	ETag string `header:"ETag" doc:"For If-Match."`
	Body Campaign
}

// ChangedCampaign is a campaign after a change.
type ChangedCampaign struct {
	Status int
	Changed
	ETag     string `header:"ETag" doc:"For If-Match."`
	Location string `header:"Location" doc:"Of a campaign that was created."`
	Body     Campaign
}

func etag(v *domain.CampaignView) string {
	if v.Version == "" { // a lane of an older version has none
		return ""
	}
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
	Register(a, Route{Method: http.MethodPost, Path: "/v1/campaigns", ID: "createCampaign", Tag: "campaigns", Summary: "Create a campaign",
		About:     "The same settings again are a repeat (200); others are refused with campaign_exists.",
		Operation: access.OpCreateCampaign, Later: true, Status: http.StatusCreated}, a.createCampaign)
	Register(a, Route{Method: http.MethodGet, Path: "/v1/campaigns/{campaign}", ID: "getCampaign", Tag: "campaigns", Summary: "Show a campaign",
		Operation: access.OpShowCampaign}, a.getCampaign)
	Register(a, Route{Method: http.MethodPatch, Path: "/v1/campaigns/{campaign}", ID: "updateCampaign", Tag: "campaigns", Summary: "Change settings of a campaign",
		About:     "If-Match is required, so that two people do not overwrite each other: give the ETag, or * to overwrite.",
		Operation: access.OpUpdateCampaign}, a.updateCampaign)
	for _, turn := range []struct {
		verb, summary, about string
		command              wire.CommandType
	}{
		{"pause", "Pause a campaign", "Claims and redemptions are refused until it is resumed.", wire.PauseCampaign},
		{"resume", "Resume a paused campaign", "", wire.ResumeCampaign},
		{"end", "End a campaign", "Claims are refused for ever; coupons that were claimed stay valid.", wire.EndCampaign},
	} {
		Register(a, Route{Method: http.MethodPost, Path: "/v1/campaigns/{campaign}/" + turn.verb, ID: turn.verb + "Campaign", Tag: "campaigns",
			Summary: turn.summary, About: turn.about, Operation: access.OperationOf(turn.command)},
			func(ctx context.Context, in *struct {
				Named
				Change
				Condition
			}) (*ChangedCampaign, error) {
				return a.change(ctx, wire.Command{Type: turn.command, Campaign: in.Campaign}, in.Change, in.Condition)
			})
	}
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
		out.Body.Campaigns = append(out.Body.Campaigns, Campaign(v))
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
			out.Body.Campaigns = append(out.Body.Campaigns, Campaign(v))
		}
	}
	return nil
}

func (a *API) createCampaign(ctx context.Context, in *struct {
	Change
	Body    NewCampaign
	RawBody []byte
}) (*ChangedCampaign, error) {
	cmd, err := parse(in.RawBody, wire.CreateCampaign, "", "body")
	if err != nil {
		return nil, err
	}
	if problem := web.Check(principal(ctx), access.OpCreateCampaign, cmd.Campaign); problem != nil {
		return nil, problem
	}
	out, err := a.change(ctx, cmd, in.Change, Condition{})
	if err != nil {
		return nil, err
	}
	if out.Replayed == "" {
		out.Status = http.StatusCreated
	}
	out.Location = "/v1/campaigns/" + cmd.Campaign
	return out, nil
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
	return &OneCampaign{ETag: etag(&v), Body: Campaign(v)}, nil
}

func (a *API) updateCampaign(ctx context.Context, in *struct {
	Named
	Change
	Condition
	Body    CampaignPatch
	RawBody []byte
}) (*ChangedCampaign, error) {
	if in.IfMatch == "" {
		return nil, web.New(web.ConditionRequired, "If-Match is missing: send the ETag of GET /v1/campaigns/"+in.Campaign+", or *").At("header.If-Match", "missing")
	}
	if err := checkCampaign(in.Campaign); err != nil {
		return nil, err
	}
	cmd, err := parse(in.RawBody, wire.UpdateCampaign, in.Campaign, "body")
	if err != nil {
		return nil, err
	}
	return a.change(ctx, cmd, in.Change, in.Condition)
}

// change sends a command of a campaign and returns the campaign as it is then.
func (a *API) change(ctx context.Context, cmd wire.Command, change Change, only Condition) (_ *ChangedCampaign, err error) {
	if err := checkCampaign(cmd.Campaign); err != nil {
		return nil, err
	}
	if cmd.IfVersion, err = only.version(); err != nil {
		return nil, err
	}
	done, err := a.do(ctx, cmd, change)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	v, err := a.Queries.Campaign(ctx, cmd.Campaign)
	if err != nil {
		problem := web.New(web.UnknownOutcome, "it was done, but the campaign cannot be read at the moment: "+err.Error())
		problem.ID, problem.Campaign = done.ID, cmd.Campaign
		return nil, problem
	}
	return &ChangedCampaign{Status: http.StatusOK, Changed: changed(&done), ETag: etag(&v), Body: Campaign(v)}, nil
}

// checkCampaign checks a name in a path.
func checkCampaign(name string) error {
	if !wire.ValidCampaignName(name) {
		return web.New(web.Code(wire.Invalid), "campaign: must be 1 to 64 of A-Z a-z 0-9 _ -").At("path.campaign", "must be 1 to 64 of A-Z a-z 0-9 _ -")
	}
	return nil
}
