package wire

import (
	"slices"
)

// readAttributes reads a flat object of strings, numbers and booleans.
func (c *Command) readAttributes(raw []byte) error {
	flat := compact(raw)
	if flat[0] != '{' {
		return Invalidf("attributes", `must be a flat JSON object such as {"channel":"app"}`)
	}
	if len(flat) > MaxAttributes {
		return Invalidf("attributes", "has %d bytes, at most %d are allowed", len(flat), MaxAttributes)
	}
	o := object{data: flat}
	var names nameSet
	for {
		key, value, done, err := o.next()
		if err != nil {
			return Invalidf("attributes", "%s", err)
		}
		if done {
			break
		}
		name, err := unquote(flat[o.pos-len(value)-len(`"":`)-len(key) : o.pos-len(value)-len(`:`)]) // with its quotes
		if err != nil || name == "" || !printable(name) {
			return Invalidf("attributes", "names must be printable and not empty")
		}
		if !names.add(name) {
			return Invalidf("attributes", "%s is given twice; keep one", shorten(name, 32))
		}
		switch value[0] {
		case '{', '[', 'n':
			return Invalidf("attributes", "%s must be a string, number or boolean: the object is flat", shorten(name, 32))
		case '"':
			if s, err := unquote(value); err != nil || !printable(s) {
				return Invalidf("attributes", "%s must be printable text", shorten(name, 32))
			}
		}
	}
	if names.n > 0 {
		c.Attributes = flat
	}
	return nil
}

// nameSet finds duplicate names. The first ones need no map.
type nameSet struct {
	n     int
	first [8]string
	many  map[string]bool
}

// add reports whether the name is new.
func (s *nameSet) add(name string) bool {
	if slices.Contains(s.first[:min(s.n, len(s.first))], name) || s.many[name] {
		return false
	}
	if s.n < len(s.first) {
		s.first[s.n] = name
	} else {
		if s.many == nil {
			s.many = make(map[string]bool)
		}
		s.many[name] = true
	}
	s.n++
	return true
}

// compact returns a value that was scanned already without white space between its parts: raw itself if there is none.
func compact(raw []byte) []byte {
	spaced := func(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
	o := object{data: raw}
	for o.pos < len(raw) && !spaced(raw[o.pos]) {
		if raw[o.pos] != '"' {
			o.pos++
		} else if _, err := o.text(); err != nil {
			return raw // impossible: the strings were scanned before
		}
	}
	if o.pos == len(raw) {
		return raw
	}
	flat := append(make([]byte, 0, len(raw)), raw[:o.pos]...)
	for o.pos < len(raw) {
		from := o.pos
		switch {
		case spaced(raw[from]):
			o.pos++
			continue
		case raw[from] != '"':
			o.pos++
		default:
			if _, err := o.text(); err != nil {
				return raw
			}
		}
		flat = append(flat, raw[from:o.pos]...)
	}
	return flat
}
