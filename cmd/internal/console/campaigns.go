package console

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

var campaignPages = []page{
	{path: "/campaigns", name: "campaigns", title: "Campaigns", nav: true, operation: access.OpListCampaigns, load: func(v *view) any {
		return list[ops.Page[domain.CampaignView]](v, "/v1/campaigns")
	}},
	{path: "/campaigns/{campaign}", name: "campaign", operation: access.OpShowCampaign, live: true, load: loadCampaign},
	{path: "/campaigns/{campaign}/coupons", name: "coupons", operation: access.OpListCoupons, load: func(v *view) any {
		name := v.r.PathValue("campaign")
		v.Title = "Coupons of " + name
		return list[ops.Page[ops.Coupon]](v, "/v1/coupons", "campaign", name, "status", v.value("status"), "last_four", v.value("last_four"), "customer_id", v.value("customer_id"))
	}},
	{path: "/campaigns/{campaign}/reminders", name: "reminders", operation: access.OpListReminders, load: func(v *view) any {
		name := v.r.PathValue("campaign")
		v.Title = "Reminders of " + name
		return list[ops.Page[domain.ReminderView]](v, "/v1/campaigns/"+escape(name)+"/reminders", "state", v.value("state"), "customer_id", v.value("customer_id"))
	}},
	{path: "/campaigns/{campaign}/codes", name: "codes", operation: access.OpAllot, load: func(v *view) any {
		name := v.r.PathValue("campaign")
		v.Title = "Codes of " + name
		return codesData{get[domain.CampaignView](v, "/v1/campaigns/"+escape(name)), list[ops.Page[domain.AllotmentView]](v, "/v1/campaigns/"+escape(name)+"/allotments")}
	}},
}

var (
	campaignFields = []string{"codes", "prefix", "opens_at", "closes_at", "expires_at", "valid_for", "per_customer", "max_redemptions", "late_after", "reminders", "benefit", "category", "priority"}
	bulkFields     = []string{"all", "status", "customer_id", "claimed_from", "claimed_before", "most", "dry_run"}
)

const (
	campaignFlags = " [--codes {codes}] [--prefix {prefix}] [--opens {opens_at}] [--closes {closes_at}] [--expires {expires_at}] [--valid-for {valid_for}] [--per-customer {per_customer}] " +
		"[--max-redemptions {max_redemptions}] [--late-after {late_after}] [--reminders {reminders}] [--benefit {benefit}] [--category {category}] [--priority {priority}]"
	bulkFlags = " [--all={all}] [--status {status}] [--customer {customer_id}] [--claimed-from {claimed_from}] [--claimed-before {claimed_before}] [--most {most}] [--dry-run={dry_run}]"
	aboutBulk = "Works on all coupons that the filter selects, however many pages they have. Count them first: the job shows how many there are, and from there it is done in earnest."
)

var campaignActs = []act{
	{id: "createCampaign", title: "Create a campaign", fields: append([]string{"campaign"}, campaignFields...), then: "/campaigns/{campaign}",
		about: "Codes are generated as they are claimed; 0 codes = import your own.", cli: "scrip campaign create {campaign}" + campaignFlags},
	{id: "updateCampaign", title: "Change", fields: campaignFields, edits: "/v1/campaigns/{campaign}", about: "What is emptied goes back to its default. Coupons that were claimed keep the expiry of their own.",
		cleared: "none", cli: "scrip campaign update {campaign}" + campaignFlags},
	{id: "pauseCampaign", title: "Pause", cli: "scrip campaign pause {campaign}"},
	{id: "resumeCampaign", title: "Resume", cli: "scrip campaign resume {campaign}"},
	{id: "endCampaign", title: "End", typed: "campaign", cli: "scrip campaign end {campaign}"},
	{id: "cloneCampaign", title: "Clone", fields: append([]string{"to"}, campaignFields...), then: "/campaigns/{to}", about: "The same settings under another name, but for those that are given here.",
		cli: "scrip campaign clone {campaign} {to}" + campaignFlags},
	{id: "voidCoupons", title: "Void many", fields: append(slices.Clone(bulkFields), "reason"), about: aboutBulk, cli: "scrip coupons void {campaign}" + bulkFlags + " [--reason {reason}]"},
	{id: "extendCoupons", title: "Extend many", fields: append(slices.Clone(bulkFields), "expires_at"), about: aboutBulk, cli: "scrip coupons extend {campaign}" + bulkFlags + " [--expires {expires_at}]"},
	{id: "allotCoupons", title: "Allot for print", fields: []string{"count", "batch"}, about: "Claims the next coupons at once, without a holder. The file to print is on this page.",
		cli: "scrip codes allot {campaign} --count {count} --batch {batch}"},
}

