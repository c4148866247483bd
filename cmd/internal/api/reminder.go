package api

import (
	"context"
	"net/http"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// OneReminder names a reminder.
type OneReminder struct {
	Named
	Customer string `path:"customer" maxLength:"128" doc:"The customer's id."`
	Kind     string `query:"kind" required:"true" enum:"opens,expires" doc:"opens: before claims open. expires: before the customer's newest coupon expires."`
	Before   string `query:"before" required:"true" doc:"How long before, a Go duration such as 24h."`
}

func (a *API) reminderRoutes() {
	path := "/v1/campaigns/{campaign}/reminders/{customer}"
	Register(a, Route{Method: http.MethodPut, Path: path, ID: "setReminder", Tag: "shop", Summary: "Remind a customer",
		About:     "The same reminder again is a repeat.",
		Operation: access.OpRemind}, func(ctx context.Context, in *OneReminder) (*CommandDone, error) {
		return a.remind(ctx, in, wire.Remind)
	})
	Register(a, Route{Method: http.MethodDelete, Path: path, ID: "cancelReminder", Tag: "shop", Summary: "Cancel a reminder",
		About:     "One that is not pending is a repeat; one that has fired is refused with too_late.",
		Operation: access.OpUnremind}, func(ctx context.Context, in *OneReminder) (*CommandDone, error) {
		return a.remind(ctx, in, wire.Unremind)
	})
}

func (a *API) remind(ctx context.Context, in *OneReminder, t wire.CommandType) (*CommandDone, error) {
	if err := checkCampaign(in.Campaign); err != nil {
		return nil, err
	}
	before, err := time.ParseDuration(in.Before)
	if err != nil {
		return nil, web.New(web.Code(wire.Invalid), "before: must be a duration such as 24h").At("query.before", "must be a duration such as 24h")
	}
	cmd := wire.Command{Type: t, Campaign: in.Campaign, CustomerID: in.Customer, Kind: in.Kind, Before: before}
	// The lane's own checks, before anything is sent.
	cmd.ID = "check"
	if cmd, err = parse(cmd.AppendJSON(nil), t, in.Campaign, "query"); err != nil {
		return nil, err
	}
	return a.commandDone(ctx, cmd, Change{}, http.StatusOK)
}
