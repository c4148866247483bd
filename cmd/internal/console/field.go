package console

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // zones of browsers, on machines without them

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

// instant reads an instant that a person typed: RFC 3339, a date with or without a time, or +90m from now. zone is that
// of the browser, such as Europe/Berlin, for one that is typed without a zone; "" = UTC. wrong is why it is none.
func instant(text, zone string) (at time.Time, wrong string) {
	if rest, ok := strings.CutPrefix(text, "+"); ok {
		days := time.Duration(0)
		if n, after, ok := strings.Cut(rest, "d"); ok {
			if count, err := strconv.Atoi(n); err == nil {
				days, rest = time.Duration(count)*24*time.Hour, after
			}
		}
		d, err := time.ParseDuration(rest)
		if err == nil || rest == "" && days > 0 {
			return time.Now().UTC().Add(days + d).Truncate(time.Second), ""
		}
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.UTC(), ""
	}
	in, err := time.LoadLocation(zone)
	if err != nil {
		return at, "cannot be read in the zone " + zone + "; add one, such as 2026-11-27T00:00:00+01:00"
	}
	text = strings.TrimSuffix(strings.Replace(text, "T", " ", 1), " UTC")
	for _, layout := range []string{time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, in); err == nil {
			return t.UTC(), ""
		}
	}
	return at, "must be an instant such as 2026-11-27 00:00, 2026-11-27T00:00:00+01:00 or +90m"
}
