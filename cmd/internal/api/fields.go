package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// fieldRoute is a route whose request has fields, in the path, in the query, or in a body that is an object; the field version may
// be If-Match.
type fieldRoute struct {
	Route
	fields          []ops.Field
	request, answer reflect.Type
	match           match
	tagged          bool // the answer has a version, which is its ETag
	inQuery         bool // the fields that are not in the path are in the query
	// do carries out a request. Its errors are *ops.Refusal and *web.Problem.
	do func(ctx context.Context, given ops.Fields) (any, error)
}

// match is whether the route of a change takes If-Match.
type match uint8

const (
	noMatch match = iota
	mayMatch
	mustMatch // so that two people do not overwrite each other
)

// addFields adds a route whose answer is a value: the reads, and the actions of package ops.
func (a *API) addFields(r fieldRoute) {
	r.inQuery = r.Method == http.MethodGet
	op, status := a.describeFields(&r), r.complete().Status
	op.Responses = answer(strconv.Itoa(status), http.StatusText(status), map[string]*huma.MediaType{jsonType[0]: {Schema: a.schema(r.answer)}})
	if r.tagged {
		op.Responses[strconv.Itoa(status)].Headers = map[string]*huma.Param{"ETag": {Description: "For If-Match.", Schema: text("")}}
	}
	a.stream(r.Route, op, func(w http.ResponseWriter, req *http.Request) {
		given, where, problem := r.given(w, req)
		if problem != nil {
			problem.Write(w)
			return
		}
		ctx, cancel := context.WithTimeout(req.Context(), queryWait)
		defer cancel()
		answer, err := r.do(ctx, given)
		a.answered(w, &r, answer, err, where)
	})
}

// read adds a route that reads: method gets the request, whose type has its fields.
func read[Q, A any](a *API, r fieldRoute, method func(context.Context, *Q) (A, error)) {
	r.request, r.answer = reflect.TypeFor[Q](), reflect.TypeFor[A]()
	r.fields = ops.FieldsOf(r.request)
	r.do = func(ctx context.Context, given ops.Fields) (any, error) {
		request, err := ops.Decode[Q](r.fields, given)
		if err != nil {
			return nil, err
		}
		return method(ctx, &request)
	}
	a.addFields(r)
}

// readStream adds a route whose body or answer is a stream: handle gets the parameters, whose type has the fields. op has what the
// document shows beyond them.
func readStream[Q any](a *API, route Route, op huma.Operation, handle func(http.ResponseWriter, *http.Request, *Q)) {
	r := fieldRoute{Route: route, inQuery: true, request: reflect.TypeFor[Q](), fields: ops.FieldsOf(reflect.TypeFor[Q]())}
	op.Parameters = append(a.describeFields(&r).Parameters, op.Parameters...)
	a.stream(route, op, func(w http.ResponseWriter, req *http.Request) {
		given, where, problem := r.given(w, req)
		if problem != nil {
			problem.Write(w)
			return
		}
		parameters, err := ops.Decode[Q](r.fields, given)
		if err != nil {
			a.refused(w, err, where).Write(w)
			return
		}
		handle(w, req, &parameters)
	})
}

// places are the parts of a request that have its fields, such as query.limit, by the name of the field; those of others are in the
// body.
type places map[string]string

// given returns the fields of a request, and where they are.
func (r *fieldRoute) given(w http.ResponseWriter, req *http.Request) (ops.Fields, places, *web.Problem) {
	fields, where := ops.Fields{}, places{}
	if !r.inQuery {
		var problem *web.Problem
		if fields, problem = fieldsInBody(w, req, int(r.complete().Body)); problem != nil {
			return nil, nil, problem
		}
	}
	for i := range r.fields {
		f := &r.fields[i]
		matched := r.match != noMatch && f.Name == versionField
		if _, there := fields[f.Name]; there && (matched || r.inPath(f.Name)) {
			return nil, nil, web.New(web.Malformed, f.Name+": is not for the body").At("body."+f.Name, "is not for the body")
		}
		switch {
		case r.inPath(f.Name):
			fields[f.Name], where[f.Name] = quoted(f, req.PathValue(f.Name)), "path."+f.Name
		case matched:
			version, problem := ifMatch(req, r.match == mustMatch)
			if problem != nil {
				return nil, nil, problem
			}
			if version != "" {
				fields[versionField] = quoted(f, version)
			}
			where[versionField] = "header.If-Match"
		}
	}
	for name, values := range req.URL.Query() {
		at := "query." + name
		switch {
		case !r.inQuery:
			return nil, nil, web.New(web.Malformed, wire.Shorten(name, 64)+": this route has no parameters").At(at, "unknown")
		case len(values) != 1 || where[name] != "":
			return nil, nil, web.New(web.Malformed, name+": must be given once").At(at, "must be given once")
		}
		fields[name], where[name] = quoted(r.field(name), values[0]), at
	}
	for i := range r.fields { // those that are missing
		if name := r.fields[i].Name; r.inQuery && where[name] == "" {
			where[name] = "query." + name
		}
	}
	return fields, where, nil
}

