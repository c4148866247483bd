package wire

import (
	"bytes"
	"slices"
	"strconv"
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
		if err != nil || name == "" || !Printable(name) {
			return Invalidf("attributes", "names must be printable and not empty")
		}
		if !names.add(name) {
			return Invalidf("attributes", "a name is given twice; keep one").got(name)
		}
		switch value[0] {
		case '{', '[', 'n':
			return Invalidf("attributes", "each value must be a string, number or boolean: the object is flat").got(name)
		case '"':
			if s, err := unquote(value); err != nil || !Printable(s) {
				return Invalidf("attributes", "each value must be printable text").got(name)
			}
		default:
			if !numbersFit(value) {
				return Invalidf("attributes", misfit).got(name)
			}
		}
	}
	if names.n > 0 {
		c.Attributes = flat
	}
	return nil
}

// misfit is what is wrong with a value of which numbersFit is false.
const misfit = "has a number beyond 1e308 or below 1e-308, which floating point and SQL do not hold; give it as text"

// numbersFit reports whether a float64 and the numeric of SQL can hold the numbers in a value that was scanned already: readers
// of attributes and benefits must not fail at what a lane accepted.
func numbersFit(raw []byte) bool {
	o := object{data: raw}
	for o.pos < len(raw) {
		switch c, start := raw[o.pos], o.pos; {
		case c == '"':
			_, _ = o.text() // scanned before
		case c == '-' || c >= '0' && c <= '9':
			_ = o.number()
			if !fits(raw[start:o.pos]) {
				return false
			}
		default:
			o.pos++
		}
	}
	return true
}

func fits(number []byte) bool {
	mantissa, exponent := number, 0
	if at := bytes.IndexAny(number, "eE"); at >= 0 {
		mantissa = number[:at]
		exponent, _ = strconv.Atoi(View(number[at+1:])) // out of range: the largest there is
	} else if len(number) < 300 {
		return true // nearly always
	}
	v, err := strconv.ParseFloat(View(number), 64)
	tooSmall := v == 0 && bytes.ContainsAny(mantissa, "123456789")
	return err == nil && !tooSmall && exponent >= -308 && exponent <= 308
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
