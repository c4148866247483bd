package api

import (
	_ "embed"
	"encoding/json"
	"maps"
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
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

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
			"application/json": {Schema: a.named(typeName(c.command.String()), objectOf(c.body))}}}
	}
	done := &huma.Response{Description: "Done, or a repeat.", Headers: map[string]*huma.Header{
		"Scrip-Command-Id":     {Schema: text(""), Description: aboutCommandID},
		"Idempotency-Replayed": {Schema: text(""), Description: aboutReplayed},
	}}
	var schema *huma.Schema
	if !c.campaign {
		schema = a.named(typeName(c.command.String())+"Outcome", open(objectOf(c.command.DescribeOutcome())))
	} else {
		schema = a.schema(reflect.TypeFor[domain.CampaignView]())
		done.Headers["ETag"] = &huma.Header{Schema: text(""), Description: "For If-Match."}
	}
	if location(c.command, &wire.Outcome{}) != "" {
		done.Headers["Location"] = &huma.Header{Schema: text(""), Description: "Of what was made (201); not for public keys."}
	}
	done.Content = map[string]*huma.MediaType{"application/json": {Schema: schema}}
	op.Responses = map[string]*huma.Response{"200": done}
	if c.Status == http.StatusCreated {
		made := *done
		op.Responses["201"], made.Description, done.Description = &made, "Done.", "A repeat."
	}
	if c.command == wire.Claim { // a public key sees less of a repeat
		less := open(objectOf(append(c.command.DescribeOutcome(), wire.Description{Name: "message", About: "Why there is no code."})))
		less.Required = slices.DeleteFunc(less.Required, func(name string) bool { return name == "n" || name == "code" })
		done.Content = map[string]*huma.MediaType{"application/json": {Schema: a.named("RepeatedClaimOutcome", less)}}
	}
	return op
}

// typeName is the name of a command or an event as a schema's: that of create_campaign is CreateCampaign.
func typeName(of string) (name string) {
	for part := range strings.FieldsFuncSeq(of, func(c rune) bool { return c == '_' || c == '.' }) {
		name += strings.ToUpper(part[:1]) + part[1:]
	}
	return name
}

// problems adds the problems that an operation may have, by their status. Those of a command are its refusals and no others.
func (a *API) problems(op *huma.Operation, r Route, refusals []wire.Refusal) {
	may := append(texts(refusals), texts([]web.Code{web.Malformed, web.Code(wire.Invalid), web.RateLimited, web.Overloaded, web.Unavailable, web.UnknownOutcome, web.Internal})...)
	add := func(when bool, codes ...web.Code) {
		if when {
			may = append(may, texts(codes)...)
		}
	}
	command := refusals != nil
	add(r.Operation != access.NoOperation, web.Unauthorized, web.Forbidden)
	add(r.Operation != access.NoOperation && r.Method != http.MethodGet, web.OriginNotAllowed)
	add(op.RequestBody != nil, web.TooSlow, web.TooLarge, web.WrongMediaType)
	add(slices.Contains(refusals, wire.CodeNotFound), web.TooManyWrongCodes)
	add(!command && strings.Contains(r.Path, "{"), web.NotFound)
	add(!command && r.Unsafe(), web.Code(ops.Busy))
	for _, p := range op.Parameters {
		add(p.Name == "If-Match", web.Code(wire.VersionMismatch))
		add(p.Name == "If-Match" && p.Required, web.ConditionRequired)
	}
	slices.Sort(may)
	by := map[int][]string{}
	for _, c := range slices.Compact(may) {
		status := web.KindOf(web.Code(c)).Status
		by[status] = append(by[status], c)
	}
	for status, of := range by {
		answer := a.sharedProblem(strings.NewReplacer(" ", "", "-", "").Replace(http.StatusText(status)), status)
		if command && status > http.StatusUnauthorized && status < http.StatusTooManyRequests {
			only := text("")
			only.Enum = enum(of)
			answer = a.anyOf(of, &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{"code": only}})
		}
		op.Responses[strconv.Itoa(status)] = answer
	}
	op.Responses["default"] = a.sharedProblem("Problem", 0)
}

// anyOf is an answer with a problem that has one of some codes.
func (a *API) anyOf(of []string, more ...*huma.Schema) *huma.Response {
	s := a.schema(reflect.TypeFor[web.Problem]())
	if more != nil {
		s = &huma.Schema{AllOf: append(more, s)}
	}
	return &huma.Response{Description: "A problem: " + strings.Join(of, ", ") + ".", Headers: maps.Clone(commonHeaders), Content: map[string]*huma.MediaType{web.ProblemType: {Schema: s}}}
}

// sharedProblem refers to an answer with any problem of a status, 0 = of all.
func (a *API) sharedProblem(name string, status int) *huma.Response {
	of := slices.DeleteFunc(slices.Clone(codes), func(c string) bool { return web.KindOf(web.Code(c)).Status != status })
	if a.document.Components.Responses[name] == nil {
		a.document.Components.Responses[name] = a.anyOf(of)
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		a.document.Components.Responses[name].Headers["Retry-After"] = &huma.Header{Ref: "#/components/headers/Retry-After"}
	}
	return &huma.Response{Ref: "#/components/responses/" + name}
}

// commonHeaders are those of all answers.
var commonHeaders = map[string]*huma.Header{
	web.RequestID:      {Ref: "#/components/headers/" + web.RequestID},
	"RateLimit-Policy": {Ref: "#/components/headers/RateLimit-Policy"}, "RateLimit": {Ref: "#/components/headers/RateLimit"}}

// example is a request and its answer; of lines it has one of them.
type example struct {
	Request json.RawMessage `json:"request,omitempty"`
	Answer  json.RawMessage `json:"answer,omitempty"`
	Text    json.RawMessage `json:"text,omitempty"` // of the body that is no JSON: CSV, server-sent events
}

//go:embed examples.json
var exampleFile []byte

// examples has a row for each operation of the document, by its id.
var examples = sync.OnceValue(func() (all map[string]example) {
	if err := json.Unmarshal(exampleFile, &all); err != nil {
		panic("examples.json: " + err.Error())
	}
	return all
})

// exampleOf adds the examples to an operation.
func exampleOf(op *huma.Operation) {
	of := examples()[op.OperationID]
	add := func(content map[string]*huma.MediaType, raw json.RawMessage) {
		for name, media := range content {
			if strings.HasPrefix(name, "text/") {
				media.Example = of.Text
			} else {
				media.Example = raw
			}
		}
	}
	if op.RequestBody != nil {
		add(op.RequestBody.Content, of.Request)
	}
	for status, answer := range op.Responses {
		if status[0] == '2' {
			add(answer.Content, of.Answer)
		}
	}
}
