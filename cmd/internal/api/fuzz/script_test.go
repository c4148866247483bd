package fuzz

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// script reads choices from bytes. Where they end it chooses what is plain, so a short input is a valid request.
type script struct {
	*world
	data []byte
	at   int
}

func (s *script) next() byte {
	if s.at == len(s.data) {
		return 0
	}
	s.at++
	return s.data[s.at-1]
}

// odd is true once in n choices, and never after the end.
func (s *script) odd(n byte) bool { return s.next()%n == n-1 }

// take returns up to n of the bytes.
func (s *script) take(n int) []byte {
	n = min(n, len(s.data)-s.at)
	s.at += n
	return s.data[s.at-n : s.at]
}

// resolve follows references of the document.
func (s *script) resolve(schema map[string]any) map[string]any {
	for range 8 {
		ref, is := schema["$ref"].(string)
		if !is {
			break
		}
		var at any = s.root
		for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
			at = at.(map[string]any)[part]
		}
		schema = at.(map[string]any)
	}
	return schema
}

// texts are values of strings that break programs, beside those of the input.
var texts = []string{"", " ", "\x00", "a\x00b", "\xff\xfe", "\xed\xa0\x80", "\u202e", "é", "e\u0301", "%00", "../..", "a/b", strings.Repeat("x", 65), strings.Repeat("y", 300), strings.Repeat("ab", 40_000),
	"null", "-1", "1e999", "9223372036854775808", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "2026-02-30T00:00:00Z", "99999999h", "-1s", "'; DROP TABLE x;--", "{\"a\":1}", "a,b", "\t", "W/\"1\"", "\"1\"", "*"}

// text is the value of a parameter, or of a field that is a string.
func (s *script) text(name string, schema any) string {
	spec, _ := schema.(map[string]any)
	spec = s.resolve(spec)
	if s.odd(8) {
		if s.odd(4) {
			return string(s.take(int(s.next())))
		}
		return texts[int(s.next())%len(texts)]
	}
	if of, is := spec["items"].(map[string]any); is {
		return s.text(name, of)
	}
	values := s.known[name]
	if all, is := spec["enum"].([]any); is && len(values) == 0 {
		return fmt.Sprint(all[int(s.next())%len(all)])
	}
	switch format, kind := spec["format"], fmt.Sprint(spec["type"]); {
	case format == "date-time":
		return "2997-01-01T00:00:00Z"
	case len(values) > 0:
		return values[int(s.next())%len(values)]
	case strings.Contains(kind, "integer"), strings.Contains(kind, "number"):
		return fmt.Sprint(s.next() % 100)
	case strings.Contains(kind, "boolean"):
		return "true"
	}
	return fmt.Sprint("v", s.next()%8)
}

// values are JSON that is seldom what a field takes.
var values = []string{"null", "true", "-1", "0", "1.5", "1e400", "-1e999999", "9223372036854775807", "9223372036854775808", "18446744073709551616", "1e-400", "[]", "{}", "[[]]", `""`, `"\u0000"`, `"\ud800"`, "\"\xff\"", "\"a\xc3\"",
	`{"a":{"b":{"c":[1,2,{"d":null}]}}}`, `"` + strings.Repeat("z", 70_000) + `"`, "[" + strings.Repeat("1,", 5000) + "1]", strings.Repeat("[", 200) + strings.Repeat("]", 200), "NaN", "01", `"x`, "", "nul"}

// value writes a value of a schema.
func (s *script) value(b *bytes.Buffer, name string, schema any, depth int) {
	spec, _ := schema.(map[string]any)
	spec = s.resolve(spec)
	if s.odd(16) || depth > 6 {
		b.WriteString(values[int(s.next())%len(values)])
		return
	}
	for _, choice := range []string{"oneOf", "anyOf", "allOf"} {
		if all, is := spec[choice].([]any); is && len(all) > 0 {
			s.value(b, name, all[int(s.next())%len(all)], depth+1)
			return
		}
	}
	kind, _ := spec["type"].(string)
	if kinds, is := spec["type"].([]any); is && len(kinds) > 0 {
		kind = fmt.Sprint(kinds[0])
	}
	switch kind {
	case "object":
		s.object(b, spec, depth)
	case "array":
		b.WriteByte('[')
		for i := range 1 + int(s.next()%4) {
			if i > 0 {
				b.WriteByte(',')
			}
			s.value(b, name, spec["items"], depth+1)
		}
		b.WriteByte(']')
	case "integer", "number":
		b.WriteString([]string{"1", "2", "5", "100", "0", "-1", "4294967295", "4294967296", "2147483648", "9007199254740993", "1.0", "1e3"}[int(s.next())%12])
	case "boolean":
		fmt.Fprint(b, s.next()%2 == 0)
	default:
		text := s.text(name, spec)
		quoted, _ := json.Marshal(text)
		if s.odd(4) { // as it is, valid or not
			quoted = []byte(`"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace(text) + `"`)
		}
		b.Write(quoted)
	}
}

// object writes the fields of a schema that are required, some others, and sometimes one too few, too many, or twice.
func (s *script) object(b *bytes.Buffer, spec map[string]any, depth int) {
	fields, _ := spec["properties"].(map[string]any)
	required, _ := spec["required"].([]any)
	names := slices.Sorted(maps.Keys(fields))
	if more, is := spec["additionalProperties"].(map[string]any); is && len(names) == 0 {
		fields, names, required = map[string]any{"reminder.batch": more}, []string{"reminder.batch"}, []any{"reminder.batch"}
	}
	b.WriteByte('{')
	n := 0
	write := func(name string, schema any) {
		if n++; n > 1 {
			b.WriteByte(',')
		}
		quoted, _ := json.Marshal(name)
		b.Write(quoted)
		b.WriteByte(':')
		s.value(b, name, schema, depth+1)
	}
	for _, name := range names {
		must := slices.Contains(required, any(name))
		if must && s.odd(24) || !must && s.next()%4 != 1 {
			continue
		}
		write(name, fields[name])
		if s.odd(48) {
			write(name, fields[name])
		}
	}
	if s.odd(32) {
		write(s.text("", nil), nil)
	}
	b.WriteByte('}')
}

// body is a body of a media type.
func (s *script) body(media string, schema any) []byte {
	var b bytes.Buffer
	switch media {
	case "text/csv":
		fmt.Fprintf(&b, "code\n%s\n", s.text("code", nil))
	case "application/x-ndjson":
		for range 1 + int(s.next()%3) {
			s.value(&b, "", schema, 0)
			b.WriteByte('\n')
		}
	default:
		s.value(&b, "", schema, 0)
	}
	if s.odd(32) {
		b.Truncate(b.Len() / 2)
	}
	return b.Bytes()
}
