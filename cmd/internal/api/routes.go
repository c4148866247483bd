package api

import (
	"net/http"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

const (
	oneCampaign = "/v1/campaigns/{campaign}"
	oneReminder = oneCampaign + "/reminders/{customer}"
)

// reminderFields are the fields of a reminder that its routes have outside of a body.
var reminderFields = []outside{{"path", "customer", "customer_id"}, {"query", "kind", "kind"}, {"query", "before", "before"}}

// commandRoutes are the routes of commands.
func commandRoutes() []commandRoute {
	claim := Route{Method: http.MethodPost, Path: oneCampaign + "/claims", ID: "claim", Tag: "shop", Status: http.StatusCreated,
		Summary: "Claim a coupon",
		About: "201 with a new coupon; 200 with the same one for the same Idempotency-Key, and for a customer who has the only one that " +
			"is allowed; coupon_status is there if it is void, redeemed or expired by now. To a public key the latter comes without the code."}
	redeem := Route{Method: http.MethodPost, Path: "/v1/redemptions", ID: "redeem", Tag: "shop", Status: http.StatusCreated,
		Summary: "Redeem a code for an order",
		About: "The same code and order again is a repeat (200). An Idempotency-Key whose redemption was rolled back since is 409 " +
			"redemption_rolled_back: send a new one."}
	rollback := Route{Method: http.MethodPost, Path: "/v1/rollbacks", ID: "rollback", Tag: "shop", Status: http.StatusCreated,
		Summary: "Undo the redemption of an order",
		About: "The same again is a repeat (200). An Idempotency-Key whose order was redeemed again since is 409 outdated: send a new " +
			"one."}
	remind := Route{Method: http.MethodPut, Path: oneReminder, ID: "setReminder", Tag: "shop",
		Summary: "Remind a customer", About: "The same reminder again is a repeat."}
	unremind := Route{Method: http.MethodDelete, Path: oneReminder, ID: "cancelReminder", Tag: "shop",
		Summary: "Cancel a reminder", About: "One that is not pending is a repeat; one that has fired is refused with too_late."}
	create := Route{Method: http.MethodPost, Path: "/v1/campaigns", ID: "createCampaign", Tag: "campaigns", Status: http.StatusCreated,
		Summary: "Create a campaign", About: "The same settings again are a repeat (200); others are refused with campaign_exists."}
	update := Route{Method: http.MethodPatch, Path: oneCampaign, ID: "updateCampaign", Tag: "campaigns",
		Summary: "Change settings of a campaign",
		About: "Settings that are left out stay, null takes one back to its default. If-Match is required, so that two people do not " +
			"overwrite each other: give the ETag, or * to overwrite."}
	pause := Route{Method: http.MethodPost, Path: oneCampaign + "/pause", ID: "pauseCampaign", Tag: "campaigns",
		Summary: "Pause a campaign", About: "Claims and redemptions are refused until it is resumed."}
	resume := Route{Method: http.MethodPost, Path: oneCampaign + "/resume", ID: "resumeCampaign", Tag: "campaigns",
		Summary: "Resume a paused campaign"}
	end := Route{Method: http.MethodPost, Path: oneCampaign + "/end", ID: "endCampaign", Tag: "campaigns",
		Summary: "End a campaign", About: "Claims are refused for ever; coupons that were claimed stay valid."}
	void := Route{Method: http.MethodPost, Path: "/v1/coupons/void", ID: "voidCoupon", Tag: "coupons", Summary: "Make a coupon unusable"}
	extend := Route{Method: http.MethodPost, Path: "/v1/coupons/extend", ID: "extendCoupon", Tag: "coupons",
		Summary: "Give a coupon its own expiry", About: "It lies in the future. An expired coupon becomes valid again."}
	return []commandRoute{
		{Route: claim, command: wire.Claim},
		{Route: redeem, command: wire.Redeem},
		{Route: rollback, command: wire.Rollback},
		{Route: remind, command: wire.Remind, outside: reminderFields},
		{Route: unremind, command: wire.Unremind, outside: reminderFields},
		{Route: create, command: wire.CreateCampaign, campaign: true},
		{Route: update, command: wire.UpdateCampaign, campaign: true},
		{Route: pause, command: wire.PauseCampaign, campaign: true},
		{Route: resume, command: wire.ResumeCampaign, campaign: true},
		{Route: end, command: wire.EndCampaign, campaign: true},
		{Route: void, command: wire.Void},
		{Route: extend, command: wire.Extend},
	}
}

// readRoutes adds the routes that read. Those of coupons check the campaign once they know it.
func (a *API) readRoutes() {
	read(a, fieldRoute{Route: Route{Method: http.MethodGet, Path: "/v1/campaigns", ID: "listCampaigns", Tag: "campaigns",
		Summary: "List campaigns", Operation: access.OpListCampaigns, Later: true}}, a.listCampaigns)
	read(a, fieldRoute{tagged: true, Route: Route{Method: http.MethodGet, Path: oneCampaign, ID: "getCampaign", Tag: "campaigns",
		Summary: "Show a campaign", Operation: access.OpShowCampaign}}, a.getCampaign)
	read(a, fieldRoute{Route: Route{Method: http.MethodGet, Path: "/v1/coupons", ID: "listCoupons", Tag: "coupons", Summary: "Find coupons",
		About: "By code, by campaign and n, customer or order, or all of a campaign in the order of their claims; beside a customer or an " +
			"order, campaign selects those of the campaign. URLs end up in logs of proxies: POST /v1/coupons/search keeps codes out of them.",
		Operation: access.OpShowCoupon, Later: true}}, a.listCoupons)
	read(a, fieldRoute{Route: Route{Method: http.MethodPost, Path: "/v1/coupons/search", ID: "searchCoupons", Tag: "coupons",
		Summary: "Find coupons, with the code in the body", Operation: access.OpShowCoupon, Later: true}}, a.searchCoupons)
	read(a, fieldRoute{Route: Route{Method: http.MethodPost, Path: "/v1/validations", ID: "validate", Tag: "shop",
		Summary: "Check what a redemption would answer now",
		About: "Changes nothing. To a public key every code that cannot be redeemed is 404 code_not_valid. Wrong codes are counted: too " +
			"many are 429.",
		Operation: access.OpValidate, Later: true}}, a.validate)
	read(a, fieldRoute{Route: Route{Method: http.MethodGet, Path: "/v1/customers/{customer}", ID: "getCustomer", Tag: "coupons",
		Summary: "Show a customer's coupons and history", About: "A page continues both the coupons and the history, each until it ends.",
		Operation: access.OpShowCustomer, Later: true}}, a.getCustomer)
}
