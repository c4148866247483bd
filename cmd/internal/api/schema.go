package api

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

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
