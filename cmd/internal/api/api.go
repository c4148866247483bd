package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Options of an API. All fields but those that say so are required.
type Options struct {
	// Gate authenticates requests.
	Gate *web.Gate
	// Log is the log, and JS the connection that reads it.
	Log topology.Log
	JS  jetstream.JetStream
	// Lanes sends commands, and is run elsewhere; Queries sends queries to the lanes.
	Lanes   *command.Lanes
	Queries *client.Client
	// DB is the pool of the read tables. Nil = this server has none: lists of coupons and exports are 503.
	DB *pgxpool.Pool
	// Ops carries out actions of operators.
	Ops *ops.Ops
	// MaskKey is the secret under which codes and customers are masked for keys that must not see them: equal on all servers.
	MaskKey [32]byte
	// Sessions end the streams of a revoked key.
	Sessions *web.Sessions
	// Wrong is the budget for wrong codes.
	Wrong *access.WrongCodes
	// Audit is the audit stream. Nil = nothing is recorded.
	Audit *audit.Log
	// Prefix is what paths start with where a proxy serves them, "" or such as /coupons: in the document, and in Location.
	Prefix string
	// Trace makes the span of a command; nil = there are no traces.
	Trace func(ctx context.Context, name string) (parent string, end func(error))
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Route is one route.
type Route struct {
	Method, Path string
	// Action is the name of the action of package ops that it carries out; "" = it is no action.
	Action string
	// ID names the operation in the document and in generated clients.
	ID      string
	Tag     string
	Summary string
	// About describes it in more than one line. May be empty.
	About string
	// Operation is what its caller does. NoOperation = anybody may, without a key.
	Operation access.Operation
	// Later: the campaign is not in the path, and the handler checks it with web.Check once it is known.
	Later bool
	// Status of a success. Defaults to 200.
	Status int
	// Body is the most bytes of a request body. Defaults to wire.MaxLine.
	Body int64
	// Reads: it changes nothing although its method is POST, or makes a token, of which a retry makes another one.
	Reads bool
}

// Unsafe reports whether the route changes something. The same request with the same Idempotency-Key has no second effect.
func (r Route) Unsafe() bool { return r.Method != http.MethodGet && !r.Reads }

// API is the routes.
type API struct {
	Options
	mux      *http.ServeMux
	document *huma.OpenAPI
	routes   []Route
	slots    slots

	stopped  chan struct{} // closed by Stop
	stopOnce sync.Once
}

// New adds the routes to a mux.
func New(mux *http.ServeMux, o Options) *API {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	a := &API{Options: o, mux: mux, document: newDocument(o.Prefix), slots: newSlots(),
		stopped: make(chan struct{})}
	settingsSchemas(a.document.Components.Schemas)
	for _, c := range commandRoutes() {
		a.addCommand(c)
	}
	a.bulkRoute()
	a.readRoutes()
	a.handleRoutes()
	a.codeRoutes()
	a.allotmentRoutes()
	a.eventRoutes()
	a.operate()
	a.documentRoutes()
	a.webhooks()
	for _, r := range a.routes {
		if (access.Principal{Role: access.Producer, Public: true}).CheckRole(r.Operation) == nil && r.ID != "sendCommands" {
			a.mux.HandleFunc(http.MethodOptions+" "+r.Path, a.Gate.Preflight(r.Method))
		}
	}
	return a
}

// Routes returns all routes, in the order in which they were added.
func (a *API) Routes() []Route { return slices.Clone(a.routes) }

// complete returns the route with its defaults.
func (r Route) complete() Route {
	if r.Status == 0 {
		r.Status = http.StatusOK
	}
	if r.Body == 0 {
		r.Body = wire.MaxLine
	}
	return r
}

// enter returns the context of an authenticated request that may use the route, and whose body is not announced as too long.
func (a *API) enter(r Route, w http.ResponseWriter, req *http.Request) (context.Context, *web.Problem) {
	p, problem := a.who(r, w, req)
	return a.with(w, req, p), problem
}

// who returns the principal of such a request.
func (a *API) who(r Route, w http.ResponseWriter, req *http.Request) (access.Principal, *web.Problem) {
	var p access.Principal
	most, problem := r.complete().Body, checkIdempotencyKey(req.Header["Idempotency-Key"])
	token := ""
	if r.ID == readEventsID && req.URL.RawQuery != "" {
		token = req.URL.Query().Get("token")
	}
	if problem == nil && r.Operation != access.NoOperation {
		p, problem = a.Gate.Enter(w, req, token)
	}
	switch {
	case problem != nil || r.Operation == access.NoOperation:
	case r.Later:
		problem = web.CheckRole(p, r.Operation)
	default:
		problem = web.Check(p, r.Operation, req.PathValue(web.CampaignValue))
	}
	if problem == nil {
		problem = web.CheckLength(w, req, most)
	}
	return p, problem
}

// with returns the context of a request of a principal.
func (a *API) with(w http.ResponseWriter, req *http.Request, p access.Principal) context.Context {
	via := "http"
	if _, within := web.Within(req.Context()); within {
		via = "console"
	}
	return context.WithValue(req.Context(), authorKey{}, access.Author{Principal: p, Via: via, From: req.RemoteAddr,
		Once: req.Header.Get("Idempotency-Key"), Request: w.Header().Get(web.RequestID)})
}

// stream adds a route with a plain handler. op has what the document shows beyond the route: parameters, bodies, answers.
func (a *API) stream(r Route, op huma.Operation, handler func(w http.ResponseWriter, req *http.Request)) {
	a.describe(r, op)
	a.mux.HandleFunc(r.Method+" "+r.Path, func(w http.ResponseWriter, req *http.Request) {
		web.EnsureRequestID(w.Header())
		ctx, problem := a.enter(r, w, req)
		if problem != nil {
			problem.Write(w)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		handler(w, req.WithContext(ctx))
	})
}

// slot bounds what a client may hold for as long as it reads or sends: memory, and connections to the read tables. Each part of
// such a request has streamWait.
type slot = web.Quota[string]

type slots struct{ imports, exports, events *slot }

func newSlots() slots {
	of := func(what string, most, perKey int) *slot {
		return web.NewQuota[string]("http_"+what, "key", most, perKey)
	}
	return slots{
		imports: of("imports", 2, 1), exports: of("exports", 4, 2),
		events: of("event_streams", 32, 8), // each has a reader per lane, which holds up to 4 MiB while the client is slow
	}
}

// Limits are those of what clients hold and store, for the status.
func (a *API) Limits() (all []status.Limit) {
	for _, s := range []*slot{a.slots.imports, a.slots.exports, a.slots.events} {
		all = append(all, s.Limits()...)
	}
	share := func(what string, bytes, used int, refused uint64) {
		all = append(all, status.Limit{What: what, Limit: int64(bytes), Used: int64(used), Refused: refused})
	}
	bytes, used, refused := a.Ops.Once.Used()
	share("once_bytes_per_key", bytes, used, refused)
	bytes, used, refused = a.Audit.Used()
	share("recorded_bytes_per_key", bytes, used, refused)
	return all
}

// session starts the work of a request that outlives its check, and takes a slot for it: its context ends when the key is
// revoked. A request without a slot, or with a key that was revoked between its check and this, is refused: the problem is
// written, and end is nil.
func (a *API) session(w http.ResponseWriter, req *http.Request, of *slot) (ctx context.Context, end func()) {
	p := principal(req.Context())
	if over := of.Take(p.Client(), p.ID == ""); over != nil { // the credentials of the data directory have no limit of their own
		web.New(web.Overloaded, fmt.Sprintf("%s is %d at this server; end one, or retry", over.What, over.Limit)).Write(w)
		return nil, nil
	}
	ctx, done := a.Sessions.Start(req.Context(), p)
	end = func() { done(); of.Release(p.Client()) }
	if problem := a.Gate.Still(p); problem != nil {
		end()
		problem.Write(w)
		return nil, nil
	}
	return ctx, end
}

type authorKey struct{}

// author is who sends the request, and from where.
func author(ctx context.Context) access.Author {
	by, _ := ctx.Value(authorKey{}).(access.Author)
	return by
}

// principal is who sends the request.
func principal(ctx context.Context) access.Principal { return author(ctx).Principal }

// record adds an entry to the audit stream. The caller does not answer after an error: an answered access has its entry.
func (a *API) record(ctx context.Context, kind audit.Kind, action, about string) error {
	if err := a.Audit.Append(ctx, author(ctx).Entry(kind, action, about)); err != nil {
		return unavailable("the access cannot be recorded", err)
	}
	return nil
}

// room takes room for an act of a person that will be recorded.
func (a *API) room(p access.Principal) error {
	if err := a.Audit.Room(p.ID, 0); err != nil {
		return web.New(web.Overloaded, err.Error())
	}
	return nil
}

const (
	oneCampaign = "/v1/campaigns/{campaign}"
	oneCoupon   = oneCampaign + "/coupons/{n}"
	reminders   = oneCampaign + "/reminders"
	allotments  = oneCampaign + "/allotments"
	oneReminder = reminders + "/{customer_id}/{kind}/{before}"
)

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
	remind := Route{Method: http.MethodPost, Path: reminders, ID: "setReminder", Tag: "shop", Status: http.StatusCreated,
		Summary: "Remind a customer", About: "The same reminder again is a repeat (200)."}
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
	allot := Route{Method: http.MethodPost, Path: allotments, ID: "allotCoupons", Tag: "codes", Status: http.StatusCreated,
		Summary: "Allot coupons for print",
		About: "Claims the next coupons at once, without a holder; GET of their codes is the file to print. The first redemption that names a " +
			"customer makes him the holder. The same batch with the same count again is a repeat (200), with another one batch_exists."}
	void := Route{Method: http.MethodPost, Path: "/v1/coupons/void", ID: "voidCoupon", Tag: "coupons", Summary: "Make a coupon unusable"}
	extend := Route{Method: http.MethodPost, Path: "/v1/coupons/extend", ID: "extendCoupon", Tag: "coupons",
		Summary: "Give a coupon its own expiry", About: "It lies in the future. An expired coupon becomes valid again."}
	return []commandRoute{
		{Route: claim, command: wire.Claim},
		{Route: redeem, command: wire.Redeem},
		{Route: rollback, command: wire.Rollback},
		{Route: remind, command: wire.Remind},
		{Route: unremind, command: wire.Unremind},
		{Route: create, command: wire.CreateCampaign, campaign: true},
		{Route: update, command: wire.UpdateCampaign, campaign: true},
		{Route: pause, command: wire.PauseCampaign, campaign: true},
		{Route: resume, command: wire.ResumeCampaign, campaign: true},
		{Route: end, command: wire.EndCampaign, campaign: true},
		{Route: allot, command: wire.Allot},
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
	read(a, fieldRoute{Route: Route{Method: http.MethodPost, Path: "/v1/coupons/search", ID: "searchCoupons", Tag: "coupons",
		Summary: "Find one coupon by its code, or what GET /v1/coupons lists", About: "URLs end up in logs of proxies; this keeps codes out of them.", Operation: access.OpShowCoupon, Later: true, Reads: true}}, a.searchCoupons)
	read(a, fieldRoute{Route: Route{Method: http.MethodPost, Path: "/v1/validations", ID: "validate", Tag: "shop",
		Summary: "Check whether a redemption would be accepted now",
		About: "Changes nothing. To a public key every code that cannot be redeemed is code_not_valid. Wrong codes are counted: too " +
			"many are 429.",
		Operation: access.OpValidate, Later: true, Reads: true}}, a.validate)
	read(a, fieldRoute{Route: Route{Method: http.MethodGet, Path: "/v1/customers/{customer_id}", ID: "getCustomer", Tag: "coupons",
		Summary: "Show a customer's coupons", About: "With history, a page continues both the coupons and the history, each until it ends.",
		Operation: access.OpShowCustomer, Later: true}}, a.getCustomer)
}
