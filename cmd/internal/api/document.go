package api

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// The ways to authenticate.
const (
	keyScheme   = "key"
	ownerScheme = "owner"
)

const description = "Coupons: claim, redeem, expire, remind. Errors are application/problem+json whose `code` is a refusal of the log " +
	"or an error of HTTP. `Idempotency-Key` makes changes safe to retry; a 503 with `effect` = `unknown` must be retried with the same one. " +
	"Times are RFC 3339 in UTC."

var tags = []*huma.Tag{
	{Name: "shop", Description: "What a shop needs."},
	{Name: "campaigns", Description: "Create, change and stop campaigns."},
	{Name: "coupons", Description: "Look up and change single coupons."},
	{Name: "codes", Description: "Import and export codes."},
	{Name: "events", Description: "The log, for analysts."},
	{Name: "webhooks", Description: "What endpoints of webhooks get."},
	{Name: "operation", Description: "Status, settings, dead letters, keys, webhooks."},
}

// newDocument is the document without routes. prefix is Options.Prefix.
func newDocument(prefix string) *huma.OpenAPI {
	return &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "scrip", Version: wire.ContractVersion, Description: description,
			License: &huma.License{Name: "Apache License 2.0", Identifier: "Apache-2.0"}},
		Tags:    tags,
		Servers: []*huma.Server{{URL: cmp.Or(prefix, "/"), Description: "the server that this document is from"}},
		Components: &huma.Components{
			Schemas:   huma.NewMapRegistry("#/components/schemas/", schemaName),
			Responses: map[string]*huma.Response{},
			Parameters: map[string]*huma.Param{web.RequestID: {Name: web.RequestID, In: "header", Schema: text(""),
				Description: "Of your choice, 1 to 64 printable ASCII characters; the answer has it."}},
			Headers: map[string]*huma.Header{
				"RateLimit-Policy": {Schema: text(""), Description: "While keys have a rate (setting http.rate): what a key may do, as " +
					"\"key\";q=REQUESTS;w=SECONDS. By draft-ietf-httpapi-ratelimit-headers-10."},
				"RateLimit": {Schema: text(""),
					Description: "What is left of it, as \"key\";r=REQUESTS;t=SECONDS until all of it is. 429 rate_limited has Retry-After."},
				web.RequestID: {Schema: text(""), Description: "Of this request: logs, events and the audit stream have it."},
				"Retry-After": {Schema: text(""), Description: "After how many seconds to send the request again."},
			},
			SecuritySchemes: map[string]*huma.SecurityScheme{
				keyScheme: {Type: "http", Scheme: "bearer", Description: "A key, as `scrip access create` prints it."},
				ownerScheme: {Type: "http", Scheme: "basic",
					Description: "The credentials of the server's data directory, in `http_url` of scrip.json: the rights of an operator."},
			},
		},
	}
}

// documentRoutes serve the document and the schemas of events. They need no key: they are the same for every log.
func (a *API) documentRoutes() {
	a.fixed(Route{Path: "/v1/openapi.json", ID: "readDocument", Tag: "operation", Summary: "Read this document"},
		"application/openapi+json", func() any { return a.document })
	a.fixed(Route{Path: "/v1/events/schema.json", ID: "readEventSchema", Tag: "events", Summary: "Read the JSON Schema of events",
		About: "Of a line of GET /v1/events and of scrip replay, which is one of $defs by its type."},
		"application/schema+json", func() any { return eventSchema() })
}

