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
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// operate adds the routes of operators: each carries out an action of package ops. A field of the request is in the path, in the
// query of a GET, or in the body; the field version is If-Match.
func (a *API) operate() {
	for i := range actionRoutes {
		r := &actionRoutes[i]
		action := ops.Named(r.action)
		route := Route{Method: r.method, Path: r.path, Action: r.action, ID: r.id, Tag: "operation", Summary: r.summary, About: r.about,
			Operation: action.Operation, Status: r.status, Body: int64(action.Most)}
		a.stream(route, a.describeAction(r, action), func(w http.ResponseWriter, req *http.Request) {
			fields, where, problem := r.fields(w, req, action)
			if problem != nil {
				problem.Write(w)
				return
			}
			ctx, cancel := context.WithTimeout(req.Context(), queryWait)
			defer cancel()
			answer, err := action.Do(ctx, a.Ops, author(ctx), fields)
			a.answered(w, r, answer, err, where)
		})
	}
	a.changeSettings()
}

// changeSettings adds the route that changes several settings at once: each member of its body is one.
func (a *API) changeSettings() {
	r := &actionRoute{method: http.MethodPatch}
	op := huma.Operation{
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			jsonType[0]: {Schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: text("")}}}},
		Responses: answer("200", "The changes.", map[string]*huma.MediaType{jsonType[0]: {Schema: a.answerSchema(reflect.TypeFor[ops.SettingChanges]())}}),
	}
	a.stream(Route{Method: r.method, Path: "/v1/settings", Action: "config.set", ID: "changeSettings", Tag: "operation", Summary: "Change settings while servers run",
		About: "Each member is a setting and its value, as in `scrip config set`; the value default restores the default. All are checked before the first one is stored. " +
			"They are in force at all servers within a second.",
		Operation: access.OpChangeSettings}, op, func(w http.ResponseWriter, req *http.Request) {
		fields, where, problem := r.body(w, req, wire.MaxLine)
		if problem != nil {
			problem.Write(w)
			return
		}
		ctx, cancel := context.WithTimeout(req.Context(), commandWait)
		defer cancel()
		answer, err := a.Ops.SetSettings(ctx, author(ctx), fields)
		a.answered(w, r, answer, err, where)
	})
}

// places are the parts of a request that have its fields, such as query, by the name of the field; "" = that of all others.
type places map[string]string

// fields returns the fields of a request, and where they are.
func (r *actionRoute) fields(w http.ResponseWriter, req *http.Request, action *ops.Action) (ops.Fields, places, *web.Problem) {
	fields, where := ops.Fields{}, places{}
	if r.method != http.MethodGet {
		var problem *web.Problem
		if fields, where, problem = r.body(w, req, action.Most); problem != nil {
			return nil, nil, problem
		}
	}
	for i := range action.Fields {
		f := &action.Fields[i]
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
		if r.method != http.MethodGet {
			return nil, nil, web.New(web.Malformed, wire.Shorten(name, 64)+": this route has no parameters").At("query."+name, "unknown")
		}
		fields[name] = quoted(field(action, name), values[0])
	}
	return fields, where, nil
}

// inPath reports whether a field is in the path.
func (r *actionRoute) inPath(name string) bool { return strings.Contains(r.path, "{"+name+"}") }

// body reads the body as an object.
func (r *actionRoute) body(w http.ResponseWriter, req *http.Request, most int) (ops.Fields, places, *web.Problem) {
	if kind, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";"); kind != "" && !strings.EqualFold(strings.TrimSpace(kind), jsonType[0]) {
		return nil, nil, web.New(web.WrongMediaType, "Content-Type must be application/json")
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
func field(action *ops.Action, name string) *ops.Field {
	for i := range action.Fields {
		if action.Fields[i].Name == name {
			return &action.Fields[i]
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
func (r *actionRoute) version(req *http.Request) (uint64, *web.Problem) {
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
func (a *API) answered(w http.ResponseWriter, r *actionRoute, answer any, err error, where places) {
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
		version := reflect.ValueOf(answer).FieldByName("Version").Uint()
		w.Header().Set("ETag", fmt.Sprintf(`"%d"`, version))
		if r.status == http.StatusCreated {
			w.Header().Set("Location", r.path+"/"+reflect.ValueOf(answer).FieldByName("ID").String())
		}
	}
	status := http.StatusOK
	if r.status != 0 {
		status = r.status
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client may have closed the connection
}

// refused is the problem of an action's refusal.
func (a *API) refused(err error, where places) *web.Problem {
	var no *ops.Refusal
	if !errors.As(err, &no) {
		a.Logger.Error("a request failed", "err", err)
		return web.New(web.Internal, "the server has a defect; its log has the details")
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

// describeAction is what the document has of an action.
func (a *API) describeAction(r *actionRoute, action *ops.Action) huma.Operation {
	op := huma.Operation{}
	schema := huma.SchemaFromType(a.huma.OpenAPI().Components.Schemas, action.Request)
	body := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{}, AdditionalProperties: false}
	for i := range action.Fields {
		f := &action.Fields[i]
		of := schema.Properties[f.Name]
		switch {
		case r.inPath(f.Name):
			op.Parameters = append(op.Parameters, &huma.Param{Name: f.Name, In: "path", Required: true, Description: f.Doc(), Schema: of})
		case r.match != noMatch && f.Name == versionField:
			op.Parameters = append(op.Parameters, &huma.Param{Name: "If-Match", In: "header", Required: r.match == mustMatch, Schema: text(""),
				Description: "The ETag of the webhook as it was read, or * for any. Once settings, state or secret are others, the change is refused with 412: read it again."})
		case r.method == http.MethodGet:
			op.Parameters = append(op.Parameters, &huma.Param{Name: f.Name, In: "query", Required: f.Required, Description: f.Doc(), Schema: of})
		default:
			if body.Properties[f.Name] = of; f.Required {
				body.Required = append(body.Required, f.Name)
			}
		}
	}
	if len(body.Properties) > 0 {
		op.RequestBody = &huma.RequestBody{Required: len(body.Required) > 0, Content: map[string]*huma.MediaType{jsonType[0]: {Schema: body}}}
	}
	kind := action.Answer
	if r.answer != nil {
		kind = reflect.TypeOf(r.answer)
	}
	status := strconv.Itoa(max(r.status, http.StatusOK))
	op.Responses = answer(status, http.StatusText(max(r.status, http.StatusOK)), map[string]*huma.MediaType{jsonType[0]: {Schema: a.answerSchema(kind)}})
	if r.tagged {
		op.Responses[status].Headers = map[string]*huma.Param{"ETag": {Description: "For If-Match.", Schema: text("")}}
	}
	return op
}

// answerSchema is the schema of an answer. It and the schemas that it adds accept further fields: within /v1 answers only gain
// fields.
func (a *API) answerSchema(t reflect.Type) *huma.Schema {
	registry := a.huma.OpenAPI().Components.Schemas
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
