package console

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
)

// Kinds of fields, by which the form has an element for each.
const (
	textField   = "text"
	numberField = "number"
	timeField   = "time"   // an instant, as instant reads it
	flagField   = "flag"   // a check box
	choiceField = "choice" // one of Choices
	listField   = "list"   // of texts, one on a line
	jsonField   = "json"
)

// field is one of a form.
type field struct {
	Name, Label, Doc, Kind string
	Choices                []string
	Required, InPath       bool
	// Value is what is typed or given, and Was what the thing has that is edited.
	Value, Was string
	// Given: the query has it; the form shows it and it is not for typing, if it is in the path.
	Given bool
	// Problem is what is wrong with it.
	Problem string
}

// fieldsOf are the fields of an act's form, from the schema of its route.
func (c *Console) fieldsOf(a *act, route *api.Route) (all []field) {
	op := operationOf(c.Document, route)
	for _, p := range op.Parameters {
		if p.In == "path" {
			all = append(all, field{Name: p.Name, Label: label(p.Name), Doc: p.Description, Kind: textField, Required: true, InPath: true})
		}
	}
	if op.RequestBody == nil {
		return all
	}
	body := c.resolve(op.RequestBody.Content["application/json"].Schema)
	for _, name := range a.fields {
		of, owner, required := body, body, false
		for rest, more := name, true; more; {
			var member string
			if owner = of; owner.Properties[rest] != nil { // its name has a dot
				member, more = rest, false
			} else {
				member, rest, more = strings.Cut(rest, ".")
			}
			required = slices.Contains(owner.Required, member)
			if of = c.resolve(owner.Properties[member]); of == nil {
				panic("act " + a.id + ": the request has no field " + name)
			}
		}
		f := field{Name: name, Label: label(name), Doc: of.Description, Kind: kindOf(of), Required: required}
		for _, e := range of.Enum {
			if text, ok := e.(string); ok {
				f.Choices = append(f.Choices, text)
			}
		}
		all = append(all, f)
	}
	return all
}

// operationOf is the description of a route in the document.
func operationOf(d *huma.OpenAPI, r *api.Route) *huma.Operation {
	item := d.Paths[r.Path]
	return map[string]*huma.Operation{http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPatch: item.Patch, http.MethodDelete: item.Delete, http.MethodPut: item.Put}[r.Method]
}

// resolve follows a reference.
func (c *Console) resolve(s *huma.Schema) *huma.Schema {
	if s != nil && s.Ref != "" {
		return c.Document.Components.Schemas.SchemaFromRef(s.Ref)
	}
	return s
}

func kindOf(s *huma.Schema) string {
	switch {
	case s.Type == huma.TypeString && len(s.Enum) > 0:
		return choiceField
	case s.Type == huma.TypeString && s.Format == "date-time":
		return timeField
	case s.Type == huma.TypeString:
		return textField
	case s.Type == huma.TypeInteger, s.Type == huma.TypeNumber:
		return numberField
	case s.Type == huma.TypeBoolean:
		return flagField
	case s.Type == huma.TypeArray && s.Items != nil && s.Items.Type == huma.TypeString:
		return listField
	}
	return jsonField
}

// label is the name of a field for people.
func label(name string) string {
	name = strings.TrimPrefix(name[strings.LastIndexByte(name, '.')+1:], "settings.")
	text := strings.NewReplacer("_id", "", "_", " ").Replace(name)
	return strings.ToUpper(text[:1]) + text[1:]
}

// encode is the value as JSON, nil = there is none. The error is for the person who typed it.
func (f *field) encode(zone string) (json.RawMessage, string) {
	switch f.Kind {
	case flagField:
		if f.Value == "" {
			return nil, ""
		}
		return json.RawMessage("true"), ""
	case listField:
		lines := slices.DeleteFunc(strings.Split(f.Value, "\n"), func(s string) bool { return strings.TrimSpace(s) == "" })
		if len(lines) == 0 {
			return nil, ""
		}
		for i := range lines {
			lines[i] = strings.TrimSpace(lines[i])
		}
		return encoded(lines), ""
	}
	if f.Value == "" {
		return nil, ""
	}
	switch f.Kind {
	case timeField:
		at, wrong := instant(f.Value, zone)
		return encoded(at), wrong
	case numberField:
		if !json.Valid([]byte(f.Value)) || strings.ContainsAny(f.Value, "\"[{tfn") {
			return nil, "must be a number"
		}
		return json.RawMessage(f.Value), ""
	case jsonField:
		if !json.Valid([]byte(f.Value)) {
			return nil, "must be JSON, such as {\"percent\":20}"
		}
		return json.RawMessage(f.Value), ""
	}
	return encoded(f.Value), ""
}

func encoded(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // texts and times
	return bytes.TrimSpace(b.Bytes())
}

// shown is the value that a thing has, as it is typed.
func (f *field) shown(of map[string]json.RawMessage) string {
	raw, ok := of[f.Name]
	if !ok {
		group, name, nested := strings.Cut(f.Name, ".")
		var inner map[string]json.RawMessage
		if !nested || json.Unmarshal(of[group], &inner) != nil {
			return ""
		}
		raw = inner[name]
	}
	switch f.Kind {
	case flagField:
		if string(raw) != "true" {
			return ""
		}
	case listField:
		var lines []string
		if json.Unmarshal(raw, &lines) == nil {
			return strings.Join(lines, "\n")
		}
	}
	return plain(raw)
}

// plain is a JSON value without the quotes of a text.
func plain(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	return string(raw)
}

// Changed reports whether another value is typed than the thing has.
func (f *field) Changed() bool { return !f.InPath && f.Value != f.Was }

// changed reports whether any is.
func (f *form) changed() bool {
	return slices.ContainsFunc(f.Fields, func(of field) bool { return of.Changed() })
}
