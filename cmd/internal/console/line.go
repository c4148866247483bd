package console

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
)

// request is the request to /v1 that the form makes. f.Problem is what cannot be read.
func (f *form) request(v *view) *http.Request {
	r := request(v.r, v.Who, f.Route.Method, f.path(), nil)
	if body := f.body(v.r.PostFormValue("zone")); body != nil {
		r = request(v.r, v.Who, f.Route.Method, f.path(), bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
	}
	if f.Route.Unsafe() {
		r.Header.Set("Idempotency-Key", f.Key)
	}
	if f.Act.body != "" {
		r.Header.Set("If-Match", "*")
	} else if f.Version != "" {
		r.Header.Set("If-Match", `"`+f.Version+`"`)
	}
	return r
}

// path is that of the route with the values of its fields.
func (f *form) path() string { return f.with(f.Route.Path) }

// with replaces each {name} by the value of the field, as a part of a path.
func (f *form) with(path string) string {
	return placeholder.ReplaceAllStringFunc(path, func(name string) string { return url.PathEscape(f.value(name[1 : len(name)-1])) })
}

var (
	placeholder = regexp.MustCompile(`\{[a-z0-9_.]+\}`)
	optional    = regexp.MustCompile(`\[[^\]]*\] ?`)
	harmless    = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)
)

// body is the body of the request, nil = it has none. Of an act that edits it has what was changed; what is emptied is null.
func (f *form) body(zone string) []byte {
	if f.Act.body != "" {
		return []byte(placeholder.ReplaceAllStringFunc(f.Act.body, func(name string) string {
			text := string(encoded(f.value(name[1 : len(name)-1])))
			return text[1 : len(text)-1]
		}))
	}
	all, has := members{}, false
	for i := range f.Fields {
		of := &f.Fields[i]
		has = has || !of.InPath
		if of.InPath || f.Act.edits != "" && !of.Changed() {
			continue
		}
		raw, wrong := of.encode(zone)
		switch {
		case wrong != "":
			f.wrong(of.Name, wrong)
		case raw == nil && f.Act.edits != "" && of.Kind == api.FlagInput:
			all.set(of.Name, json.RawMessage("false"))
		case raw == nil && f.Act.edits != "":
			all.set(of.Name, json.RawMessage("null"))
		case raw != nil:
			all.set(of.Name, raw)
		}
	}
	if !has {
		return nil
	}
	return encoded(all)
}

// members are those of an object in order: the line that people copy has them as the form has.
type members struct {
	names  []string
	values []json.RawMessage
	groups map[string]*members
}

// set adds a member; one whose name has a dot to the object of the first part.
func (m *members) set(name string, value json.RawMessage) {
	if group, rest, nested := strings.Cut(name, "."); nested {
		if m.groups[group] == nil {
			if m.groups == nil {
				m.groups = map[string]*members{}
			}
			m.groups[group] = &members{}
			m.names, m.values = append(m.names, group), append(m.values, nil)
		}
		m.groups[group].names = append(m.groups[group].names, rest)
		m.groups[group].values = append(m.groups[group].values, value)
		return
	}
	m.names, m.values = append(m.names, name), append(m.values, value)
}

// MarshalJSON returns the object.
func (m members) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, name := range m.names {
		if i > 0 {
			b = append(b, ',')
		}
		value := m.values[i]
		if value == nil {
			value, _ = m.groups[name].MarshalJSON() // never fails
		}
		b = append(append(append(b, encoded(name)...), ':'), value...)
	}
	return append(b, '}'), nil
}

// addLines adds the lines that do the same elsewhere.
func (f *form) addLines(v *view) {
	sent := func(name string) string { // as the body has it
		for i := range f.Fields {
			if of := &f.Fields[i]; of.Name == name[1:len(name)-1] && (of.InPath || f.Act.edits == "" || of.Changed()) {
				if of.Value == "" && f.Act.edits != "" {
					return f.Act.cleared
				}
				if of.Kind == api.TimeInput && of.Value != "" {
					if raw, wrong := of.encode(v.r.PostFormValue("zone")); wrong == "" {
						return plain(raw)
					}
				}
				return strings.ReplaceAll(of.Value, "\n", ",")
			}
		}
		return ""
	}
	values := func(text string) string {
		return placeholder.ReplaceAllStringFunc(text, func(name string) string { return quote(sent(name)) })
	}
	line := optional.ReplaceAllStringFunc(f.Act.cli, func(part string) string {
		for _, name := range placeholder.FindAllString(part, -1) {
			if sent(name) == "" {
				return ""
			}
		}
		return strings.NewReplacer("[", "", "]", "").Replace(part)
	})
	f.CLI = strings.TrimSpace(values(line))

	scheme := "http"
	if v.r.TLS != nil {
		scheme = "https"
	}
	r := f.request(v)
	parts := []string{"curl -H \"Authorization: Bearer $SCRIP_KEY\""}
	if r.Method != http.MethodPost || r.ContentLength == 0 {
		parts = append(parts, "-X "+r.Method)
	}
	for _, name := range []string{"Content-Type", "Idempotency-Key", "If-Match"} {
		if value := r.Header.Get(name); value != "" {
			parts = append(parts, "-H "+quote(name+": "+value))
		}
	}
	if r.ContentLength > 0 {
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body) // it is in memory
		parts = append(parts, "-d "+quote(b.String()))
	}
	f.Curl = strings.Join(append(parts, quote(scheme+"://"+v.r.Host+v.c.path(f.path()))), " ")
}

// quote quotes a text for a shell, if that is needed.
func quote(s string) string {
	if harmless.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
