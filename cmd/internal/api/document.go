package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
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
	{Name: "operation", Description: "Status, settings, dead letters, keys, webhooks."},
}

// newDocument is the document without routes.
func newDocument(version string) *huma.OpenAPI {
	return &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "scrip", Version: version, Description: description,
			License: &huma.License{Name: "see LICENSE in the repository"}},
		Tags:    tags,
		Servers: []*huma.Server{{URL: "/", Description: "the server that this document is from"}},
		Components: &huma.Components{
			Schemas: huma.NewMapRegistry("#/components/schemas/", schemaName),
			SecuritySchemes: map[string]*huma.SecurityScheme{
				keyScheme: {Type: "http", Scheme: "bearer", Description: "A key, as `scrip access create` prints it."},
				ownerScheme: {Type: "http", Scheme: "basic",
					Description: "The credentials of the server's data directory, in `http_url` of scrip.json: the rights of an operator."},
			},
		},
	}
}

// documentRoute serves the document. It needs no key: it is the same for every log.
func (a *API) documentRoute() {
	known := &huma.Param{Name: "If-None-Match", In: "header", Description: "ETags that the client has.", Schema: text("")}
	answers := answer("200", "The document, with an ETag.",
		map[string]*huma.MediaType{"application/openapi+json": {Schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}}})
	answers["304"] = &huma.Response{Description: "It is the one of If-None-Match."}
	a.stream(Route{Method: http.MethodGet, Path: "/v1/openapi.json", ID: "readDocument", Tag: "operation", Summary: "Read this document"},
		huma.Operation{Parameters: []*huma.Param{known}, Responses: answers}, a.serveDocument())
}

