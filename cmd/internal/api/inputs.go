package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// The kinds of inputs, by which a form has an element for each.
const (
	TextInput   = "text"
	NumberInput = "number"
	TimeInput   = "time"
	FlagInput   = "flag"
	ChoiceInput = "choice" // one of Choices
	ListInput   = "list"   // of texts
	JSONInput   = "json"
)

// Input is a field of a request, as a form has it.
type Input struct {
	// Name is that of the field; a dot leads into an object, as in filter.status.
	Name, Doc, Kind  string
	Choices          []string
	Required, InPath bool
}

// Inputs are the fields in the path of a route, and those of its body that are named, as the document describes them.
func (a *API) Inputs(r *Route, names []string) (all []Input, err error) {
	item := a.document.Paths[r.Path]
	op := map[string]*huma.Operation{http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPut: item.Put, http.MethodPatch: item.Patch, http.MethodDelete: item.Delete}[r.Method]
	for _, p := range op.Parameters {
		if p.In == "path" {
			all = append(all, Input{Name: p.Name, Doc: p.Description, Kind: TextInput, Required: true, InPath: true})
		}
	}
	for _, name := range names {
		var of *huma.Schema
		if op.RequestBody != nil {
			of = op.RequestBody.Content[jsonType[0]].Schema
		}
		in, rest := Input{Name: name}, name
		for of = a.resolve(of); of != nil && rest != ""; of = a.resolve(of) {
			member, more, _ := strings.Cut(rest, ".")
			if of.Properties[rest] != nil { // its own name has a dot
				member, more = rest, ""
			}
			in.Required, rest = slices.Contains(of.Required, member), more
			of = of.Properties[member]
		}
		if of == nil {
			return nil, fmt.Errorf("the request of %s has no field %s", r.ID, name)
		}
		in.Doc, in.Kind = of.Description, inputKind(of)
		for _, e := range of.Enum {
			if text, ok := e.(string); ok {
				in.Choices = append(in.Choices, text)
			}
		}
		all = append(all, in)
	}
	return all, nil
}

// resolve follows a reference.
func (a *API) resolve(s *huma.Schema) *huma.Schema {
	if s != nil && s.Ref != "" {
		return a.document.Components.Schemas.SchemaFromRef(s.Ref)
	}
	return s
}

func inputKind(s *huma.Schema) string {
	switch {
	case s.Type == huma.TypeString && len(s.Enum) > 0:
		return ChoiceInput
	case s.Type == huma.TypeString && s.Format == "date-time":
		return TimeInput
	case s.Type == huma.TypeString:
		return TextInput
	case s.Type == huma.TypeInteger, s.Type == huma.TypeNumber:
		return NumberInput
	case s.Type == huma.TypeBoolean:
		return FlagInput
	case s.Type == huma.TypeArray && s.Items != nil && s.Items.Type == huma.TypeString:
		return ListInput
	}
	return JSONInput
}