// fixed adds a route whose body is complete when the server starts to serve. It is rendered at the first request and kept: requests
// without a key must cost no more than their bytes.
func (a *API) fixed(r Route, media string, of func() any) {
	once := sync.OnceValues(func() (body []byte, tag string) {
		body, err := json.Marshal(of())
		if err != nil {
			a.Logger.Error("the document cannot be rendered", "err", err)
		}
		sum := sha256.Sum256(body)
		return body, `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	})
	r.Method = http.MethodGet
	known := &huma.Param{Name: "If-None-Match", In: "header", Description: "ETags that the client has.", Schema: text("")}
	answers := answer("200", "It, with an ETag.", map[string]*huma.MediaType{media: {Schema: &huma.Schema{Type: huma.TypeObject}}})
	answers["304"] = &huma.Response{Description: "It is the one of If-None-Match."}
	a.stream(r, huma.Operation{Parameters: []*huma.Param{known}, Responses: answers}, func(w http.ResponseWriter, req *http.Request) {
		body, tag := once()
		if len(body) == 0 {
			web.New(web.Internal, "the server has a defect; its log has the details").Write(w)
			return
		}
		h := w.Header()
		h.Set("Cache-Control", "max-age=300")
		h.Set("ETag", tag)
		if strings.Contains(strings.Join(req.Header["If-None-Match"], ","), tag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		h.Set("Content-Type", media)
		h.Set("Content-Length", strconv.Itoa(len(body)))
		h.Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(body) // the client may have closed the connection
	})
}

// describe adds a route to the document. op has what it shows beyond the route: parameters, bodies, answers; refusals are those of its
// command.
func (a *API) describe(r Route, op huma.Operation, refusals ...wire.Refusal) {
	a.routes = append(a.routes, r.complete())
	if r.Unsafe() {
		op.Parameters = append(op.Parameters, idempotencyKey())
	}
	op.Method, op.Path, op.OperationID, op.Summary, op.Description, op.Tags = r.Method, r.Path, r.ID, r.Summary, r.About, []string{r.Tag}
	op.Parameters = append(op.Parameters, &huma.Param{Ref: "#/components/parameters/" + web.RequestID})
	op.Security = []map[string][]string{}
	if r.Operation != access.NoOperation {
		var roles []string
		for _, role := range r.Operation.Roles() {
			roles = append(roles, role.String())
		}
		op.Security = []map[string][]string{{keyScheme: {}}, {ownerScheme: {}}}
		op.Extensions = map[string]any{"x-scrip-operation": r.Operation.String(), "x-scrip-roles": roles}
	}
	for _, answer := range op.Responses {
		if answer.Headers == nil {
			answer.Headers = map[string]*huma.Header{}
		}
		maps.Copy(answer.Headers, commonHeaders)
	}
	a.problems(&op, r, refusals)
	exampleOf(&op)
	a.document.AddOperation(&op)
}

// text is the schema of a text.
func text(doc string) *huma.Schema { return &huma.Schema{Type: huma.TypeString, Description: doc} }

// lines is the content of a stream of lines; each line has the schema.
func lines(s *huma.Schema) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{ndjson: {Schema: s}}
}

// answer is a successful answer of a stream.
func answer(status, doc string, content map[string]*huma.MediaType) map[string]*huma.Response {
	return map[string]*huma.Response{status: {Description: doc, Content: content}}
}

// inPath is a parameter in the path.
func inPath(name, doc string) *huma.Param {
	return &huma.Param{Name: name, In: "path", Required: true, Description: doc, Schema: text("")}
}

// ifMatchParam is the header If-Match.
func ifMatchParam(of string, required bool) *huma.Param {
	return &huma.Param{Name: "If-Match", In: "header", Required: required, Schema: text(""),
		Description: "The ETag of the " + of + " as it was read, or * for any. Once it was changed, this change is refused with 412: " +
			"read it again."}
}

// idempotencyKey is the header of routes that change something.
func idempotencyKey() *huma.Param {
	least, most := 1, maxIdempotencyKey
	return &huma.Param{Name: "Idempotency-Key", In: "header", Description: aboutIdempotencyKey,
		Schema: &huma.Schema{Type: huma.TypeString, MinLength: &least, MaxLength: &most, Pattern: "^[ -~]+$"}}
}

const ndjson = "application/x-ndjson"