// campaignData is a campaign with its days.
type campaignData struct {
	Part[domain.CampaignView]
	Settings []row
	Days     Part[ops.Page[ops.Day]]
	Changes  Part[ops.Page[ops.CampaignChange]]
	// Rate is how many claims a second there are, of the live part.
	Rate float64
	// Ahead are instants that are to come.
	Ahead []instantAhead
}

type instantAhead struct {
	What string
	At   time.Time
}

// counters are the members of a campaign that are no settings.
var counters = []string{"campaign", "number", "status", "version", "claimed", "redeemed", "voided", "reminders_pending"}

func loadCampaign(v *view) any {
	name := v.r.PathValue("campaign")
	v.Title = "Campaign " + name
	raw := get[json.RawMessage](v, "/v1/campaigns/"+escape(name))
	d := campaignData{Part: Part[domain.CampaignView]{Problem: raw.Problem, Path: raw.Path, Version: raw.Version}}
	v.Problem = raw.Problem
	if raw.Problem != nil || json.Unmarshal(raw.Data, &d.Data) != nil {
		return d
	}
	c := &d.Data
	d.Settings = slices.DeleteFunc(rows(raw.Data), func(r row) bool { return slices.Contains(counters, r.Name) })
	for what, at := range map[string]*time.Time{"opens": c.OpensAt, "closes": c.ClosesAt, "expires": c.ExpiresAt} {
		if at != nil && at.After(time.Now()) {
			d.Ahead = append(d.Ahead, instantAhead{what, *at})
		}
	}
	slices.SortFunc(d.Ahead, func(a, b instantAhead) int { return a.At.Compare(b.At) })
	if v.Live {
		d.Rate = v.c.claims.rate(name, c.Claimed, time.Now())
	} else if v.May("listDays", name) {
		d.Changes = list[ops.Page[ops.CampaignChange]](v, "/v1/campaigns/"+escape(name)+"/changes")
		d.Days = get[ops.Page[ops.Day]](v, "/v1/campaigns/"+escape(name)+"/statistics", "limit", "60")
	}
	return d
}

// Funnel is the part of claimed coupons that were redeemed, in percent.
func (d campaignData) Funnel() int {
	return int(100 * float64(d.Data.Redeemed) / max(1, float64(d.Data.Claimed)))
}

// SoldOut is when the last code went, by the newest changes; zero = it is not sold out, or that was long ago.
func (d campaignData) SoldOut() (at time.Time) {
	for _, c := range d.Changes.Data.Items {
		if c.Type == "campaign.sold_out" {
			return c.At
		}
	}
	return at
}

// meter has the last counts of campaigns that are watched, for their rates.
type meter struct {
	mu sync.Mutex
	by map[string]counted
}

type counted struct {
	n    uint32
	at   time.Time
	rate float64
}

// mostMetered bounds the campaigns of a meter; beyond it starts again.
const mostMetered = 1000

// rate is by how much the count of a campaign grows a second, since the call before.
func (m *meter) rate(name string, n uint32, now time.Time) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil || len(m.by) > mostMetered {
		m.by = map[string]counted{}
	}
	was, known := m.by[name]
	span := now.Sub(was.at).Seconds()
	c := counted{n, now, 0}
	if known && n >= was.n && span > 0 && span < 10 {
		c.rate = float64(n-was.n) / span
	}
	m.by[name] = c
	return c.rate
}

// codesData are the allotments of a campaign, and whether its codes are imported.
type codesData struct {
	Campaign   Part[domain.CampaignView]
	Allotments Part[ops.Page[domain.AllotmentView]]
}
