package ops

import (
	"bytes"
	"cmp"
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
	Doc  string
	// Least and Most bound a number; 0 and 0 = any.
	Least, Most int64

	index      []int
	kind       reflect.Type
	whenAbsent string
	enum       []string
	bytes      int // of a text at most; 0 = any number
}

// Type is the type of its value, and Default its text where it has one.
func (f *Field) Type() reflect.Type { return f.kind }

// Default is described at Type.
func (f *Field) Default() string { return f.whenAbsent }

// OneOf are the texts that are allowed, nil = any.
func (f *Field) OneOf() []string { return f.enum }

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
		f := Field{Name: name, Required: !strings.Contains(rest, "omit"), Doc: of.Tag.Get("doc"), index: of.Index, kind: of.Type, whenAbsent: of.Tag.Get("default")}
		f.Text = of.Type.Kind() == reflect.String || reflect.PointerTo(of.Type).Implements(textType)
		if list := of.Tag.Get("enum"); list != "" {
			f.enum = strings.Split(list, ",")
		}
		f.Least, _ = strconv.ParseInt(of.Tag.Get("minimum"), 10, 64)
		f.Most, _ = strconv.ParseInt(of.Tag.Get("maximum"), 10, 64)
		f.bytes, _ = strconv.Atoi(of.Tag.Get("maxLength"))
		all = append(all, f)
	}
	return all
}

// Names lists the names of fields, for people.
func Names(fields []Field) string {
	var all []string
	for i := range fields {
		all = append(all, fields[i].Name)
	}
	return strings.Join(all, ", ")
}

// Decode reads a request whose type has these fields. The error is a *Refusal.
func Decode[Q any](known []Field, given Fields) (request Q, err error) {
	err = given.Read(&request, known)
	return request, err
}

// Read reads a request into the struct that the known fields are of. It is strict: a field that it does not know may be a misspelt
// limit of a key. An optional text that is empty is absent. The error is a *Refusal.
func (given Fields) Read(request any, known []Field) error {
	into := reflect.ValueOf(request).Elem()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.ContainsFunc(known, func(f Field) bool { return f.Name == name }) {
			takes := cmp.Or(Names(known), "no fields")
			return &Refusal{Code: Malformed, Field: name, Message: fmt.Sprintf("%s: unknown field; this request takes %s", wire.Shorten(name, 64), takes)}
		}
	}
	for i := range known {
		f := &known[i]
		raw := given[f.Name]
		if (len(raw) == 0 || string(raw) == `""`) && !f.Required {
			raw = f.preset()
		}
		if len(raw) == 0 {
			continue
		}
		if err := f.read(into.FieldByIndex(f.index), raw); err != nil {
			return invalid(f.Name, err.Error())
		}
	}
	for i := range known {
		if f := &known[i]; f.Required && given[f.Name] == nil {
			return &Refusal{Code: Malformed, Field: f.Name, Message: f.Name + ": missing; this request needs it"}
		}
	}
	return nil
}

// preset is the value of a field that is absent, nil = none.
func (f *Field) preset() json.RawMessage {
	if f.Text && f.whenAbsent != "" {
		return json.RawMessage(strconv.Quote(f.whenAbsent))
	}
	return json.RawMessage(f.whenAbsent)
}

// read reads the value of a field and checks it by the tags.
func (f *Field) read(into reflect.Value, raw json.RawMessage) error {
	err := json.Unmarshal(raw, into.Addr().Interface())
	var typed *json.UnmarshalTypeError
	switch {
	case string(raw) == "null", errors.As(err, &typed), err != nil && f.kind == timeType:
		return errors.New("must be " + f.form())
	case err != nil:
		return err // of a text with a form of its own
	case into.Kind() == reflect.String:
		return f.checkText(into.String())
	case into.CanInt() && f.Most != 0 && (into.Int() < f.Least || into.Int() > f.Most),
		into.CanUint() && f.Most != 0 && (into.Uint() < uint64(f.Least) || into.Uint() > uint64(f.Most)):
		return errors.New("must be " + f.form())
	}
	return nil
}

func (f *Field) checkText(s string) error {
	switch {
	case len(f.enum) > 0 && !slices.Contains(f.enum, s):
		return errors.New("must be one of " + strings.Join(f.enum, ", "))
	case s == "":
		return errors.New("must not be empty")
	case f.bytes != 0 && len(s) > f.bytes:
		return fmt.Errorf("has %d bytes, at most %d are allowed", len(s), f.bytes)
	case !wire.Printable(s):
		return errors.New("must be printable UTF-8 without control characters")
	}
	return nil
}

// form describes the values of a field.
func (f *Field) form() string {
	kind := f.kind
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	switch {
	case kind == timeType:
		return "a time such as 2026-01-02T15:04:05Z"
	case f.Most != 0:
		return fmt.Sprintf("a whole number from %d to %d", f.Least, f.Most)
	case kind.Kind() == reflect.Slice && kind.Elem().Kind() == reflect.Uint32:
		return "a list of whole numbers"
	case kind.Kind() == reflect.Slice:
		return "a list of strings"
	case kind.Kind() == reflect.Map:
		return "an object"
	case kind.Kind() == reflect.Bool:
		return "true or false"
	case f.Text || kind.Kind() == reflect.String:
		return "a string"
	}
	return "a whole number"
}
