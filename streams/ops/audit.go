package ops

import (
	"context"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/audit"
)

// ListAudit selects entries of the audit stream.
type ListAudit struct {
	Actor string     `json:"actor,omitempty" doc:"Name or id of a key."`
	Kind  audit.Kind `json:"kind,omitempty" enum:"login,keys,settings,export,lookup,webhooks,deadletters,jobs" doc:"What was done."`
	Since time.Time  `json:"since,omitzero" doc:"From this time on."`
	Until time.Time  `json:"until,omitzero" doc:"Not included."`
	Limit int        `json:"limit,omitempty" minimum:"1" maximum:"1000" default:"100" doc:"The most entries."`
}

// AuditPage is a part of the audit stream.
type AuditPage struct {
	Entries []audit.Entry `json:"entries" nullable:"false" doc:"The newest that are selected, oldest first."`
	More    bool          `json:"more,omitempty" doc:"There are older ones: send an earlier until."`
}

// ListAudit reads the audit stream.
func (o *Ops) ListAudit(ctx context.Context, _ Caller, q ListAudit) (AuditPage, error) {
	entries, more, err := o.Audit.Read(ctx, audit.Filter{Actor: q.Actor, Kind: q.Kind, Since: q.Since, Until: q.Until}, q.Limit)
	return AuditPage{Entries: append([]audit.Entry{}, entries...), More: more}, err // [] and not null
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
