package console

import (
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

var campaignPages = []page{
	{path: "/campaigns", name: "campaigns", title: "Campaigns", nav: true, operation: access.OpListCampaigns, load: loadCampaigns},
	{path: "/campaigns/{campaign}", name: "campaign", operation: access.OpShowCampaign, live: true, load: loadCampaign},
}

var campaignActs = []act{
	{id: "createCampaign", title: "Create a campaign", then: "/campaigns/{campaign}",
		fields: []string{"campaign", "codes", "prefix", "opens_at", "closes_at", "expires_at", "valid_for", "per_customer", "max_redemptions", "benefit", "category", "priority"},
		cli: "scrip campaign create {campaign} [--codes {codes}] [--prefix {prefix}] [--opens {opens_at}] [--closes {closes_at}] [--expires {expires_at}] " +
			"[--valid-for {valid_for}] [--per-customer {per_customer}] [--max-redemptions {max_redemptions}] [--benefit {benefit}] [--category {category}] [--priority {priority}]"},
	{id: "updateCampaign", title: "Change", about: "What is emptied goes back to its default.", edits: "/v1/campaigns/{campaign}", fields: []string{"closes_at", "expires_at", "benefit"},
		cli: "scrip campaign update {campaign} [--closes {closes_at}] [--expires {expires_at}] [--benefit {benefit}]"},
	{id: "pauseCampaign", title: "Pause", cli: "scrip campaign pause {campaign}"},
	{id: "resumeCampaign", title: "Resume", cli: "scrip campaign resume {campaign}"},
	{id: "endCampaign", title: "End", typed: "campaign", cli: "scrip campaign end {campaign}"},
}

func loadCampaigns(v *view) any {
	return list[ops.Page[domain.CampaignView]](v, "/v1/campaigns")
}

func loadCampaign(v *view) any {
	name := v.r.PathValue("campaign")
	v.Title = "Campaign " + name
	c := get[domain.CampaignView](v, "/v1/campaigns/"+escape(name))
	v.Problem = c.Problem
	return c
}