// serveDocument answers with the document, which is complete when the server starts to serve. It is rendered at the first
// request and kept: it takes some milliseconds, and requests without a key must cost no more than their bytes.
func (a *API) serveDocument() func(http.ResponseWriter, *http.Request) {
	once := sync.OnceValues(func() (body []byte, tag string) {
		body, err := json.Marshal(a.document)
		if err != nil {
			a.Logger.Error("the document cannot be rendered", "err", err)
		}
		sum := sha256.Sum256(body)
		return body, `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
	})
	return func(w http.ResponseWriter, req *http.Request) {
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
		h.Set("Content-Type", "application/openapi+json")
		h.Set("Content-Length", strconv.Itoa(len(body)))
		h.Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(body) // the client may have closed the connection
	}
}

// describe adds a route to the document. op has what it shows beyond the route: parameters, bodies, answers.
func (a *API) describe(r Route, op huma.Operation) {
	a.routes = append(a.routes, r.complete())
	if r.Unsafe() {
		op.Parameters = append(op.Parameters, idempotencyKey())
	}
	op.Method, op.Path, op.OperationID, op.Summary, op.Description, op.Tags = r.Method, r.Path, r.ID, r.Summary, r.About, []string{r.Tag}
	op.Responses["default"] = &huma.Response{
		Description: "A problem.",
		Content:     map[string]*huma.MediaType{web.ProblemType: {Schema: a.schema(reflect.TypeFor[web.Problem]())}},
	}
	if r.Operation != access.NoOperation {
		var roles []string
		for _, role := range r.Operation.Roles() {
			roles = append(roles, role.String())
		}
		op.Security = []map[string][]string{{keyScheme: {}}, {ownerScheme: {}}}
		op.Extensions = map[string]any{"x-scrip-operation": r.Operation.String(), "x-scrip-roles": roles}
		rateHeaders(&op)
	}
	a.document.AddOperation(&op)
}

// rateHeaders adds the headers of web.Rates to the answers of an operation that needs a key.
func rateHeaders(op *huma.Operation) {
	for _, answer := range op.Responses {
		if answer.Headers == nil {
			answer.Headers = map[string]*huma.Header{}
		}
		answer.Headers["RateLimit-Policy"] = &huma.Header{Schema: text(""),
			Description: "While keys have a rate (setting http.rate): what a key may do, as \"key\";q=REQUESTS;w=SECONDS. " +
				"By draft-ietf-httpapi-ratelimit-headers-10."}
		answer.Headers["RateLimit"] = &huma.Header{Schema: text(""),
			Description: "What is left of it, as \"key\";r=REQUESTS;t=SECONDS until all of it is. 429 rate_limited has Retry-After."}
	}
}

// schemaName names the schemas of the document.
func schemaName(t reflect.Type, hint string) string {
	switch t {
	case reflect.TypeFor[domain.CampaignView]():
		return "Campaign"
	case reflect.TypeFor[readmodel.Entry]():
		return "HistoryEntry"
	}
	return huma.DefaultSchemaNamer(t, hint)
}

// schema is the schema of an answer, or the reference to it. It and the schemas that it adds accept further fields: within /v1
// answers only gain fields.
func (a *API) schema(t reflect.Type) *huma.Schema {
	registry := a.document.Components.Schemas
	before := map[string]bool{}
	for name := range registry.Map() {
		before[name] = true
	}
	schema := registry.Schema(t, true, "")
	for name, s := range registry.Map() {
		if !before[name] && s.Type == huma.TypeObject && s.Properties != nil {
			open(s)
		}
	}
	return schema
}

// commandOperation is what the document has of a route of a command.
func (a *API) commandOperation(c *commandRoute) huma.Operation {
	var op huma.Operation
	if !c.Later {
		op.Parameters = append(op.Parameters, inPath("campaign", wire.About("campaign")))
	}
	for _, f := range c.command.Describe() {
		if slices.Contains(c.path, f.Name) {
			op.Parameters = append(op.Parameters, &huma.Param{Name: f.Name, In: "path", Required: true, Description: f.About, Schema: schemaOf(f)})
		}
	}
	if c.versioned {
		op.Parameters = append(op.Parameters, ifMatchParam("campaign", c.Method == http.MethodPatch))
	}
	if len(c.body) > 0 {
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			"application/json": {Schema: a.named(bodyName(c.command), objectOf(c.body))}}}
	}
	done := &huma.Response{Description: "Done, or a repeat.", Headers: map[string]*huma.Header{
		"Scrip-Command-Id":     {Schema: text(""), Description: aboutCommandID},
		"Idempotency-Replayed": {Schema: text(""), Description: aboutReplayed},
	}}
	schema := a.schema(reflect.TypeFor[Outcome]())
	if c.campaign {
		schema = a.schema(reflect.TypeFor[domain.CampaignView]())
		done.Headers["ETag"] = &huma.Header{Schema: text(""), Description: "For If-Match."}
	}
	if location(c.command, &wire.Outcome{}) != "" {
		done.Headers["Location"] = &huma.Header{Schema: text(""), Description: "Of what was made (201); not for public keys."}
	}
	done.Content = map[string]*huma.MediaType{"application/json": {Schema: schema}}
	op.Responses = map[string]*huma.Response{"200": done}
	if c.Status == http.StatusCreated {
		op.Responses["201"] = done
	}
	return op
}

// bodyName names the schema of a command's body: that of create_campaign is CreateCampaign.
func bodyName(t wire.CommandType) (name string) {
	for part := range strings.SplitSeq(t.String(), "_") {
		name += strings.ToUpper(part[:1]) + part[1:]
	}
	return name
}

// named adds a schema to the document and returns the reference to it.
func (a *API) named(name string, s *huma.Schema) *huma.Schema {
	return define(a.document.Components.Schemas, name, s)
}

func define(r huma.Registry, name string, s *huma.Schema) *huma.Schema {
	r.Map()[name] = s
	return &huma.Schema{Ref: "#/components/schemas/" + name}
}

// objectOf is the schema of an object with these fields and no others.
func objectOf(fields []wire.Description) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{}, AdditionalProperties: false}
	for _, f := range fields {
		s.Properties[f.Name] = schemaOf(f)
		if f.Required {
			s.Required = append(s.Required, f.Name)
		}
	}
	return s
}

// schemaOf is the schema of a field.
func schemaOf(f wire.Description) *huma.Schema {
	s := text(f.About)
	s.Nullable = f.Nullable
	switch f.Value {
	case wire.NumberValue:
		least, most := float64(f.Least), float64(f.Most)
		s.Type, s.Format, s.Minimum = huma.TypeInteger, "int64", &least
		if f.Most > 0 {
			s.Maximum = &most
		}
		if f.Most > 0 && f.Most <= math.MaxInt32 {
			s.Format = "int32"
		}
	case wire.FlagValue:
		s.Type = huma.TypeBoolean
	case wire.TextsValue:
		s.Type, s.Items = huma.TypeArray, text("")
	case wire.JSONValue:
		s.Type, s.Nullable = "", false
	case wire.InstantValue:
		s.Format = "date-time"
	default:
		if f.Bytes > 0 {
			least, most := 1, int(f.Bytes) // a text of so many bytes has no more characters
			s.MinLength, s.MaxLength = &least, &most
		}
		for _, one := range f.OneOf {
			if !f.Nullable { // else null would have to be among them
				s.Enum = append(s.Enum, one)
			}
		}
	}
	return s
}

// open makes the schema of an answer accept further fields: within /v1 answers only gain fields. A field without a description
// has that of the log's field of the same name.
func open(s *huma.Schema) *huma.Schema {
	s.AdditionalProperties = true
	for name, of := range s.Properties {
		if of.Description == "" && of.Ref == "" {
			of.Description = wire.About(name)
		}
	}
	return s
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
