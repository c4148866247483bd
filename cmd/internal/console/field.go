package console

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
)

// field is one of a form.
type field struct {
	api.Input
	Label string
	// Value is what is typed or given, and Was what the thing has that is edited.
	Value, Was string
	// Given: the query of the form has it.
	Given bool
	// Problem is what is wrong with it.
	Problem string
}

// fieldsOf are the fields of an act's form, with their values. A row of the table with a field that the route does not have is a
// defect, which the first test of any page shows.
func (c *Console) fieldsOf(a *act) (all []field) {
	fields := a.fields
	if a.body != "" {
		fields = nil
	}
	inputs, err := c.API.Inputs(c.routes[a.operation()], fields)
	if err != nil {
		panic(err)
	}
	for _, name := range a.fields[len(fields):] {
		inputs = append(inputs, api.Input{Name: name, Kind: api.TextInput, Required: true, InPath: true})
	}
	for _, in := range inputs {
		all = append(all, field{Input: in, Label: label(in.Name)})
	}
	return all
}

// label is the name of a field for people.
func label(name string) string {
	if setting, ok := strings.CutPrefix(name, "settings."); ok {
		return setting
	}
	name = name[strings.LastIndexByte(name, '.')+1:]
	text := strings.NewReplacer("_id", "", "_", " ").Replace(name)
	return strings.ToUpper(text[:1]) + text[1:]
}

// encode is the value as JSON, nil = there is none. The error is for the person who typed it.
func (f *field) encode(zone string) (json.RawMessage, string) {
	switch f.Kind {
	case api.FlagInput:
		if f.Value == "" {
			return nil, ""
		}
		return json.RawMessage("true"), ""
	case api.ListInput:
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
	case api.TimeInput:
		at, wrong := instant(f.Value, zone)
		return encoded(at), wrong
	case api.NumberInput:
		if !json.Valid([]byte(f.Value)) || strings.ContainsAny(f.Value, "\"[{tfn") {
			return nil, "must be a number"
		}
		return json.RawMessage(f.Value), ""
	case api.JSONInput:
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
	case api.FlagInput:
		if string(raw) != "true" {
			return ""
		}
	case api.ListInput:
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
