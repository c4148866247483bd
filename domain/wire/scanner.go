package wire

import (
	"bytes"
	"errors"
)

// object walks the fields of one JSON object without building a tree. It is stricter than encoding/json on purpose:
// field names are matched exactly, and its caller can refuse a field given twice.
//
// Why not encoding/json: it matches names regardless of case, takes the last of two equal fields silently, and costs
// ten times as much; a lane reads hundreds of thousands of lines a second.
type object struct {
	data   []byte
	pos    int
	open   bool
	simple bool // the data is simple (see simple): a string ends at the next quote
}

var (
	errNotObject = errors.New("must be one JSON object")
	errTruncated = errors.New("is not valid JSON: it ends too early")
	errSyntax    = errors.New("is not valid JSON")
	errTooDeep   = errors.New("is nested too deeply")
	errControl   = errors.New("has a control character inside a string")
	errTrailing  = errors.New("has something after the JSON object")
)

// maxDepth bounds nesting so that hostile input cannot grow the stack.
const maxDepth = 16

// next returns the following field; done is true at the end of the object, when nothing but white space is left. The key
// is the text between its quotes.
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
		return errTrailing
	}
	return nil
}

// space steps over white space, of which there is none in a compact line.
func (o *object) space() {
	if o.pos < len(o.data) && o.data[o.pos] <= ' ' {
		o.spaces()
	}
}

func (o *object) spaces() {
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
	if o.simple {
		size := bytes.IndexByte(o.data[start+1:], '"')
		if size < 0 {
			return nil, errTruncated
		}
		o.pos += size + 2
		return o.data[start:o.pos], nil
	}
	for o.pos++; ; {
		o.pos = plain(o.data, o.pos)
		if o.pos >= len(o.data) {
			return nil, errTruncated
		}
		switch o.data[o.pos] {
		case '"':
			o.pos++
			return o.data[start:o.pos], nil
		case '\\':
			if err := o.escape(); err != nil {
				return nil, err
			}
		default:
			return nil, errControl
		}
	}
}

// escape steps over one escape sequence.
func (o *object) escape() error {
	o.pos++
	if o.pos >= len(o.data) {
		return errTruncated
	}
	switch o.data[o.pos] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
	case 'u':
		for range 4 {
			o.pos++
			if o.pos >= len(o.data) || !isHex(o.data[o.pos]) {
				return errSyntax
			}
		}
	default:
		return errSyntax
	}
	o.pos++
	return nil
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
		inner := object{data: o.data, pos: o.pos, simple: o.simple}
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
