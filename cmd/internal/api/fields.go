package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// fieldRoute is a route whose request has fields and whose answer is a value: the reads, and the actions of package ops. A field is
// in the path, in the query of a GET, or in the body; the field version may be If-Match.
type fieldRoute struct {
	Route
	fields          []ops.Field
	request, answer reflect.Type
	match           match
	tagged          bool // the answer has a version, which is its ETag
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

// addFields adds a route whose request has fields.
func (a *API) addFields(r fieldRoute) {
	a.stream(r.Route, a.describeFields(&r), func(w http.ResponseWriter, req *http.Request) {
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

// places are the parts of a request that have its fields, such as query, by the name of the field; "" = that of all others.
type places map[string]string

// given returns the fields of a request, and where they are.
func (r *fieldRoute) given(w http.ResponseWriter, req *http.Request) (ops.Fields, places, *web.Problem) {
	fields, where := ops.Fields{}, places{}
	if r.Method != http.MethodGet {
		var problem *web.Problem
		if fields, where, problem = fieldsInBody(w, req, int(r.complete().Body)); problem != nil {
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
			fields[f.Name], where[f.Name] = quoted(f, req.PathValue(f.Name)), "path"
		case matched:
			version, problem := r.version(req)
			if problem != nil {
				return nil, nil, problem
			}
			if version != 0 {
				fields[versionField] = strconv.AppendUint(nil, version, 10)
			}
			where[versionField] = "header.If-Match"
		}
	}
	for name, values := range req.URL.Query() {
		problem := web.New(web.Malformed, name+": must be given once, in UTF-8").At("query."+name, "must be given once, in UTF-8")
		if len(values) != 1 || !utf8.ValidString(values[0]) || !utf8.ValidString(name) || where[name] != "" {
			return nil, nil, problem
		}
		where[name] = "query"
		if r.Method != http.MethodGet {
			return nil, nil, web.New(web.Malformed, wire.Shorten(name, 64)+": this route has no parameters").At("query."+name, "unknown")
		}
		fields[name] = quoted(r.field(name), values[0])
	}
	return fields, where, nil
}

// inPath reports whether a field is in the path.
func (r *fieldRoute) inPath(name string) bool { return strings.Contains(r.Path, "{"+name+"}") }

// fieldsInBody reads a body as an object.
func fieldsInBody(w http.ResponseWriter, req *http.Request, most int) (ops.Fields, places, *web.Problem) {
	if problem := web.CheckMediaType(req, jsonType[0]); problem != nil {
		return nil, nil, problem
	}
	body, problem := web.Body(w, req, nil, most)
	if problem != nil {
		return nil, nil, problem
	}
	fields, err := ops.ParseFields(body)
	if err != nil {
		return nil, nil, web.New(web.Malformed, err.Error()).At("body", err.Error())
	}
	return fields, places{}, nil
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

// version returns the version that a change is for, 0 = any.
func (r *fieldRoute) version(req *http.Request) (uint64, *web.Problem) {
	given := req.Header.Get("If-Match")
	switch {
	case given == "" && r.match == mustMatch:
		return 0, web.New(web.ConditionRequired, "If-Match is missing: send the ETag of GET "+req.URL.Path+", or *").At("header.If-Match", "missing")
	case given == "" || given == "*":
		return 0, nil
	}
	tag, ok := strings.CutPrefix(given, `"`)
	tag, closed := strings.CutSuffix(tag, `"`)
	n, err := strconv.ParseUint(tag, 10, 64)
	if !ok || !closed || err != nil || n == 0 {
		return 0, web.New(web.Malformed, `If-Match must be one ETag of the webhook, such as "17" with its quotes, or *`).At("header.If-Match", "must be one ETag or *")
	}
	return n, nil
}

// answered writes the answer of an action, or its refusal.
func (a *API) answered(w http.ResponseWriter, r *fieldRoute, answer any, err error, where places) {
	if err != nil {
		a.refused(err, where).Write(w)
		return
	}
	body, err := json.Marshal(answer)
	if err != nil {
		a.Logger.Error("an answer has no JSON", "err", err)
		web.New(web.Internal, "the server has a defect; its log has the details").Write(w)
		return
	}
	w.Header()["Content-Type"] = jsonType
	if r.tagged {
		w.Header().Set("ETag", fmt.Sprintf(`"%v"`, reflect.Indirect(reflect.ValueOf(answer)).FieldByName("Version")))
		if r.Status == http.StatusCreated {
			w.Header().Set("Location", r.Path+"/"+reflect.Indirect(reflect.ValueOf(answer)).FieldByName("ID").String())
		}
	}
	if job, ok := answer.(ops.Job); ok && r.Status == http.StatusAccepted {
		w.Header().Set("Location", "/v1/jobs/"+job.ID)
	}
	w.WriteHeader(r.complete().Status)
	_, _ = w.Write(append(body, '\n')) // the client may have closed the connection
}

// refused is the problem of an action's refusal.
func (a *API) refused(err error, where places) *web.Problem {
	var no *ops.Refusal
	if !errors.As(err, &no) {
		return a.problem(err)
	}
	problem := web.New(web.Code(no.Code), no.Message)
	switch {
	case no.Field == "" && no.Code == wire.Invalid:
		return problem.At("body", no.Message)
	case no.Field == "":
		return problem
	}
	switch place := where[no.Field]; place {
	case "":
		return problem.At("body."+no.Field, no.Message)
	case "header.If-Match":
		return problem.At(place, no.Message)
	default:
		return problem.At(place+"."+no.Field, no.Message)
	}
}

// describeFields is what the document has of a route.
func (a *API) describeFields(r *fieldRoute) huma.Operation {
	op := huma.Operation{}
	schema := huma.SchemaFromType(a.document.Components.Schemas, r.request)
	body := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{}, AdditionalProperties: false}
	for i := range r.fields {
		f := &r.fields[i]
		of := schema.Properties[f.Name]
		switch {
		case r.inPath(f.Name):
			op.Parameters = append(op.Parameters, &huma.Param{Name: f.Name, In: "path", Required: true, Description: f.Doc, Schema: of})
		case r.match != noMatch && f.Name == versionField:
			op.Parameters = append(op.Parameters, &huma.Param{Name: "If-Match", In: "header", Required: r.match == mustMatch, Schema: text(""),
				Description: "The ETag of the webhook as it was read, or * for any. Once settings, state or secret are others, the change is refused with 412: read it again."})
		case r.Method == http.MethodGet:
			op.Parameters = append(op.Parameters, &huma.Param{Name: f.Name, In: "query", Required: f.Required, Description: f.Doc, Schema: of})
		default:
			if body.Properties[f.Name] = of; f.Required {
				body.Required = append(body.Required, f.Name)
			}
		}
	}
	if len(body.Properties) > 0 {
		op.RequestBody = &huma.RequestBody{Required: len(body.Required) > 0, Content: map[string]*huma.MediaType{jsonType[0]: {Schema: body}}}
	}
	status := r.complete().Status
	op.Responses = answer(strconv.Itoa(status), http.StatusText(status), map[string]*huma.MediaType{jsonType[0]: {Schema: a.schema(r.answer)}})
	if r.tagged {
		op.Responses[strconv.Itoa(status)].Headers = map[string]*huma.Param{"ETag": {Description: "For If-Match.", Schema: text("")}}
	}
	return op
}
