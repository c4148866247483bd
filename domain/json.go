package domain

import (
	"encoding/json"
	"errors"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// object walks the fields of one JSON object without building a tree. It is stricter than encoding/json on purpose:
// field names are matched to the letter, and whoever uses it can refuse a field given twice.
//
// Why not encoding/json: it matches names regardless of case, takes the last of two equal fields silently, and costs
// ten times as much; a lane reads hundreds of thousands of lines a second.
type object struct {
	data []byte
	pos  int
	open bool
}

var (
	errNotObject = errors.New("must be one JSON object")
	errTruncated = errors.New("is not valid JSON: it ends too early")
	errSyntax    = errors.New("is not valid JSON")
	errTooDeep   = errors.New("is nested too deeply")
)

// maxDepth bounds nesting so that hostile input cannot grow the stack.
const maxDepth = 16

// next returns the following field; done is true at the end of the object, when nothing but white space is left.
func (o *object) next() (key, raw []byte, done bool, err error) {
	if !o.open {
		o.space()
		if o.pos >= len(o.data) || o.data[o.pos] != '{' {
			return nil, nil, false, errNotObject
		}
		o.pos++
		o.open = true
		o.space()
		if o.pos < len(o.data) && o.data[o.pos] == '}' {
			return nil, nil, true, o.end()
		}
	} else {
		o.space()
		if o.pos >= len(o.data) {
			return nil, nil, false, errTruncated
		}
		switch o.data[o.pos] {
		case '}':
			return nil, nil, true, o.end()
		case ',':
			o.pos++
		default:
			return nil, nil, false, errSyntax
		}
	}
	o.space()
	k, err := o.text()
	if err != nil {
		return nil, nil, false, err
	}
	o.space()
	if o.pos >= len(o.data) {
		return nil, nil, false, errTruncated
	}
	if o.data[o.pos] != ':' {
		return nil, nil, false, errSyntax
	}
	o.pos++
	o.space()
	start := o.pos
	if err := o.skip(0); err != nil {
		return nil, nil, false, err
	}
	return k[1 : len(k)-1], o.data[start:o.pos], false, nil
}

// end checks that nothing follows the object's closing brace.
func (o *object) end() error {
	o.pos++
	o.space()
	if o.pos != len(o.data) {
		return errors.New("has something after the JSON object")
	}
	return nil
}

func (o *object) space() {
	for o.pos < len(o.data) {
		switch o.data[o.pos] {
		case ' ', '\t', '\r', '\n':
			o.pos++
		default:
			return
		}
	}
}

// text returns one string with its quotes, escapes left as they are but checked.
func (o *object) text() ([]byte, error) {
	if o.pos >= len(o.data) {
		return nil, errTruncated
	}
	if o.data[o.pos] != '"' {
		return nil, errSyntax
	}
	start := o.pos
	for o.pos++; o.pos < len(o.data); o.pos++ {
		switch c := o.data[o.pos]; {
		case c == '"':
			o.pos++
			return o.data[start:o.pos], nil
		case c == '\\':
			o.pos++
			if o.pos >= len(o.data) {
				return nil, errTruncated
			}
			switch o.data[o.pos] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					o.pos++
					if o.pos >= len(o.data) || !isHex(o.data[o.pos]) {
						return nil, errSyntax
					}
				}
			default:
				return nil, errSyntax
			}
		case c < 0x20:
			return nil, errors.New("has a control character inside a string")
		}
	}
	return nil, errTruncated
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// skip steps over one value of any kind, checking its syntax.
func (o *object) skip(depth int) error {
	if depth > maxDepth {
		return errTooDeep
	}
	if o.pos >= len(o.data) {
		return errTruncated
	}
	switch c := o.data[o.pos]; {
	case c == '"':
		_, err := o.text()
		return err
	case c == '{':
		inner := object{data: o.data, pos: o.pos}
		return o.members(&inner, depth)
	case c == '[':
		return o.elements(depth)
	case c == '-' || c >= '0' && c <= '9':
		return o.number()
	default:
		for _, word := range [...]string{"true", "false", "null"} {
			if len(o.data)-o.pos >= len(word) && string(o.data[o.pos:o.pos+len(word)]) == word {
				o.pos += len(word)
				return nil
			}
		}
		return errSyntax
	}
}

// members steps over a nested object.
func (o *object) members(inner *object, depth int) error {
	inner.pos++
	inner.space()
	if inner.pos < len(inner.data) && inner.data[inner.pos] == '}' {
		o.pos = inner.pos + 1
		return nil
	}
	for {
		inner.space()
		if _, err := inner.text(); err != nil {
			return err
		}
		inner.space()
		if inner.pos >= len(inner.data) {
			return errTruncated
		}
		if inner.data[inner.pos] != ':' {
			return errSyntax
		}
		inner.pos++
		inner.space()
		if err := inner.skip(depth + 1); err != nil {
			return err
		}
		more, err := inner.separator('}')
		if err != nil {
			return err
		}
		if !more {
			o.pos = inner.pos
			return nil
		}
	}
}

