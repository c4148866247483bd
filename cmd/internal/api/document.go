package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
)

// documentRoute serves the document. It needs no key: it is the same for every log.
func (a *API) documentRoute() {
	answers := answer("200", "The document, with an ETag.",
		map[string]*huma.MediaType{"application/openapi+json": {Schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}}})
	answers["304"] = &huma.Response{Description: "It is the one of If-None-Match."}
	a.stream(Route{Method: http.MethodGet, Path: "/v1/openapi.json", ID: "readDocument", Tag: "operation", Summary: "Read this document"},
		huma.Operation{Parameters: []*huma.Param{{Name: "If-None-Match", In: "header", Description: "ETags that the client has.", Schema: text("")}}, Responses: answers},
		a.serveDocument())
}

// serveDocument answers with the document, which is complete when the server starts to serve. It is rendered at the first
// request and kept: it takes some milliseconds, and requests without a key must cost no more than their bytes.
func (a *API) serveDocument() func(http.ResponseWriter, *http.Request) {
	once := sync.OnceValues(func() (body []byte, tag string) {
		body, err := json.Marshal(a.huma.OpenAPI())
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

// operation finds a route in the document.
func (a *API) operation(r Route) *huma.Operation {
	item := a.huma.OpenAPI().Paths[r.Path]
	return map[string]*huma.Operation{
		http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPut: item.Put, http.MethodPatch: item.Patch, http.MethodDelete: item.Delete,
	}[r.Method]
}

// open makes a schema of an answer accept further fields: within /v1 answers only gain fields.
func open(s *huma.Schema) *huma.Schema {
	s.AdditionalProperties = true
	return s
}

// schemaOf returns the reference to the schema of a type.
func schemaOf[T any](r huma.Registry, hint string) *huma.Schema {
	return r.Schema(reflect.TypeFor[T](), true, hint)
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

// inPath and inQuery are parameters of a route that streams.
func inPath(name, doc string) *huma.Param {
	return &huma.Param{Name: name, In: "path", Required: true, Description: doc, Schema: text("")}
}

func inQuery(name, doc string) *huma.Param {
	return &huma.Param{Name: name, In: "query", Description: doc, Schema: text("")}
}

// idempotencyKey is the header of Change.
func idempotencyKey() *huma.Param {
	return &huma.Param{Name: "Idempotency-Key", In: "header", Description: "Of your choice, one for each change; or an id that an answer had.", Schema: text("")}
}

const ndjson = "application/x-ndjson"
