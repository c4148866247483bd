package api

import (
	"context"
	"crypto/cipher"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"

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
	// Version of the program, in the document.
	Version string
	// Gate authenticates requests.
	Gate *web.Gate
	// Log is the log, and JS the connection that reads it.
	Log topology.Log
	JS  jetstream.JetStream
	// Lanes sends commands, which runs elsewhere; Queries sends queries to the lanes.
	Lanes   *command.Lanes
	Queries *client.Client
	// DB is the pool of the read tables. Nil = this server has none: lists of coupons and exports are 503.
	DB *pgxpool.Pool
	// Ops carries out actions of operators.
	Ops *ops.Ops
	// MaskKey is the secret under which codes and customers are masked for keys that must not see codes: equal on all servers.
	MaskKey [32]byte
	// Sessions end the streams of a revoked key.
	Sessions *web.Sessions
	// Wrong is the budget for wrong codes.
	Wrong *access.WrongCodes
	// Audit is the audit stream. Nil = nothing is recorded.
	Audit *audit.Log
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
	// Private: public keys may not use it, whatever its operation.
	Private bool
	// Status of a success. Defaults to 200.
	Status int
	// Body is the most bytes of a request body. Defaults to wire.MaxLine.
	Body int64
}

// API is the routes.
type API struct {
	Options
	mux    *http.ServeMux
	huma   huma.API
	routes []Route
	slots  slots

	cursors cipher.AEAD // of sealCursor

	stopped  chan struct{} // closed by Stop
	stopOnce sync.Once
}

// The ways to authenticate, in the document.
const (
	keyScheme   = "key"
	ownerScheme = "owner"
)

func init() {
	// Package variables of huma: the form of errors, and exact names of fields, as in lines of the log.
	huma.NewError = newError
	huma.ValidateStrictCasing = true
}

// New adds the routes to a mux.
func New(mux *http.ServeMux, o Options) *API {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	registry := huma.NewMapRegistry("#/components/schemas/", schemaName)
	a := &API{Options: o, mux: mux, slots: newSlots(), cursors: newCursors(o.MaskKey), stopped: make(chan struct{})}
	a.huma = humago.New(mux, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{Title: "scrip", Version: o.Version, Description: description,
				License: &huma.License{Name: "see LICENSE in the repository"}},
			Tags:    slices.Clone(tags),
			Servers: []*huma.Server{{URL: "/", Description: "the server that this document is from"}},
			Components: &huma.Components{
				Schemas: registry,
				SecuritySchemes: map[string]*huma.SecurityScheme{
					keyScheme:   {Type: "http", Scheme: "bearer", Description: "A key, as `scrip access create` prints it."},
					ownerScheme: {Type: "http", Scheme: "basic", Description: "The credentials of the server's data directory, in `http_url` of scrip.json: the rights of an operator."},
				},
			},
		},
		Formats:                      map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
	})
	for _, c := range commandRoutes() {
		a.addCommand(c)
	}
	a.bulkRoute()
	a.campaignRoutes()
	a.couponRoutes()
	a.codeRoutes()
	a.eventRoutes()
	a.operate()
	a.documentRoute()
	return a
}

const description = "Coupons: claim, redeem, expire, remind. Errors are application/problem+json whose `code` is a refusal of the log " +
	"or an error of HTTP. `Idempotency-Key` makes changes safe to retry; a 503 with `effect` = `unknown` must be retried with the same one. " +
	"Times are RFC 3339 in UTC."

var tags = []*huma.Tag{
	{Name: "shop", Description: "What a shop needs."},
	{Name: "campaigns", Description: "Create, change and stop campaigns."},
	{Name: "coupons", Description: "Look up and change single coupons."},
	{Name: "codes", Description: "Import and export codes."},
	{Name: "events", Description: "The log, for analysts."},
	{Name: "operation", Description: "Status, settings, dead letters, keys, webhooks."},
}

// Huma is the document's registry and the adapter, for routes that other packages add with [Register].
func (a *API) Huma() huma.API { return a.huma }

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

// document adds what the document shows of each route.
func (a *API) document(r Route) huma.Operation {
	r = r.complete()
	a.routes = append(a.routes, r)
	if doc := a.huma.OpenAPI(); !slices.ContainsFunc(doc.Tags, func(t *huma.Tag) bool { return t.Name == r.Tag }) {
		doc.Tags = append(doc.Tags, &huma.Tag{Name: r.Tag})
	}
	op := huma.Operation{
		Method: r.Method, Path: r.Path, OperationID: r.ID, Summary: r.Summary, Description: r.About, Tags: []string{r.Tag},
		DefaultStatus: r.Status, MaxBodyBytes: r.Body, BodyReadTimeout: web.ReadWait,
	}
	if r.Operation != access.NoOperation {
		var roles []string
		for _, role := range r.Operation.Roles() {
			roles = append(roles, role.String())
		}
		op.Security = []map[string][]string{{keyScheme: {}}, {ownerScheme: {}}}
		op.Extensions = map[string]any{"x-scrip-operation": r.Operation.String(), "x-scrip-roles": roles}
	}
	return op
}

// jsonFormat reads no text that is not UTF-8: package json would read U+FFFD, and two that differ would be one.
var jsonFormat = huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: func(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("must be UTF-8")
	}
	return json.Unmarshal(data, v)
}}

