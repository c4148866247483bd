package ops

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/audit"
)

// ListAudit selects entries of the audit stream.
type ListAudit struct {
	Actor string     `json:"actor,omitempty" doc:"Name or id of a key."`
	Kind  audit.Kind `json:"kind,omitempty" enum:"login,keys,settings,export,lookup,commands,webhooks,deadletters,optouts,jobs" doc:"What was done."`
	About string     `json:"about,omitempty" maxLength:"256" doc:"What it was done to, or how that starts: a campaign, or a campaign and the number of a coupon; the id of a key or a webhook."`
	Since time.Time  `json:"since,omitzero" doc:"From this time on."`
	Until time.Time  `json:"until,omitzero" doc:"Not included."`
	Paging
}

// ListAudit reads the audit stream, newest first. Who does not see customers does not see whom entries are about, nor finds them by that.
func (o *Ops) ListAudit(ctx context.Context, who Caller, q ListAudit) (Page[audit.Entry], error) {
	before, _ := strconv.ParseUint(q.After, 10, 64) // 0 = the newest
	entries, next, err := o.Audit.Read(ctx, audit.Filter{Actor: q.Actor, Kind: q.Kind, About: q.About, Since: q.Since, Until: q.Until, Before: before}, q.Limit)
	if !who.Customers {
		for i := range entries {
			hideCustomer(&entries[i])
		}
		entries = slices.DeleteFunc(entries, func(e audit.Entry) bool { return !strings.HasPrefix(e.About, q.About) })
	}
	page := Page[audit.Entry]{Items: entries}
	if next > 0 {
		page.Next = strconv.FormatUint(next, 10)
	}
	return page, err
}

// Export names the campaign whose coupons are exported.
type Export struct {
	Campaign string `json:"campaign"`
}

// RecordExport records that its caller exports the coupons of a campaign, which it reads from the tables itself, before it
// reads the first one.
func (o *Ops) RecordExport(ctx context.Context, who Caller, q Export) (Export, error) {
	if !wire.ValidCampaignName(q.Campaign) {
		return q, invalid("campaign", "must be the name of a campaign")
	}
	return q, o.record(ctx, who, audit.Export, audit.Coupons, q.Campaign)
}
