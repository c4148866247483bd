package ops

import (
	"context"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/audit"
)

// Reminders are those of the read tables.
type Reminders interface {
	// Reminders reads a part of a list. It calls Turn.
	Reminders(ctx context.Context, q ListReminders) (Page[domain.ReminderView], error)
}

// ListReminders is a page of the reminders of a campaign.
type ListReminders struct {
	Campaign   string `json:"campaign" doc:"Its name."`
	CustomerID string `json:"customer_id,omitempty" maxLength:"128" doc:"Those of the customer."`
	State      string `json:"state,omitempty" enum:"pending,fired,cancelled,dropped" doc:"Those in this state."`
	// Kind and Before of one of its reminders, for a caller within the server; "" = all.
	Kind   string        `json:"-"`
	Before time.Duration `json:"-"`
	Paging
}

// ListReminders lists the reminders of a campaign, those that were set last first. Those in clear are recorded.
func (o *Ops) ListReminders(ctx context.Context, who Caller, q ListReminders) (Page[domain.ReminderView], error) {
	switch {
	case !wire.ValidCampaignName(q.Campaign):
		return Page[domain.ReminderView]{}, invalid("campaign", "must be the name of a campaign")
	case o.Reminders == nil:
		return Page[domain.ReminderView]{}, ErrNoTables
	}
	page, err := list(ctx, o, who, q.Paging, func(ctx context.Context, p Paging) (Page[domain.ReminderView], error) {
		q.Paging = p
		return o.Reminders.Reminders(ctx, q)
	})
	if err == nil && who.Customers {
		err = o.record(ctx, who, audit.LookUp, "reminders", strings.TrimSpace(q.Campaign+" "+q.CustomerID))
	}
	for i := range page.Items {
		page.Items[i].CustomerID = o.ShownCustomer(who.Principal, page.Items[i].CustomerID, q.CustomerID)
	}
	return page, err
}