// Register adds a route whose handler huma calls with the request read and validated. The handler's error is a *web.Problem,
// or a defect.
func Register[I, O any](a *API, r Route, handler func(context.Context, *I) (*O, error)) {
	op := a.document(r)
	op.Middlewares = huma.Middlewares{a.admit(r)}
	huma.Register(a.huma, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		if err != nil {
			return nil, a.problem(err)
		}
		return out, nil
	})
	rateHeaders(a.operation(r))
}

// admit authenticates a request of a route.
func (a *API) admit(r Route) func(huma.Context, func(huma.Context)) {
	return func(c huma.Context, next func(huma.Context)) {
		req, w := humago.Unwrap(c)
		ctx, problem := a.enter(r, w, req)
		if problem != nil {
			problem.Write(w)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		next(huma.WithContext(c, ctx))
	}
}

// enter returns the context of an authenticated request that may use the route, and whose body is not announced as too long.
func (a *API) enter(r Route, w http.ResponseWriter, req *http.Request) (context.Context, *web.Problem) {
	p, problem := a.who(r, w, req)
	return a.with(req, p), problem
}

// who returns the principal of such a request.
func (a *API) who(r Route, w http.ResponseWriter, req *http.Request) (access.Principal, *web.Problem) {
	most := r.complete().Body
	if r.Operation == access.NoOperation {
		return access.Principal{}, web.CheckLength(w, req, most)
	}
	p, problem := a.Gate.Enter(w, req)
	if problem == nil {
		problem = r.checkIdempotencyKey(req.Header["Idempotency-Key"])
	}
	if problem == nil && r.Later {
		problem = web.CheckRole(p, r.Operation)
	} else if problem == nil {
		problem = web.Check(p, r.Operation, req.PathValue(web.CampaignValue))
	}
	if problem == nil && r.Private && p.Public {
		problem = web.New(web.Forbidden, "public keys may not use this route; they claim and validate one by one")
	}
	if problem == nil {
		problem = web.CheckLength(w, req, most)
	}
	return p, problem
}

// with returns the context of a request of a principal.
func (a *API) with(req *http.Request, p access.Principal) context.Context {
	return context.WithValue(web.WithPrincipal(req.Context(), p), addressKey{}, req.RemoteAddr)
}

// stream adds a route with a plain handler. op has what the document shows beyond the route: parameters, bodies, answers.
func (a *API) stream(r Route, op huma.Operation, handler func(w http.ResponseWriter, req *http.Request)) {
	a.describe(r, op)
	a.mux.HandleFunc(r.Method+" "+r.Path, func(w http.ResponseWriter, req *http.Request) {
		ctx, problem := a.enter(r, w, req)
		if problem != nil {
			problem.Write(w)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		handler(w, req.WithContext(ctx))
	})
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
	ctx, done := a.Sessions.Begin(req.Context(), p)
	end = func() { done(); of.Release(p.Client()) }
	if _, problem := a.Gate.Identify(req); problem != nil {
		end()
		problem.Write(w)
		return nil, nil
	}
	return ctx, end
}

// describe adds a route to the document only.
func (a *API) describe(r Route, op huma.Operation) {
	all := a.document(r)
	all.Parameters, all.RequestBody, all.Responses = op.Parameters, op.RequestBody, op.Responses
	all.Responses["default"] = &huma.Response{
		Description: "A problem.",
		Content:     map[string]*huma.MediaType{web.ProblemType: {Schema: a.schema(web.Problem{}, "Problem")}},
	}
	rateHeaders(&all)
	a.huma.OpenAPI().AddOperation(&all)
}

// rateHeaders adds the headers of web.Rates to the answers of an operation that needs a key.
func rateHeaders(op *huma.Operation) {
	if len(op.Security) == 0 {
		return
	}
	for _, answer := range op.Responses {
		if answer.Headers == nil {
			answer.Headers = map[string]*huma.Header{}
		}
		answer.Headers["RateLimit-Policy"] = &huma.Header{Schema: text(""),
			Description: "While keys have a rate (setting http.rate): what a key may do, as \"key\";q=REQUESTS;w=SECONDS. By draft-ietf-httpapi-ratelimit-headers-10."}
		answer.Headers["RateLimit"] = &huma.Header{Schema: text(""),
			Description: "What is left of it, as \"key\";r=REQUESTS;t=SECONDS until all of it is. 429 rate_limited has Retry-After."}
	}
}

// schema returns the schema of a value's type, or the reference to it.
func (a *API) schema(v any, hint string) *huma.Schema {
	return a.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(v), true, hint)
}

// schemaName names the schemas of the document.
func schemaName(t reflect.Type, hint string) string {
	return strings.TrimSuffix(huma.DefaultSchemaNamer(t, hint), "Body")
}

type addressKey struct{}

// principal returns who sends the request.
func principal(ctx context.Context) access.Principal {
	p, _ := web.PrincipalOf(ctx)
	return p
}

// author is who sends the request, and from where.
func author(ctx context.Context) access.Author {
	from, _ := ctx.Value(addressKey{}).(string)
	return access.Author{Principal: principal(ctx), Via: "http", From: from}
}

// record adds an entry to the audit stream. The caller does not answer after an error: an answered access has its entry.
func (a *API) record(ctx context.Context, kind audit.Kind, action, about string) error {
	by := author(ctx)
	e := audit.By(by.Principal, kind, action, about)
	e.Via, e.From = by.Via, by.From
	if err := a.Audit.Append(ctx, e); err != nil {
		return unavailable("the access cannot be recorded", err)
	}
	return nil
}