// inPath reports whether a field is in the path.
func (r *fieldRoute) inPath(name string) bool { return strings.Contains(r.Path, "{"+name+"}") }

// fieldsInBody reads a body as an object.
func fieldsInBody(w http.ResponseWriter, req *http.Request, most int) (ops.Fields, *web.Problem) {
	if problem := web.CheckMediaType(req, jsonType[0]); problem != nil {
		return nil, problem
	}
	body, problem := web.Body(w, req, nil, most)
	if problem != nil {
		return nil, problem
	}
	fields, err := ops.ParseFields(body)
	if err != nil {
		return nil, web.New(web.Malformed, err.Error()).At("body", err.Error())
	}
	return fields, nil
}

// field returns the field of a name, a text if there is none.
func (r *fieldRoute) field(name string) *ops.Field {
	for i := range r.fields {
		if r.fields[i].Name == name {
			return &r.fields[i]
		}
	}
	return &ops.Field{Text: true}
}

// quoted is a text of the path or the query as JSON of the field's type. What is not valid is refused as a text there.
func quoted(f *ops.Field, value string) json.RawMessage {
	if !f.Text && json.Valid([]byte(value)) {
		return json.RawMessage(value)
	}
	text, _ := json.Marshal(value) // never fails
	return text
}

// versionField is the field that If-Match is.
const versionField = "version"

// ifMatch returns the version in If-Match, without its quotes: "" = any. Where it is required, two people do not overwrite each other.
func ifMatch(req *http.Request, required bool) (version string, problem *web.Problem) {
	given := req.Header.Get("If-Match")
	switch {
	case given == "" && required:
		problem = web.New(web.ConditionRequired, "If-Match is missing: send the ETag of GET "+req.URL.Path+", or *")
		return "", problem.At("header.If-Match", "missing")
	case given == "" || given == "*":
		return "", nil
	}
	tag, ok := strings.CutPrefix(given, `"`)
	tag, closed := strings.CutSuffix(tag, `"`)
	if !ok || !closed || tag == "" || len(tag) > wire.MaxVersion || strings.ContainsAny(tag, `", `) {
		problem = web.New(web.Malformed, "If-Match must be one ETag as it was read, with its quotes, or *")
		return "", problem.At("header.If-Match", "must be one ETag or *")
	}
	return tag, nil
}

// answered writes the answer of an action, or its refusal.
func (a *API) answered(w http.ResponseWriter, r *fieldRoute, answer any, err error, where places) {
	if err != nil {
		a.refused(w, err, where).Write(w)
		return
	}
	body, err := json.Marshal(answer)
	if err != nil {
		a.Logger.Error("an answer has no JSON", "request_id", web.EnsureRequestID(w.Header()), "err", err)
		web.New(web.Internal, "the server has a defect; its log has the details").Write(w)
		return
	}
	w.Header()["Content-Type"] = jsonType
	if first, again := answer.(*ops.Replayed); again {
		w.Header()["Idempotency-Replayed"], answer = replayed, first.Answer
	}
	if r.tagged {
		w.Header().Set("ETag", fmt.Sprintf(`"%v"`, reflect.Indirect(reflect.ValueOf(answer)).FieldByName("Version")))
	}
	if view, ok := answer.(domain.CampaignView); ok {
		w.Header().Set("Location", a.Prefix+"/v1/campaigns/"+view.Campaign)
	} else if at := map[int]string{http.StatusCreated: r.Path, http.StatusAccepted: "/v1/jobs"}[r.Status]; at != "" {
		w.Header().Set("Location", a.Prefix+at+"/"+reflect.Indirect(reflect.ValueOf(answer)).FieldByName("ID").String())
	}
	w.WriteHeader(r.complete().Status)
	_, _ = w.Write(append(body, '\n')) // the client may have closed the connection
}

// describeFields is what the document has of a request.
func (a *API) describeFields(r *fieldRoute) (op huma.Operation) {
	schema := huma.SchemaFromType(a.document.Components.Schemas, r.request)
	complete(r.request, schema)
	body := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{}, AdditionalProperties: false}
	for i := range r.fields {
		f := &r.fields[i]
		of := schema.Properties[f.Name]
		p := &huma.Param{Name: f.Name, In: "query", Required: f.Required, Description: f.Doc, Schema: of}
		switch {
		case r.inPath(f.Name):
			p.In, p.Required = "path", true
		case r.match != noMatch && f.Name == versionField:
			p = ifMatchParam("answer to GET", r.match == mustMatch)
		case !r.inQuery:
			if body.Properties[f.Name] = of; f.Required {
				body.Required = append(body.Required, f.Name)
			}
			continue
		}
		op.Parameters = append(op.Parameters, p)
	}
	if len(body.Properties) > 0 {
		op.RequestBody = &huma.RequestBody{Required: len(body.Required) > 0, Content: map[string]*huma.MediaType{
			jsonType[0]: {Schema: a.named(strings.ToUpper(r.ID[:1])+r.ID[1:], body)}}}
	}
	return op
}
