package ops

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Fields are the members of a request.
type Fields map[string]json.RawMessage

// ParseFields reads the JSON object of a request; nothing is an empty one.
func ParseFields(data []byte) (Fields, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return Fields{}, nil
	}
	var fields Fields
	if err := json.Unmarshal(data, &fields); err != nil || fields == nil || !utf8.Valid(data) { // package json would read U+FFFD
		return nil, &Refusal{Code: Malformed, Message: "the request must be one JSON object in UTF-8"}
	}
	return fields, nil
}

// Field is a field of a request. The tags of its struct are those that huma reads, so that the document of HTTP has the same:
// doc, enum, minimum, maximum, maxLength, default; without omitempty or omitzero it is required.
type Field struct {
	Name     string
	Required bool
	// Text: its value is a JSON string, a time for example.
	Text bool

	index           []int
	kind            reflect.Type
	enum            []string
	least, most     int64
	bounded         bool
	longest         int // of a text, in bytes; 0 = no bound
	whenAbsent, doc string
}

// Doc describes it.
func (f *Field) Doc() string { return f.doc }

var (
	textType = reflect.TypeFor[encoding.TextUnmarshaler]()
	timeType = reflect.TypeFor[time.Time]()
)

// FieldsOf are the fields of a request's type, those of embedded structs too.
func FieldsOf(request reflect.Type) (all []Field) {
	for _, of := range reflect.VisibleFields(request) {
		name, rest, _ := strings.Cut(of.Tag.Get("json"), ",")
		if of.Anonymous || name == "" || name == "-" {
			continue
		}
		f := Field{Name: name, Required: !strings.Contains(rest, "omit"), index: of.Index, kind: of.Type,
			whenAbsent: of.Tag.Get("default"), doc: of.Tag.Get("doc")}
		f.Text = of.Type.Kind() == reflect.String || reflect.PointerTo(of.Type).Implements(textType)
		if list := of.Tag.Get("enum"); list != "" {
			f.enum = strings.Split(list, ",")
		}
		least, err1 := strconv.ParseInt(of.Tag.Get("minimum"), 10, 64)
		most, err2 := strconv.ParseInt(of.Tag.Get("maximum"), 10, 64)
		f.least, f.most, f.bounded = least, most, err1 == nil && err2 == nil
		f.longest, _ = strconv.Atoi(of.Tag.Get("maxLength"))
		all = append(all, f)
	}
	return all
}

// names lists the names of fields, for people.
func names(fields []Field) string {
	var all []string
	for i := range fields {
		all = append(all, fields[i].Name)
	}
	return strings.Join(all, ", ")
}

// Decode reads a request whose type has these fields. The error is a *Refusal.
func Decode[Q any](known []Field, given Fields) (request Q, err error) {
	err = decode(reflect.ValueOf(&request).Elem(), known, given)
	return request, err
}

// decode reads a request strictly: a field that it does not know may be a misspelt limit of a key.
func decode(into reflect.Value, known []Field, given Fields) error {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.ContainsFunc(known, func(f Field) bool { return f.Name == name }) {
			takes := "no fields"
			if len(known) > 0 {
				takes = names(known)
			}
			return &Refusal{Code: Malformed, Field: name, Message: fmt.Sprintf("%s: unknown field; this request takes %s", wire.Shorten(name, 64), takes)}
		}
	}
	for i := range known {
		f := &known[i]
		raw, there := given[f.Name]
		there = there && (f.Required || string(raw) != `""`)
		switch {
		case !there && f.Required:
			return &Refusal{Code: Malformed, Field: f.Name, Message: f.Name + ": missing; this request needs it"}
		case !there && f.whenAbsent == "":
			continue
		case !there:
			raw = json.RawMessage(f.whenAbsent)
			if f.Text {
				raw = json.RawMessage(strconv.Quote(f.whenAbsent))
			}
		}
		if err := f.read(into.FieldByIndex(f.index), raw); err != nil {
			return invalid(f.Name, err.Error())
		}
	}
	return nil
}

// read reads the value of a field and checks it by the tags.
func (f *Field) read(into reflect.Value, raw json.RawMessage) error {
	if string(raw) == "null" {
		return errors.New("must not be null; leave it out")
	}
	if err := json.Unmarshal(raw, into.Addr().Interface()); err != nil {
		var typed *json.UnmarshalTypeError
		if f.kind != timeType && f.Text && !errors.As(err, &typed) {
			return err // of a text with a form of its own
		}
		return errors.New("must be " + form(f.kind))
	}
	switch {
	case len(f.enum) > 0 && f.kind.Kind() == reflect.String && !slices.Contains(f.enum, into.String()):
		return fmt.Errorf("must be one of %s", strings.Join(f.enum, ", "))
	case f.bounded && f.kind.Kind() == reflect.Int && (into.Int() < f.least || into.Int() > f.most):
		return fmt.Errorf("must be a whole number from %d to %d", f.least, f.most)
	case f.longest > 0 && len(into.String()) > f.longest:
		return fmt.Errorf("must have at most %d bytes", f.longest)
	}
	return nil
}

// form describes the values of a type.
func form(t reflect.Type) string {
	switch {
	case t == timeType:
		return "a time such as 2026-01-02T15:04:05Z"
	case t.Kind() == reflect.Pointer:
		return form(t.Elem())
	case t.Kind() == reflect.Slice:
		return "a list of texts"
	case t.Kind() == reflect.Map:
		return "an object of texts"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "a text"
	case t.Kind() == reflect.Uint64:
		return "a whole number"
	case t.Kind() == reflect.Int:
		return "a whole number"
	}
	return "of another type"
}
