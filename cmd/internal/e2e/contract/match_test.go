package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// parse reads one line of the contract: one compact JSON object, no name twice, nothing after it.
func parse(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	object, err := read(raw)
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return object
}

func read(raw []byte) (map[string]any, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if !bytes.Equal(compact.Bytes(), raw) {
		return nil, errors.New("not compact")
	}
	return plain(raw)
}

// plain reads one JSON object that somebody else formatted.
func plain(raw []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return nil, fmt.Errorf("not one JSON object: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something after the JSON object")
	}
	return object, nil
}

// match compares a line with a pattern: a JSON object with the very fields that must be there. A name that starts with
// "?" may be missing: the contract does not name it. A value that starts with "~" names the kind of value it must be.
//
//	~time   RFC 3339 in UTC           ~z:T    the instant T, in UTC     ~at:T   the instant T in any zone
//	~code   a generated code          ~uuid7  an id made up             ~has:X  text with X in it
//	~text   text that is not empty    ~n      a number                  ~any    anything
func match(t *testing.T, raw []byte, pattern string) {
	t.Helper()
	matchAs(t, read, raw, pattern)
}

// matchAs is match for a line that parse reads.
func matchAs(t *testing.T, parse func([]byte) (map[string]any, error), raw []byte, pattern string) {
	t.Helper()
	want, err := plain([]byte(pattern))
	if err != nil {
		t.Fatalf("the pattern is %v: %s", err, pattern)
	}
	got, err := parse(raw)
	if err == nil {
		err = compare("", got, want)
	}
	if err != nil {
		t.Errorf("%v\n got  %s\n want %s", err, raw, pattern)
	}
}

// matchRows compares rows, or lines, one by one.
func matchRows(t *testing.T, got [][]byte, patterns ...string) {
	t.Helper()
	if len(got) != len(patterns) {
		t.Errorf("%d rows, want %d:\n%s", len(got), len(patterns), bytes.Join(got, []byte("\n")))
		return
	}
	for i, pattern := range patterns {
		matchAs(t, plain, got[i], pattern) // PostgreSQL formats it
	}
}

func compare(where string, got, want any) error {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is no object", where)
		}
		return compareObjects(where, object, want)
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			return fmt.Errorf("%s is %v, want %v", where, got, want)
		}
		for i := range want {
			if err := compare(fmt.Sprintf("%s[%d]", where, i), list[i], want[i]); err != nil {
				return err
			}
		}
		return nil
	case string:
		if kind, ok := strings.CutPrefix(want, "~"); ok {
			if !isKind(got, kind) {
				return fmt.Errorf("%s is %v, want %s", where, got, kind)
			}
			return nil
		}
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s is %v, want %v", where, got, want)
	}
	return nil
}

func compareObjects(where string, got, want map[string]any) error {
	known := map[string]bool{}
	for name, value := range want {
		optional := strings.HasPrefix(name, "?")
		name = strings.TrimPrefix(name, "?")
		known[name] = true
		if _, there := got[name]; !there {
			if optional {
				continue
			}
			return fmt.Errorf("%s.%s is missing", where, name)
		}
		if err := compare(where+"."+name, got[name], value); err != nil {
			return err
		}
	}
	var more []string
	for name := range got {
		if !known[name] {
			more = append(more, name)
		}
	}
	if slices.Sort(more); len(more) > 0 {
		return fmt.Errorf("%s has fields that do not belong there: %s", where, strings.Join(more, ", "))
	}
	return nil
}

var (
	codeForm = regexp.MustCompile(`^([A-Z0-9]+-)?[A-HJ-NP-Z2-9]{4}-[A-HJ-NP-Z2-9]{4}-[A-HJ-NP-Z2-9]{4}$`)
	uuidForm = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	timeForm = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$`)
)

func isKind(got any, kind string) bool {
	text, isText := got.(string)
	_, isNumber := got.(json.Number)
	kind, detail, _ := strings.Cut(kind, ":")
	at, err := time.Parse(time.RFC3339Nano, text)
	switch kind {
	case "any":
		return true
	case "n":
		return isNumber
	case "text":
		return text != ""
	case "has":
		return isText && strings.Contains(text, detail)
	case "code":
		return codeForm.MatchString(text)
	case "uuid7":
		return uuidForm.MatchString(text)
	case "time":
		return err == nil && timeForm.MatchString(text)
	case "z":
		return err == nil && timeForm.MatchString(text) && at.Equal(instant(detail))
	case "at":
		return err == nil && at.Equal(instant(detail))
	}
	panic("contract: no such kind of value: " + kind)
}

// instant reads a time that a test wrote itself.
func instant(text string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return at
}