// elements steps over an array.
func (o *object) elements(depth int) error {
	o.pos++
	o.space()
	if o.pos < len(o.data) && o.data[o.pos] == ']' {
		o.pos++
		return nil
	}
	for {
		o.space()
		if err := o.skip(depth + 1); err != nil {
			return err
		}
		more, err := o.separator(']')
		if err != nil || !more {
			return err
		}
	}
}

// separator steps over a comma (more follows) or the closing sign.
func (o *object) separator(closing byte) (more bool, err error) {
	o.space()
	if o.pos >= len(o.data) {
		return false, errTruncated
	}
	switch o.data[o.pos] {
	case ',':
		o.pos++
		return true, nil
	case closing:
		o.pos++
		return false, nil
	}
	return false, errSyntax
}

func (o *object) number() error {
	digitsAt := func() int {
		n := 0
		for o.pos < len(o.data) && o.data[o.pos] >= '0' && o.data[o.pos] <= '9' {
			o.pos++
			n++
		}
		return n
	}
	if o.data[o.pos] == '-' {
		o.pos++
	}
	lead := o.pos
	n := digitsAt()
	if n == 0 || n > 1 && o.data[lead] == '0' {
		return errSyntax
	}
	if o.pos < len(o.data) && o.data[o.pos] == '.' {
		o.pos++
		if digitsAt() == 0 {
			return errSyntax
		}
	}
	if o.pos < len(o.data) && (o.data[o.pos] == 'e' || o.data[o.pos] == 'E') {
		o.pos++
		if o.pos < len(o.data) && (o.data[o.pos] == '+' || o.data[o.pos] == '-') {
			o.pos++
		}
		if digitsAt() == 0 {
			return errSyntax
		}
	}
	return nil
}

// unquote returns the value of a raw JSON string.
func unquote(raw []byte) (string, error) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", errors.New("must be a string")
	}
	inner := raw[1 : len(raw)-1]
	for _, c := range inner {
		if c == '\\' {
			var s string
			if err := json.Unmarshal(raw, &s); err != nil {
				return "", errSyntax
			}
			if halfPair(inner) {
				return "", errors.New(`has half a surrogate pair (such as \ud800), which stands for no character`)
			}
			return s, nil
		}
	}
	return string(inner), nil
}

// halfPair reports whether a string (escapes checked) has a \u escape of half a surrogate pair. Package json would read
// U+FFFD, and two ids that differ would be one.
func halfPair(inner []byte) bool {
	unit := func(at int) uint64 {
		if at+6 > len(inner) || inner[at] != '\\' || inner[at+1] != 'u' {
			return 0
		}
		v, _ := strconv.ParseUint(string(inner[at+2:at+6]), 16, 16)
		return v
	}
	for i := 0; i < len(inner); i++ {
		if inner[i] != '\\' {
			continue
		}
		switch u := unit(i); {
		case u >= 0xd800 && u < 0xdc00:
			if low := unit(i + 6); low < 0xdc00 || low > 0xdfff {
				return true
			}
			i += 11
		case u >= 0xdc00 && u < 0xe000:
			return true
		default:
			i++ // over what is escaped, so that it is not taken for an escape itself
		}
	}
	return false
}

// appendText appends s as a JSON string. What is not valid UTF-8 becomes U+FFFD.
func appendText(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	plain := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, s[plain:i]...)
				dst = append(dst, "\ufffd"...)
				plain = i + 1
			}
			i += size
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[plain:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		plain = i
	}
	dst = append(dst, s[plain:]...)
	return append(dst, '"')
}

// The field appenders write `,"name":value` and leave fields without value out; the first field of a line is written
// by hand.

func appendStringField(dst []byte, name, v string) []byte {
	if v == "" {
		return dst
	}
	return appendText(appendName(dst, name), v)
}

func appendRawField(dst []byte, name string, v []byte) []byte {
	if len(v) == 0 {
		return dst
	}
	return append(appendName(dst, name), v...)
}

func appendUintField(dst []byte, name string, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return strconv.AppendUint(appendName(dst, name), v, 10)
}

func appendInstantField(dst []byte, name string, v Instant) []byte {
	if v == 0 || v == Never {
		return dst
	}
	dst = append(appendName(dst, name), '"')
	return append(v.append(dst), '"')
}

func appendName(dst []byte, name string) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	return append(dst, '"', ':')
}

// printable reports whether s is valid UTF-8 without control or invisible characters.
func printable(s string) bool {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < 0x20 || c == 0x7f {
				return false
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || !unicode.IsPrint(r) {
			return false
		}
		i += size
	}
	return true
}

// texts reads an array of strings.
func texts(raw []byte) (list []string, err error) {
	err = json.Unmarshal(raw, &list)
	return list, err
}
