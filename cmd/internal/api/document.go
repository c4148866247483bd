package api

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	_ "embed"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

var page = template.Must(template.New("page").Parse(pageText))

// pagePolicy allows the page its own style and nothing else: no script, no other server.
var pagePolicy = func() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// documentRoutes serve the document. They need no key: it is the same for every log.
func (a *API) documentRoutes() {
	html := map[string]*huma.MediaType{"text/html": {Schema: text("A page without script.")}}
	object := &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
	asJSON := map[string]*huma.MediaType{"application/openapi+json": {Schema: object}}
	yaml := map[string]*huma.MediaType{"application/openapi+yaml": {Schema: text("YAML.")}}
	doc := a.huma.OpenAPI()
	for _, d := range []struct {
		path, id, summary, about, kind string
		content                        map[string]*huma.MediaType
		render                         func() ([]byte, error)
	}{
		{"", "readPage", "This document as a page", "", "text/html; charset=utf-8", html, a.page},
		{"/openapi.json", "readDocument", "This document as JSON", "", "application/openapi+json", asJSON, func() ([]byte, error) { return json.Marshal(doc) }},
		{"/openapi-3.0.json", "readOlderDocument", "This document as OpenAPI 3.0", "For generators of clients that do not read 3.1.", "application/openapi+json", asJSON, doc.Downgrade},
		{"/openapi.yaml", "readDocumentYAML", "This document as YAML", "", "application/openapi+yaml", yaml, doc.YAML},
	} {
		answers := answer("200", "The document, with an ETag.", d.content)
		answers["304"] = &huma.Response{Description: "It is the one of If-None-Match."}
		a.stream(Route{Method: http.MethodGet, Path: "/v1" + d.path, ID: d.id, Tag: "operation", Summary: d.summary, About: d.about},
			huma.Operation{Parameters: []*huma.Param{{Name: "If-None-Match", In: "header", Description: "ETags that the client has.", Schema: text("")}}, Responses: answers},
			a.rendered(d.kind, d.render))
	}
}

// rendered answers with a rendering of the document, which is complete when the server begins to serve. It is made at the first
// request and kept: it takes some milliseconds, and requests without a key must cost no more than their bytes.
func (a *API) rendered(kind string, render func() ([]byte, error)) func(http.ResponseWriter, *http.Request) {
	once := sync.OnceValues(func() (body []byte, tag string) {
		body, err := render()
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
		h.Set("Content-Type", kind)
		h.Set("Content-Length", strconv.Itoa(len(body)))
		h.Set("Content-Security-Policy", pagePolicy) // of the page; the others show nothing
		h.Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(body) // the client may have closed the connection
	}
}

// section is the routes of one tag, for the page.
type section struct {
	Name, About string
	Routes      []pageRoute
}

type pageRoute struct {
	Route
	Roles      []string
	Parameters []*huma.Param
	Bodies     []pageBody
	Answers    []pageBody
}

// pageBody is a body that a route takes or answers with.
type pageBody struct {
	Status, Type, About string
	Fields              []pageField
}

type pageField struct {
	Name, Type, About string
	Required          bool
}

// page renders the document.
func (a *API) page() ([]byte, error) {
	doc := a.huma.OpenAPI()
	var sections []section
	for _, tag := range doc.Tags {
		s := section{Name: tag.Name, About: tag.Description}
		for _, r := range a.routes {
			if r.Tag == tag.Name {
				s.Routes = append(s.Routes, a.pageRoute(r))
			}
		}
		if len(s.Routes) > 0 {
			sections = append(sections, s)
		}
	}
	var out bytes.Buffer
	err := page.Execute(&out, map[string]any{
		"Title": doc.Info.Title, "Version": doc.Info.Version, "About": doc.Info.Description, "Sections": sections, "Style": template.CSS(pageStyle),
	})
	return out.Bytes(), err
}

func (a *API) pageRoute(r Route) pageRoute {
	p := pageRoute{Route: r}
	if r.Operation != access.NoOperation {
		for _, role := range r.Operation.Roles() {
			p.Roles = append(p.Roles, role.String())
		}
	}
	op := a.operation(r)
	p.Parameters = op.Parameters
	if op.RequestBody != nil {
		p.Bodies = a.pageBodies("", "", op.RequestBody.Content)
	}
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		if status != "default" {
			p.Answers = append(p.Answers, a.pageBodies(status, op.Responses[status].Description, op.Responses[status].Content)...)
		}
	}
	return p
}

// operation finds a route in the document.
func (a *API) operation(r Route) *huma.Operation {
	item := a.huma.OpenAPI().Paths[r.Path]
	return map[string]*huma.Operation{
		http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPut: item.Put, http.MethodPatch: item.Patch, http.MethodDelete: item.Delete,
	}[r.Method]
}

func (a *API) pageBodies(status, about string, content map[string]*huma.MediaType) (all []pageBody) {
	for _, kind := range slices.Sorted(maps.Keys(content)) {
		b := pageBody{Status: status, Type: kind, About: about}
		schema := a.resolved(content[kind].Schema)
		for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
			f := schema.Properties[name]
			b.Fields = append(b.Fields, pageField{name, a.typeOf(f), f.Description, slices.Contains(schema.Required, name)})
		}
		all = append(all, b)
	}
	return all
}

// resolved follows a reference to a schema.
func (a *API) resolved(s *huma.Schema) *huma.Schema {
	if s.Ref != "" {
		return a.huma.OpenAPI().Components.Schemas.SchemaFromRef(s.Ref)
	}
	return s
}

// typeOf describes a type for people.
func (a *API) typeOf(s *huma.Schema) string {
	switch {
	case s.Ref != "":
		return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
	case s.Type == huma.TypeArray && s.Items != nil:
		return "list of " + a.typeOf(s.Items)
	case s.Format == "date-time":
		return "time"
	case s.Type == "":
		return "any"
	}
	return s.Type
}
